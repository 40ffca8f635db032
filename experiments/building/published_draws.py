"""What the authors of randomized positions draw under an encoding.

Their paper has six encodings; what is one of them with something changed, such as RoPE
at YaRN's frequencies, or has one of them as a part, is drawn for in the same way.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Any

from ropejax.encodings import (
    ALiBi,
    Encoding,
    Learned,
    Sinusoidal,
    TransformerXL,
    VORotary,
)
from ropejax.encodings.rotary import RotaryAttention

PUBLISHED = types.MappingProxyType(
    {
        RotaryAttention: {"per_layer": True},
        VORotary: {"per_layer": True},
        TransformerXL: {"per_layer": True, "distances": True},
        ALiBi: {"per_layer": True, "distances": True},
        Sinusoidal: {},
        Learned: {},
    }
)
"""Class of encodings -> settings of `Randomized`; the paper has no other encodings."""


def published_draw(encoding: Encoding) -> dict[str, Any]:
    """Returns the settings of `Randomized` that the authors have for an encoding.

    Of encodings put together, it is what the authors have for all of those parts that
    they know: a draw a layer for RoPE with a bias, positions where one part needs them.
    Without any, it is nothing: one draw of positions a pass.

    Args:
        encoding: one method, or several put together.
    """
    known = list(_known(encoding))
    if not known:
        return {}
    first, *others = known
    shared = {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }
    if not encoding.by_distance:
        shared.pop("distances", None)
    return shared


def _known(encoding: Encoding) -> Iterator[Mapping[str, Any]]:
    inner = [getattr(encoding, field.name) for field in dataclasses.fields(encoding)]
    inner += [part for _, part in getattr(encoding, "parts", ())]
    for part in inner:
        if isinstance(part, Encoding):
            yield from _known(part)
    if getattr(encoding, "stream", ""):
        return  # it reads ids of another kind, not positions
    for cls, draw in PUBLISHED.items():
        if isinstance(encoding, cls):
            yield draw
