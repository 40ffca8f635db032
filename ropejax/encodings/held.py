"""Parameters with a range, which an optimizer that knows nothing of it must not leave.

`jnp.clip` alone would not do: on a bound it halves the gradient, and beyond one there
is none, so that a parameter that a step has carried out of its range stays there.
"""

import jax
import jax.numpy as jnp

from ropejax.typing import Array, Float


@jax.custom_vjp
def held(values: Float[Array, "*P"], low: float, high: float) -> Float[Array, "*P"]:
    """Returns values clamped; outside, gradients pass only if they lead back inside.

    On a bound, and within, gradients pass as they are. The rule goes by the sign of
    the whole gradient, so apply it once (in `prepare`), not to each block of tokens.
    It has no forward-mode derivative.

    Args:
        values: parameters.
        low: least value.
        high: greatest value.
    """
    return jnp.clip(values, low, high)


def _forward(values, low, high):
    return jnp.clip(values, low, high), (values, low, high)


def _backward(kept, gradient):
    values, low, high = kept
    outward = ((values < low) & (gradient > 0)) | ((values > high) & (gradient < 0))
    return jnp.where(outward, 0.0, gradient), None, None


held.defvjp(_forward, _backward)
