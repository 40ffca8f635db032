"""An example of every mask, and its picture: which query sees which key."""

import dataclasses
from types import MappingProxyType

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool
from matplotlib.figure import Figure

from experiments.gallery.draw import binary, figure_of
from ropejax.encodings import hard_alibi
from ropejax.masks import (
    BigBird,
    Blocks,
    BlockwiseCausal,
    Causal,
    Chunked,
    Dilated,
    Full,
    Global,
    Lambda,
    Longformer,
    Marked,
    Mask,
    Prefix,
    Random,
    Window,
)
from ropejax.tokens import tokens

LENGTH = 32
"""Tokens of a picture."""

MASKS = MappingProxyType(
    {
        "full": Full(),
        "causal": Causal(),
        "window": Window(6, 3),
        "sliding_window": Window.sliding(8),
        "dilated": Dilated(3, 4, 0),
        "blocks": Blocks(Window(1, 1), 4),
        "chunked": Chunked(8),
        "blockwise_causal": BlockwiseCausal(4),
        "global": Global(first=2, at=(20,)),
        "prefix": Causal() | Prefix(8),
        "marked": Causal() | Marked("marked"),
        "random": Random(3),
        "lambda": Lambda(sinks=4, window=8),
        "longformer": Longformer(8, globals=2),
        "bigbird": BigBird(LENGTH, block=2, random=2),
        "intersection": Causal() & Dilated(2, None, None),
        "complement": Causal() & ~Window.sliding(8),
        "per_head": hard_alibi(4, 3),
    }
)
"""An example of each mask of `ropejax.masks`, by the name of its picture."""


def kinds_of(mask: Mask) -> list[type[Mask]]:
    """Returns the classes of a mask and of the masks in it, its own first."""
    found = [type(mask)]
    for field in dataclasses.fields(mask):
        value = getattr(mask, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Mask):
                found += kinds_of(part)
    return list(dict.fromkeys(found))


def visible(mask: Mask, length: int = LENGTH) -> Bool[np.ndarray, "N L L"]:
    """Returns which query (row) sees which key (column), for each head.

    Every eighth token and the one after it are marked.
    """
    marks = (jnp.arange(length) % 8 < 2).astype(jnp.int32)[None]
    where = tokens(length, streams={"marked": marks})
    return np.asarray(mask(where, where))[0]


def mask_figure(name: str) -> Figure:
    """Returns the picture of an example: a panel a head."""
    mask = MASKS[name]
    heads = visible(mask)
    figure, panels = figure_of(len(heads), f"mask: {name}", repr(mask))
    for number, (axes, shown) in enumerate(zip(panels, heads, strict=True)):
        share = f"{shown.mean():.0%} of pairs visible"
        axes.set_title(share if len(heads) == 1 else f"head {number + 1}: {share}")
        binary(axes, shown)
        axes.set(xlabel="key (index)", ylabel="query (index)")
    return figure
