"""Evenly spaced positions: a row's tokens at equal steps over the whole range of ids.

Su's rule for testing a model that was trained with randomized positions: instead of one
more random draw, take the ids that a draw has on average. Nothing is random, and a row
of as many tokens as there are ids is consecutive.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import check_range
from ropejax.positions.rows import real_places
from ropejax.typing import Rng


def evenly_spaced(
    lengths: Int[Array, " B"], num_tokens: int, max_position: int, *, rounded: bool
) -> Int[Array, "B P"] | Float[Array, "B P"]:
    """Returns `t (max_position - 1) / (length - 1)` for the tokens of each row.

    The first token is at 0 and the last one at `max_position - 1`; a single token is at
    0. Rounded ids are distinct as long as there are no more tokens than ids.

    Args:
        lengths: number of real tokens in each row, `[B]`; may be traced.
        num_tokens: the padded length P (static).
        max_position: number of ids.
        rounded: whether to round to the nearest integer.

    Returns:
        Positions `[B, P]`, int32 if rounded, else float32; padding is at
        `max_position - 1`.

    Raises:
        ValueError: if known lengths leave 0 .. P.
    """
    real = real_places(lengths, num_tokens)
    place = jnp.arange(num_tokens, dtype=jnp.int32)[None]
    steps = jnp.maximum(jnp.asarray(lengths, jnp.int32) - 1, 1)[:, None]
    last = max_position - 1
    # Whole steps in integers: only what is less than one token per step is a float, so
    # that large ranges keep their precision and rounding keeps ids apart.
    whole, rest = last // steps, last % steps
    # Padding is set aside before the product, which could overflow there.
    place = jnp.where(real, place, 0)
    part = place.astype(jnp.float32) * (
        rest.astype(jnp.float32) / steps.astype(jnp.float32)
    )
    if rounded:
        ids = place * whole + jnp.round(part).astype(jnp.int32)
        return jnp.where(real, ids, last)
    return jnp.where(real, (place * whole).astype(jnp.float32) + part, float(last))


@dataclasses.dataclass(frozen=True)
class EvenlySpaced(PositionScheme):
    """`positions[t] = t (max_position - 1) / (length - 1)`.

    Use it to evaluate what was trained with `Randomized(max_position)`.

    Attributes:
        max_position: number of ids, in tokens; no row may be longer.
        rounded: integer positions, for tables; False gives fractions, for encodings
            that are functions of a position.

    Raises:
        ValueError: if `max_position` is not in 1 .. 2^31 - 1.

    References:
        Su (2023), spaces.ac.cn/archives/9444, which recommends evenly spaced positions
        at test time over random ones.

    Departures:
        Both ends of the range are used; the article does not say whether its last
        position is the last id.
    """

    max_position: int = 2048
    rounded: bool = True

    title: ClassVar[str] = "Evenly spaced"
    summary: ClassVar[str] = "equal steps over the whole range of ids"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9444"

    def __post_init__(self):
        super().__post_init__()
        check_range("max_position", self.max_position)

    def position_bound(self, num_tokens: int) -> int:
        """Returns `max_position`."""
        return self.max_position

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if there are more tokens than ids."""
        if num_tokens > self.max_position:
            raise ValueError(
                f"Rows of {num_tokens} tokens do not fit max_position="
                f"{self.max_position}: steps would be shorter than one token. Raise "
                "max_position (and train with it) or use shorter rows."
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
        return Placement(
            positions=evenly_spaced(
                lengths, num_tokens, self.max_position, rounded=self.rounded
            )
        )
