"""Masks that are a window of indices, which kernels know by two numbers."""

from typing import NamedTuple

from ropejax.masks import And, Causal, Full, Window


class Reach(NamedTuple):
    """How many keys before and after itself a query sees; None for all of them."""

    before: int | None = None
    after: int | None = None


def as_window(mask) -> Reach | None:
    """Returns the window that a mask is, or None if it is none.

    Full attention, `Causal`, `Window`, and what `&` makes of them.

    Args:
        mask: a mask, or None for full attention.
    """
    if mask is None or isinstance(mask, Full):
        return Reach()
    if isinstance(mask, Causal):
        return Reach(None, 0)
    if isinstance(mask, Window):
        return Reach(mask.before, mask.after)
    if not isinstance(mask, And):
        return None
    parts = [as_window(part) for part in mask.parts]
    if None in parts:
        return None
    known = [[n for n in ends if n is not None] for ends in zip(*parts, strict=True)]
    return Reach(*(min(ends, default=None) for ends in known))
