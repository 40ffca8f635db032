"""Arrays made longer by what stands last in them."""

import jax.numpy as jnp
from jaxtyping import Array


def last_repeated(x: Array, extra: int, axis: int = 0) -> Array:
    """Returns an array with its last entry repeated along an axis.

    Args:
        x: the array.
        extra: how many copies follow.
        axis: the axis that grows.

    Returns:
        An array with `extra` more entries.
    """
    widths = [(0, extra * (at == axis)) for at in range(x.ndim)]
    return jnp.pad(x, widths, mode="edge")
