"""Refusing settings and positions out of range, and saying what would be right."""

import difflib
from collections.abc import Iterable

from jaxtyping import Array


def check_choice(argument: str, value: str, allowed: Iterable[str]) -> None:
    """Raises ValueError, naming the nearest choice, unless `value` is in `allowed`."""
    allowed = tuple(allowed)
    if value in allowed:
        return
    near = difflib.get_close_matches(str(value), allowed, n=2, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    listed = ", ".join(allowed)
    raise ValueError(f"{argument} must be one of {listed}, got {value!r}.{hint}")


def positive(**numbers: float | int) -> None:
    """Raises ValueError naming the first of the numbers that is not positive."""
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name} must be positive, got {number}.")


def not_negative(**numbers: float | int) -> None:
    """Raises ValueError naming the first of the numbers that is below zero."""
    for name, number in numbers.items():
        if not number >= 0:
            raise ValueError(f"{name} must be at least 0, got {number}.")


def check_axes(title: str, positions: Array, count: int) -> None:
    """Raises ValueError unless positions `[B, L, A]` are on so many axes.

    Args:
        title: of the encoding that takes them.
        positions: of queries or keys.
        count: A.
    """
    if positions.shape[-1] != count:
        raise ValueError(
            f"{title} takes positions on {count} axes, got shape {positions.shape}; "
            f"give {count}, or choose axes={positions.shape[-1]} where it has them."
        )
