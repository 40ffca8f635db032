"""T5's bias: a learned number for each bucket of offsets.

Near offsets have a bucket each, far ones share buckets of logarithmic width, and all
beyond `max_distance` share one; so few numbers cover any length.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.bias_forms import NarrowBias
from ropejax.encodings.buckets import t5_buckets
from ropejax.encodings.choices import not_negative
from ropejax.encodings.scalar_bias import bias_of_rows
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Rng


@dataclasses.dataclass(frozen=True)
class T5Bias(Encoding):
    """Adds a learned number of each head and bucket of offsets to the scaled logits.

    `logits + table[bucket(j - i), h]`, in nats; see `ropejax.encodings.buckets`.

    Attributes:
        num_buckets: number of buckets in all.
        max_distance: distances from here on share a bucket.
        bidirectional: half of the buckets for keys after the query; None to follow the
            model (False for a causal one, which would otherwise waste that half).
        shared: True if all layers share one table, as in the paper.
        init_std: standard deviation of the numbers at the start; D^-1/2 if None, as in
            T5's code.

    Raises:
        ValueError: if buckets are too few or reach too near, init_std is negative, or
            positions are fractional.

    References:
        Raffel et al., 2019, arXiv:1910.10683, section 2.1; tensorflow/mesh,
        `transformer_layers.py`.

    Departures:
        T5 does not divide queries times keys by sqrt(H); attention's `scale=1` gives
        that model.
    """

    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool | None = None
    shared: bool = True
    init_std: float | None = None

    title: ClassVar[str] = "T5 bias"
    summary: ClassVar[str] = "a learned number for each logarithmic bucket and head"
    reference: ClassVar[str] = "Raffel et al. 2019, arXiv:1910.10683"

    def __post_init__(self):
        super().__post_init__()
        if self.init_std is not None:
            not_negative(init_std=self.init_std)
        t5_buckets(self.num_buckets, self.max_distance, bool(self.bidirectional))

    def check(self, dims: Dims) -> None:
        """Raises ValueError if there are too few buckets for both directions."""
        self._buckets(dims)

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"table": [num_buckets, N]}` if shared, else nothing."""
        return self._init_table(rng, dims) if self.shared else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"table": [num_buckets, N]}` unless shared."""
        return {} if self.shared else self._init_table(rng, dims)

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns a row of numbers for each offset up to `max_distance`."""
        # An array of NumPy's has no rows at traced indices.
        table = jnp.asarray({**shared, **layer}["table"])
        return {"by_offset": table[jnp.asarray(self._buckets(dims))]}

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns the numbers of the buckets."""
        return bias_of_rows(params["by_offset"], query, key)

    def narrow_bias(self, params: Params) -> NarrowBias:
        """Returns the numbers of the buckets, by head and offset."""
        return NarrowBias(table=params["by_offset"].T)

    def _buckets(self, dims):
        both = not dims.causal if self.bidirectional is None else self.bidirectional
        return t5_buckets(self.num_buckets, self.max_distance, both)

    def _init_table(self, rng, dims):
        std = dims.embed_dim**-0.5 if self.init_std is None else self.init_std
        shape = (self.num_buckets, dims.num_heads)
        return {"table": std * jax.random.normal(rng, shape, jnp.float32)}
