"""Transformer-XL: content attends to content, and to where the content stands.

A logit is the sum of four terms: query to key, query to offset, and a learned bias of
each head to key and to offset. Offsets enter as sinusoids under a learned projection,
so every offset, of either sign and any size, has a vector of its own.

The position terms have one meaning and three ways to compute it, chosen by what is
known of the tokens before compilation:

    in order              project the sinusoids of all offsets once a layer, one product
                          of queries with them, then a relative shift: no gather
    any positions         sines and cosines of sums from those of queries and of keys,
                          as one more dot product: no gather, and nothing precomputed
    otherwise             (distances or a clamp, out of order) one product with a table
                          of offsets, then a gather
"""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Apart, Dims, Encoding, Views
from ropejax.encodings.choices import check_choice, not_negative, positive
from ropejax.encodings.heads import dot_product
from ropejax.encodings.relative_shift import (
    first_offset,
    in_order,
    offsets_in_order,
    rows_from,
)
from ropejax.encodings.relative_terms import against_offsets
from ropejax.encodings.sinusoids import frequencies, sines_and_cosines, sinusoids
from ropejax.tokens import Tokens, relative_positions, signed_offsets
from ropejax.typing import Array, Float, Logits, Params, Rng

Sign = Literal["query_minus_key", "key_minus_query"]
SIGNS = ("query_minus_key", "key_minus_query")


@dataclasses.dataclass(frozen=True)
class TransformerXL(Encoding):
    """Adds relative terms of sinusoids under a learned projection to the product.

    `(q_i + u) . k_j + (q_i + v) . W R(i - j)`, all of it scaled; `R` are the D
    sinusoids of an offset (sines, then cosines), i and j the positions of query and
    key.

    Segment memory needs nothing more: keys that start before the queries.

    Attributes:
        max_wavelength: the base of the sinusoids.
        sign: "query_minus_key" as in the paper; "key_minus_query" for code that encodes
            j - i (the same family of functions: sines change sign).
        tied: True if all layers share u and v.
        clamp: offsets beyond this many tokens, of either sign, count as this many;
            None for no limit.
        init_std: standard deviation of u and v at the start.

    Raises:
        ValueError: if the sign is unknown, clamp or max_wavelength is not positive,
            init_std is negative, or (in `check`) the model's width is odd.

    References:
        Dai et al., 2019, arXiv:1901.02860, section 3.3; checked against
        kimiyoung/transformer-xl@44781ed, `RelPartialLearnableMultiHeadAttn`.

    Departures:
        Keys after the query get sinusoids of negative offsets, where the paper's causal
        model never looks. W starts as the model's own projections do (truncated normal
        of variance 1 / D), where the paper's code has N(0, 0.02).
    """

    max_wavelength: float = 10_000.0
    sign: Sign = "query_minus_key"
    tied: bool = True
    clamp: int | None = None
    init_std: float = 0.02

    title: ClassVar[str] = "Transformer-XL"
    summary: ClassVar[str] = "content and head biases against projected sinusoids"
    reference: ClassVar[str] = "Dai et al. 2019, arXiv:1901.02860"
    sees_turns: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        check_choice("sign", self.sign, SIGNS)
        if self.clamp is not None:
            positive(clamp=self.clamp)
        positive(max_wavelength=self.max_wavelength)
        not_negative(init_std=self.init_std)

    @property
    def places_queries(self) -> bool:
        """False: what it makes of queries stands beside them."""
        return False

    def check(self, dims: Dims) -> None:
        """Raises ValueError if the model's width is odd."""
        self._frequencies(dims.embed_dim)

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"u": [N, H], "v": [N, H]}` if tied, else nothing."""
        return self._init_biases(rng, dims) if self.tied else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"w": [D, N, H]}`, and u and v if not tied."""
        shape = (dims.embed_dim, dims.num_heads, dims.head_dim)
        init = jax.nn.initializers.variance_scaling(
            1.0, "fan_in", "truncated_normal", in_axis=0, out_axis=(1, 2)
        )
        rng_w, rng_biases = jax.random.split(rng)
        biases = {} if self.tied else self._init_biases(rng_biases, dims)
        return {"w": init(rng_w, shape, jnp.float32)} | biases

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns parameters, and projected offsets where a table of them serves.

        The row of offset r is `r - first_offset`; offsets are those of indices under a
        table of distances.
        """
        params = {**shared, **layer}
        if in_order(query, key) and (query.length > 1 or key.distances is not None):
            offsets = offsets_in_order(query, key)
            first = first_offset(query, key) + 1 - query.length
        elif key.distances is not None:
            offsets = signed_offsets(key.distances)
            first = jnp.full((1,), 1 - key.distances.shape[1], jnp.int32)
        elif self.clamp is not None:
            offsets = jnp.arange(-self.clamp, self.clamp + 1, dtype=jnp.int32)[None]
            first = jnp.full((1,), -self.clamp, jnp.int32)
        else:
            return params
        waves = self._sinusoids(offsets, dims.embed_dim)
        table = jnp.einsum("bmd,dnh->bmnh", waves, params["w"])
        return params | {"table": table, "first_offset": first.astype(jnp.int32)}

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries with u, and with v (or what v's make of a position)."""
        content, place = (
            q + params[name].astype(q.dtype)[None, None] for name in ("u", "v")
        )
        if "table" in params:
            return content, Apart(place)
        waves = jnp.einsum(
            "btnh,dnh->btnd",
            place,
            params["w"].astype(q.dtype),
            preferred_element_type=jnp.float32,
        )
        sine, cosine = self._sines(query, waves.shape[-1])
        ws, wc = jnp.split(waves, 2, axis=-1)
        ws = ws if self.sign == "query_minus_key" else -ws
        place = jnp.concatenate(
            [ws * sine + wc * cosine, wc * sine - ws * cosine], axis=-1
        )
        return content, Apart(place.astype(q.dtype))

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns keys, and cosines and sines of their positions where used."""
        if "table" in params:
            return (k,)
        sine, cosine = self._sines(key, params["w"].shape[0])
        waves = jnp.concatenate([cosine, sine], axis=-1).astype(k.dtype)
        return k, Apart(jnp.broadcast_to(waves, (k.shape[0], *waves.shape[1:])))

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns content terms plus position terms, unscaled."""
        content, place = dot_product(q[0], k[0]), q[-1].numbers
        if "table" not in params:
            return content + dot_product(place, k[-1].numbers)
        if in_order(query, key):
            return content + _shifted(params, place, query, key)
        return content + _gathered(params, place, query, key)

    def _init_biases(self, rng, dims):
        shape = (dims.num_heads, dims.head_dim)
        rngs = dict(zip("uv", jax.random.split(rng), strict=True))
        return {
            name: self.init_std * jax.random.normal(one, shape, jnp.float32)
            for name, one in rngs.items()
        }

    def _frequencies(self, width):
        return frequencies(width, self.max_wavelength)

    def _sinusoids(self, offsets, width):
        """Returns R of offsets, key minus query, in this encoding's sign."""
        if self.clamp is not None:
            offsets = jnp.clip(offsets, -self.clamp, self.clamp)
        distance = -offsets if self.sign == "query_minus_key" else offsets
        return sinusoids(distance, self._frequencies(width))

    def _sines(self, where, width):
        """Returns sines and cosines `[B, L, 1, D / 2]`: one head serves all."""
        both = sines_and_cosines(where.positions, self._frequencies(width))
        return tuple(wave[:, :, None] for wave in both)


def _shifted(params, q, query, key) -> Logits:
    size = query.length + key.length - 1
    start = first_offset(query, key).astype(jnp.int32) + 1 - query.length
    # A table of offsets up to the clamp may be shorter than the block's offsets.
    rows = rows_from(
        params["table"].astype(q.dtype),
        start - params["first_offset"],
        size,
        outside="edges",
    )
    return against_offsets(q, rows, key.length)


def _gathered(params, q, query, key) -> Logits:
    table, first = params["table"].astype(q.dtype), params["first_offset"]
    if key.distances is not None:
        offset = key.index[:, None, :] - query.index[:, :, None]
    else:
        offset = relative_positions(query, key)
        if not jnp.issubdtype(offset.dtype, jnp.integer):
            raise ValueError(
                f"clamp needs integer positions, got {offset.dtype}; leave clamp None."
            )
    row = jnp.clip(offset - first[:, None, None], 0, table.shape[1] - 1)
    lead = "b" if table.shape[0] > 1 else ""
    by_offset = jnp.einsum(
        f"btnh,{lead}mnh->bntm",
        q,
        table if lead else table[0],
        preferred_element_type=jnp.float32,
    )
    row = jnp.broadcast_to(row[:, None], (*by_offset.shape[:3], key.length))
    return jnp.take_along_axis(by_offset, row, axis=-1)
