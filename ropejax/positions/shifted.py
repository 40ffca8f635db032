"""Shifted positions: consecutive ones that start elsewhere than at 0.

A random start shows a model larger positions than its rows are long, but no larger
distances: absolute encodings see something new, relative ones do not, and an encoding
that claims to be shift invariant must not notice.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import LARGEST, check_range
from ropejax.positions.rows import draw_rows, real_places
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Shifted(PositionScheme):
    """`positions[b, t] = t + offset + u[b]`, u uniform over `0 .. max_random_offset`.

    Attributes:
        offset: constant part of the start, in tokens, at least 0.
        max_random_offset: largest random part of the start, in tokens; 0 for none.
        per_sequence: one random start a row, instead of one for the batch.

    Raises:
        ValueError: if `offset` is not in 0 .. 2^31 - 1, or `max_random_offset` in
            0 .. 2^31 - 2.

    References:
        Kiyono, Kobayashi, Suzuki, Inui (2021), "SHAPE: shifted absolute position
        embedding for transformers", arXiv:2109.05644.

    Departures:
        None.
    """

    offset: int = 0
    max_random_offset: int = 0
    per_sequence: bool = True

    title: ClassVar[str] = "Shifted"
    summary: ClassVar[str] = "consecutive, from a constant or random start"
    reference: ClassVar[str] = "Kiyono et al. 2021, arXiv:2109.05644"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        check_range("offset", self.offset, least=0)
        # The end of a draw is an int32 itself.
        check_range(
            "max_random_offset", self.max_random_offset, least=0, most=LARGEST - 1
        )

    @property
    def rows_differ(self) -> bool:
        """True if each row has a random start of its own."""
        return self.per_sequence and self.max_random_offset > 0

    def position_bound(self, num_tokens: int) -> int:
        """Returns one more than the largest position of `num_tokens` tokens."""
        return self.offset + self.max_random_offset + num_tokens

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if the largest position leaves int32."""
        bound = self.position_bound(num_tokens)
        if bound > 2**31:
            raise ValueError(
                f"offset={self.offset} and max_random_offset={self.max_random_offset} "
                f"put {num_tokens} tokens at positions up to {bound - 1}, beyond "
                "int32; lower them."
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
        """Returns positions `[B, P]`, or `[1, P]` if all rows start alike."""
        self.check(num_tokens)
        num_rows = real_places(lengths, num_tokens).shape[0]
        start = jnp.full((1,), self.offset, jnp.int32)
        if self.max_random_offset:
            most = self.max_random_offset + 1
            start = start + draw_rows(
                lambda key: jax.random.randint(key, (), 0, most, jnp.int32),
                rng,
                num_rows,
                per_sequence=self.per_sequence,
            )
        place = jnp.arange(num_tokens, dtype=jnp.int32)
        return Placement(positions=start[:, None] + place[None])
