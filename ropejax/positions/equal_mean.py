"""Equal-mean random positions: rows stretched at random, by a factor of 1 on average.

Randomized ids have a mean that depends on the range they are drawn from, which is not
the mean of the consecutive positions at test time. Here the row's last position n is
random with the row's own length as its mean, and tokens are evenly spaced over [0, n]:
long positions occur, if rarely, and test rows simply use 0, 1, 2, ... (`Consecutive`).
Positions are fractions, so the encoding must be a function of a position, not a table.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import check_range
from ropejax.positions.rows import draw_rows, real_places, unit_draw
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class EqualMean(PositionScheme):
    """`positions[t] = t n / (length - 1)`, n random with mean `length`.

    n is exponential, `-length * log(1 - U)` with U uniform; or, if `max_position` M is
    given, `M * Beta(1, b)` with `b = (M - length) / length`, which is
    `M * (1 - (1 - U)^(1 / b))`: it has the same mean and no mass above M, and tends to
    the exponential as M grows.

    Train with this scheme and test with `Consecutive`.

    Attributes:
        max_position: largest n, in tokens; None for the exponential law.
        per_sequence: one U a row, instead of one for the batch.

    Raises:
        ValueError: if `max_position` is not in 1 .. 2^31 - 1.

    References:
        Su (2023), spaces.ac.cn/archives/9444: n of mean N for rows of N tokens.

    Departures:
        Rows of other lengths than one training length N have their own length as the
        mean. The article allows a Beta law on [0, M] of that mean; that its first
        parameter is 1 was not verified.
    """

    max_position: int | None = None
    per_sequence: bool = True

    title: ClassVar[str] = "Equal-mean random"
    summary: ClassVar[str] = "evenly spaced over a random stretch of the row's length"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9444"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.max_position is not None:
            check_range("max_position", self.max_position)

    @property
    def rows_differ(self) -> bool:
        """True if each row has a draw of its own."""
        return self.per_sequence

    def position_bound(self, num_tokens: int) -> int | None:
        """Returns `max_position + 1`, or None for the exponential law."""
        return None if self.max_position is None else self.max_position + 1

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if the Beta law has no room for this mean."""
        if self.max_position is not None and num_tokens >= self.max_position:
            raise ValueError(
                f"Rows of {num_tokens} tokens need max_position above that, got "
                f"{self.max_position}: the mean of n is the row's length. Raise "
                "max_position or use None (exponential)."
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
        """Returns positions `[B, P]`, float32; see `PositionScheme.__call__`."""
        self.check(num_tokens)
        real = real_places(lengths, num_tokens)
        mean = jnp.asarray(lengths, jnp.float32)
        unit = draw_rows(unit_draw, rng, real.shape[0], per_sequence=self.per_sequence)
        end = self._end(unit, mean)
        place = jnp.arange(num_tokens, dtype=jnp.float32)[None]
        step = end / jnp.maximum(mean - 1, 1)
        return Placement(positions=jnp.where(real, place, 0) * step[:, None])

    def _end(self, unit: Array, mean: Array) -> Array:
        """The last position of each row, of this mean, from uniform draws in [0, 1)."""
        log_rest = jnp.log1p(-unit)  # log(1 - U)
        if self.max_position is None:
            return -mean * log_rest
        power = mean / (self.max_position - mean)  # 1 / b
        return -self.max_position * jnp.expm1(power * log_rest)
