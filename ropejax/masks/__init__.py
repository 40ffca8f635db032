"""Masks: which query may attend to which key, as values that combine with & | ~."""

from ropejax.masks.base import And, Mask, Not, Or, Visibility
from ropejax.masks.heads import PerHead
from ropejax.masks.local import (
    Blocks,
    BlockwiseCausal,
    Causal,
    Chunked,
    Dilated,
    Full,
    Window,
)
from ropejax.masks.sparse import (
    BigBird,
    Global,
    Lambda,
    Longformer,
    Marked,
    Prefix,
    Random,
)

__all__ = [
    "And",
    "BigBird",
    "Blocks",
    "BlockwiseCausal",
    "Causal",
    "Chunked",
    "Dilated",
    "Full",
    "Global",
    "Lambda",
    "Longformer",
    "Marked",
    "Mask",
    "Not",
    "Or",
    "PerHead",
    "Prefix",
    "Random",
    "Visibility",
    "Window",
]
