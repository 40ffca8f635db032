"""PoSE: a row in two chunks with a random gap, so that short rows show long distances.

Fine-tuning on rows of n tokens makes a model meet distances up to `max_position`
without paying for rows that long: the second chunk's positions jump ahead by a random
amount. Within a chunk positions are consecutive, so the model keeps what it knows of
neighbours.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import LARGEST_SCALED, SCALED, check_range
from ropejax.positions.rows import draw_rows, real_places, uniform_below, unit_draw
from ropejax.typing import Rng


def two_chunks(
    lengths: Int[Array, " B"],
    num_tokens: int,
    first_chunk: Int[Array, "#B"],
    skip: Int[Array, "#B"],
) -> Int[Array, "B P"]:
    """Returns `t` in the first chunk of each row, and `t + skip` after it.

    Args:
        lengths: number of real tokens in each row, `[B]`; may be traced.
        num_tokens: the padded length P (static).
        first_chunk: length of the first chunk in tokens, `[B or 1]`.
        skip: how far the rest jumps ahead in tokens, `[B or 1]`; 0 is consecutive.

    Returns:
        Positions `[B, P]`; padding stays where the last real token is.

    Raises:
        ValueError: if known lengths leave 0 .. P.
    """
    real_places(lengths, num_tokens)  # refuses lengths that do not fit
    last = jnp.maximum(jnp.asarray(lengths, jnp.int32) - 1, 0)[:, None]
    place = jnp.minimum(jnp.arange(num_tokens, dtype=jnp.int32)[None], last)
    return place + jnp.where(place >= first_chunk[:, None], skip[:, None], 0)


@dataclasses.dataclass(frozen=True)
class PoSE(PositionScheme):
    """Two chunks: `t` for `t < l`, and `t + u` from l on.

    l is uniform over `1 .. ceil(n / 2)` and u over `0 .. max_position - n` for a row of
    n tokens. Test with `Consecutive`.

    Attributes:
        max_position: the length to extend to, in tokens; no row may be longer.
        per_sequence: one draw a row, as published, instead of one for the batch.

    Raises:
        ValueError: if `max_position` is not in 1 .. 2^23.

    References:
        Zhu, Yang, Wang, Song, Wu, Wei, Li (2023), "PoSE: efficient context window
        extension of LLMs via positional skip-wise training", arXiv:2309.10400;
        dwzhu-pku/PoSE at 43b43b3, where the first chunk starts at 0.

    Departures:
        Positions only: the authors also let the second chunk's text come from further
        on in its document, which is a matter of the data.
    """

    max_position: int = 2048
    per_sequence: bool = True

    title: ClassVar[str] = "PoSE"
    summary: ClassVar[str] = "two chunks with a random gap between them"
    reference: ClassVar[str] = "Zhu et al. 2023, arXiv:2309.10400"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        check_range("max_position", self.max_position, most=LARGEST_SCALED, why=SCALED)

    @property
    def rows_differ(self) -> bool:
        """True if each row has a draw of its own."""
        return self.per_sequence

    def position_bound(self, num_tokens: int) -> int:
        """Returns `max_position`."""
        return self.max_position

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if there are more tokens than positions."""
        if num_tokens > self.max_position:
            raise ValueError(
                f"Rows of {num_tokens} tokens do not fit max_position="
                f"{self.max_position}. Raise max_position or use shorter rows."
            )

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Returns positions `[B, P]`; see `PositionScheme.__call__`."""
        self.check(num_tokens)
        real_places(lengths, num_tokens)  # refuses lengths that do not fit
        lengths = jnp.asarray(lengths, jnp.int32)
        # Two uniform draws a row, scaled to bounds that depend on its (traced) length.
        unit = draw_rows(
            lambda key: unit_draw(key, (2,)),
            rng,
            lengths.shape[0],
            per_sequence=self.per_sequence,
        )
        first = 1 + uniform_below(unit[:, 0], (lengths + 1) // 2)
        skip = uniform_below(unit[:, 1], self.max_position - lengths + 1)
        return Placement(positions=two_chunks(lengths, num_tokens, first, skip))
