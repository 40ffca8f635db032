"""The type that a model computes in, checked where its settings are made."""

from typing import Any

import jax.numpy as jnp


def check_floating(name: str, dtype: Any) -> None:
    """Raises ValueError unless a type is one of floating-point numbers.

    Args:
        name: of the setting, for the message.
        dtype: a type, or its name; None, which NumPy takes for float64, is none.
    """
    try:
        fits = dtype is not None and jnp.issubdtype(jnp.dtype(dtype), jnp.floating)
    except TypeError:  # of a name that is no type
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must be a floating-point type, got {dtype}; use float32 or "
            "bfloat16."
        )
