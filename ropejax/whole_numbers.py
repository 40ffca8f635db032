"""Whole numbers where something is counted: lengths, steps, rows.

A length of 3.7 would be cut to 3 on its way into an int32, and True taken for 1.
"""

import numbers
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.concrete import known_values


def whole_number(
    name: str, value: Any, *, least: int | None = None, most: int | None = None
) -> int:
    """Returns a whole number as a Python int.

    Args:
        name: what messages call it.
        value: an int of Python or numpy, or an array of one integer; no bool.
        least: the smallest that is allowed; any if None.
        most: the largest that is allowed; any if None.

    Raises:
        ValueError: if it is something else, traced, smaller or larger.
    """
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(
            f"{name} must be a whole number, got {value!r}; give an int."
        ) from None
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}.")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}.")
    return number


def check_whole(name: str, values: Any) -> np.ndarray | None:
    """Refuses an array, or a list of numbers, that is not of integers.

    Args:
        name: what messages call it.
        values: an array of any number of axes, a list or a tuple; all of it, or some
            entries, may be traced.

    Returns:
        The values if all are known now, else None.

    Raises:
        ValueError: if an entry is floating-point, a bool, or no number.
    """
    nested = isinstance(values, list | tuple)
    entries = (
        jax.tree.leaves(values, is_leaf=lambda x: x is None) if nested else [values]
    )
    for entry in entries:
        if not _is_whole(entry):
            kind = getattr(entry, "dtype", None)
            raise ValueError(
                f"{name} must be whole numbers, got "
                f"{repr(entry) if kind is None else kind}; round them, and give ints "
                "or an array of integers."
            )
    if any(isinstance(entry, jax.core.Tracer) for entry in entries):
        return None
    return known_values(values)


def _is_whole(entry: Any) -> bool:
    kind = getattr(entry, "dtype", None)
    if kind is not None:
        return jnp.issubdtype(kind, jnp.integer)
    return isinstance(entry, numbers.Integral) and not isinstance(entry, bool)
