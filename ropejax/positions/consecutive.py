"""Consecutive positions: 0, 1, 2, ... in every row, what a Transformer does by default.

A model trained on rows of up to n tokens has then seen positions 0 .. n - 1 only; every
position past that is new to it, which is one reason why it fails on longer rows.
"""

import dataclasses
from typing import ClassVar

from jaxtyping import Array, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.rows import real_places
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Consecutive(PositionScheme):
    """Every row at 0, 1, 2, ...: `positions[b, t] = t`.

    The `Placement` is empty, so that engines may use what holds of consecutive
    positions only (fused kernels, one row of distances for all queries).
    """

    title: ClassVar[str] = "Consecutive"
    summary: ClassVar[str] = "0, 1, 2, ..."

    def position_bound(self, num_tokens: int) -> int:
        """Returns `num_tokens`: the last position is `num_tokens - 1`."""
        return num_tokens

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Returns an empty `Placement`; see `PositionScheme.__call__`."""
        real_places(lengths, num_tokens)  # refuses lengths that do not fit
        return Placement()
