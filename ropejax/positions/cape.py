"""CAPE: consecutive positions that are shifted, jittered and stretched at random.

What a model may learn of positions is then what survives such changes: how tokens lie
to each other, not where they are, and this at more than one pace. Positions are
fractions, so the encoding must be a function of a position, not a table; the published
one is sinusoidal.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.rows import draw_rows, draw_tokens, real_places, unit_draw
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class CAPE(PositionScheme):
    """`positions[t] = (t - m + shift + jitter[t]) * stretch`.

    With u uniform over [-1, 1), drawn anew each time: `shift = max_shift u` and
    `stretch = max_stretch ** u` once a row, `jitter[t] = max_jitter u` for each token;
    m is 0, or the mean place of the row's tokens if `centred`. Positions may be
    negative.

    Test with `Consecutive`, or, if centred, with nothing random:
    `CAPE(0.0, 0.0, 1.0, centred=True)`.

    Attributes:
        max_shift: largest shift to either side, in tokens.
        max_jitter: largest shift of a single token; up to 0.5 tokens keep their order.
        max_stretch: largest factor on all distances, at least 1; the least is its
            inverse.
        centred: count from the middle of each row. A row's positions then change with
            its length, which decoding token by token does not know.
        per_sequence: one shift, stretch and jitter a row, as published, instead of one
            for the batch.

    Raises:
        ValueError: if a shift is negative, or `max_stretch` below 1.

    References:
        Likhomanenko, Xu, Synnaeve, Collobert, Rogozhnikov (2021), "CAPE: encoding
        relative positions with continuous augmented positional embeddings",
        arXiv:2106.03143; gcambara/cape at 058df08, whose settings for text (5, 1 and
        1.03) are the defaults. There, a jitter of 1 is 0.5 to either side.

    Departures:
        Audio's positions in seconds, images' two axes, and the paper's frequencies for
        them are left out. The code was read, not the paper.
    """

    max_shift: float = 5.0
    max_jitter: float = 0.5
    max_stretch: float = 1.03
    centred: bool = False
    per_sequence: bool = True

    title: ClassVar[str] = "CAPE"
    summary: ClassVar[str] = "consecutive, but shifted, jittered and stretched a little"
    reference: ClassVar[str] = "Likhomanenko et al. 2021, arXiv:2106.03143"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        for name in ("max_shift", "max_jitter"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must be at least 0, got {getattr(self, name)}."
                )
        if self.max_stretch < 1:
            raise ValueError(
                f"max_stretch must be at least 1, got {self.max_stretch}; distances "
                "shrink by its inverse, too."
            )

    @property
    def rows_differ(self) -> bool:
        """True if each row has draws of its own, and something is drawn."""
        drawn = self.max_shift > 0 or self.max_jitter > 0 or self.max_stretch > 1
        return self.per_sequence and drawn

    def position_bound(self, num_tokens: int) -> int:
        """Returns the first whole number above all positions of `num_tokens` tokens."""
        last = max(num_tokens - 1, 0) / (2 if self.centred else 1)
        farthest = (last + self.max_shift + self.max_jitter) * self.max_stretch
        return math.floor(farthest) + 1

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if positions may leave the range of int32."""
        bound = self.position_bound(num_tokens)
        if bound > 2**31:
            raise ValueError(
                f"max_shift={self.max_shift}, max_jitter={self.max_jitter} and "
                f"max_stretch={self.max_stretch} put {num_tokens} tokens at positions "
                f"up to {bound - 1}, beyond int32; lower them."
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
        drawn = draw_rows(
            lambda key: _between_ones(key, num_tokens),
            rng,
            real.shape[0],
            per_sequence=self.per_sequence,
        )
        shift, stretch, jitter = drawn[:, :1], drawn[:, 1:2], drawn[:, 2:]
        place = jnp.arange(num_tokens, dtype=jnp.float32)[None]
        if self.centred:
            count = jnp.asarray(lengths, jnp.float32)[:, None]
            place = place - (count - 1) / 2
        place = place + self.max_shift * shift + self.max_jitter * jitter
        place = place * jnp.exp(math.log(self.max_stretch) * stretch)
        return Placement(positions=jnp.where(real, place, 0.0))


def _between_ones(rng: Rng, num_tokens: int) -> Float[Array, " n"]:
    """Returns uniform draws from [-1, 1): two for a row, and one for each token."""
    row_rng, token_rng = jax.random.split(rng)
    row = unit_draw(row_rng, (2,))
    each = draw_tokens(unit_draw, token_rng, num_tokens)
    return 2 * jnp.concatenate([row, each]) - 1
