"""Masks: which query may attend to which key, as values that combine with & | ~."""

from types import MappingProxyType

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

MASKS: MappingProxyType[str, type[Mask]] = MappingProxyType(
    {
        cls.__name__: cls
        for cls in (
            *(Full, Causal, Window, Dilated, Chunked, BlockwiseCausal, Blocks),
            *(Global, Prefix, Marked, Random, Lambda, Longformer, BigBird),
            *(PerHead, And, Or, Not),
        )
    }
)
"""Every mask by the name that configs call it by."""

__all__ = [
    "MASKS",
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
