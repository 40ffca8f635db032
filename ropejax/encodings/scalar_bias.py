"""A learned number for each offset: the simplest learned relative encoding."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.bias_forms import NarrowBias
from ropejax.encodings.choices import not_negative, positive
from ropejax.encodings.relative_terms import clipped_rows, relative_bias
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Rng, Shaped


@dataclasses.dataclass(frozen=True)
class OffsetTable(Encoding):
    """A learned number for each head and offset; what derives says what it is for.

    Attributes:
        clip: offsets beyond this many tokens share a number.
        shared: True if all layers share one table.
        init_std: standard deviation of the numbers at the start, about `centre`.

    Raises:
        ValueError: if clip is not positive or init_std negative, or positions are
            fractional.
    """

    clip: int = 128
    shared: bool = False
    init_std: float = 0.02

    centre: ClassVar[float] = 0.0

    def __post_init__(self):
        super().__post_init__()
        positive(clip=self.clip)
        not_negative(init_std=self.init_std)

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"table": [2 clip + 1, N]}` if shared, else nothing."""
        return self._init_table(rng, dims) if self.shared else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"table": [2 clip + 1, N]}` unless shared."""
        return {} if self.shared else self._init_table(rng, dims)

    def _init_table(self, rng, dims):
        shape = (2 * self.clip + 1, dims.num_heads)
        drawn = self.init_std * jax.random.normal(rng, shape, jnp.float32)
        return {"table": self.centre + drawn}


@dataclasses.dataclass(frozen=True)
class ScalarBias(OffsetTable):
    """Adds a learned number of each head and offset to the scaled logits.

    `logits + table[clip(j - i, -clip, clip) + clip, h]`, in nats.

    Attributes:
        clip: offsets beyond this many tokens share a number.
        shared: True if all layers share one table.
        init_std: standard deviation of the numbers at the start.

    Raises:
        ValueError: if clip is not positive or init_std negative, or positions are
            fractional.

    References:
        Shaw et al., 2018, arXiv:1803.02155, for the clipped offsets; Raffel et al.,
        2019, arXiv:1910.10683, for scalars in place of vectors.

    Departures:
        None; it is T5's bias without buckets.
    """

    title: ClassVar[str] = "Learned relative bias"
    summary: ClassVar[str] = "a learned number for each clipped offset and head"
    reference: ClassVar[str] = "Raffel et al. 2019, arXiv:1910.10683"

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns the table's numbers."""
        return bias_of_rows(params["table"], query, key)

    def narrow_bias(self, params: Params) -> NarrowBias:
        """Returns the table's numbers, by head and offset."""
        return NarrowBias(table=params["table"].T)


def bias_of_rows(
    table: Float[Array, "R N"], query: Tokens, key: Tokens
) -> Float[Array, "B N T S"]:
    """Returns `table[clip(offset) + (R - 1) / 2]` of each pair, float32.

    Args:
        table: one row an offset, the middle one for offset 0, the last for the farthest
            key after the query.
        query: the queries.
        key: the keys.
    """
    table = jnp.asarray(table, jnp.float32)  # NumPy's has no traced rows
    rows = clipped_rows(table.shape[0] // 2)

    def numbers(offsets: Shaped[Array, "#B *P"]) -> Float[Array, "#B N *P"]:
        return jnp.moveaxis(table[rows(offsets)], -1, 1)

    return relative_bias(numbers, query, key)
