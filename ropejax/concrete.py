"""What is known of an array before anything is compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


def known_values(array: ArrayLike) -> np.ndarray | None:
    """Returns the values of an array if this process knows them now, else None.

    Values of traced arrays are not known, nor are those of arrays that are spread over
    several processes. Look at what a caller passed, before any operation of jax: where
    the caller is being traced, even `jnp.asarray` of a numpy array is.
    """
    if isinstance(array, jax.core.Tracer):
        return None
    if not getattr(array, "is_fully_addressable", True):
        return None
    return np.asarray(array)


def check_finite_array(name: str, array: Any) -> None:
    """Raises ValueError for an array with a value known to be NaN or infinite.

    Args:
        name: what messages call the array.
        array: an array or a number; integers are finite.
    """
    if not jnp.issubdtype(jnp.result_type(array), jnp.inexact):
        return
    values = known_values(array)
    if values is None:
        return
    wrong = values[~np.isfinite(values.astype(np.float32))]
    if wrong.size:
        raise ValueError(f"{name} must be finite, got {wrong.flat[0]}.")
