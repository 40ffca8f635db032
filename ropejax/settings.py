"""Checks that every kind of settings shares."""

import dataclasses
import math
import numbers
from typing import Any


def check_finite(settings: Any) -> None:
    """Raises ValueError for a number among settings that is NaN or infinite.

    Such a number passes many comparisons, and would be found in the loss only.

    Args:
        settings: a dataclass; numbers within its tuples and lists count.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if not _all_finite(value):
            raise ValueError(
                f"{field.name} must be finite, got {value!r} for "
                f"{type(settings).__name__}."
            )


def _all_finite(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_all_finite, value))
    return not isinstance(value, numbers.Real) or math.isfinite(value)
