"""Random floats: positions drawn uniformly from an interval, and sorted.

The continuous sibling of randomized ids: any number of tokens fits the range, because
fractions never run out. Training and test rows share the range. The encoding must be a
function of a position, not a table.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import check_range
from ropejax.positions.rows import draw_rows, draw_tokens, real_places, unit_draw
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class RandomFloats(PositionScheme):
    """The first `length` of independent uniform draws from `[0, max_position)`, sorted.

    Attributes:
        max_position: end of the range, in tokens.
        per_sequence: one draw a row, instead of one for the batch (of which shorter
            rows take fewer positions).

    Raises:
        ValueError: if `max_position` is not positive, or above 2^31 - 1.

    References:
        "Random float sampling" (2026), arXiv:2602.14050.

    Departures:
        The range was not verified against the paper, hence the setting; whether each
        row or each batch is drawn was not either. Draws have float32's 23 random bits,
        so two tokens of a row of 500 coincide in about one row of 70.
    """

    max_position: float = 2048.0
    per_sequence: bool = True

    title: ClassVar[str] = "Random floats"
    summary: ClassVar[str] = "sorted uniform draws from an interval"
    reference: ClassVar[str] = "Random float sampling 2026, arXiv:2602.14050"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if not self.max_position > 0:
            raise ValueError(f"max_position must be positive, got {self.max_position}.")
        check_range(
            "max_position",
            self.max_position,
            least=0,
            why="no draw of 23 bits tells tokens of so wide a range apart",
        )

    @property
    def rows_differ(self) -> bool:
        """True if each row has a draw of its own."""
        return self.per_sequence

    def position_bound(self, num_tokens: int) -> int:
        """Returns `max_position`, rounded up."""
        return int(-(-self.max_position // 1))

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Returns positions `[B, P]`, float32; see `PositionScheme.__call__`."""
        real = real_places(lengths, num_tokens)
        unit = draw_rows(
            lambda key: draw_tokens(unit_draw, key, num_tokens),
            rng,
            real.shape[0],
            per_sequence=self.per_sequence,
        )
        # Padding sorts last, and is then put back into the range.
        unit = jnp.sort(jnp.where(real, unit, 1.0), axis=-1)
        return Placement(positions=jnp.where(real, unit * self.max_position, 0.0))
