"""PaTH: positions as a product of reflections that the tokens between choose.

Every token brings a generalized Householder matrix; a key is seen through the product
of those between it and the query. The transformation depends on content, so a head can
track state along the way, which no function of the offset can.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.convolution import causal_convolution
from ropejax.encodings.reflections import reflect_along
from ropejax.encodings.sequence_order import (
    in_sequence,
    in_storage,
    without_padding,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Bool, Float, Logits, Params, Rng

_TAPS = 3


@dataclasses.dataclass(frozen=True)
class PaTH(Encoding):
    """Replaces the product by one through the reflections of the tokens between.

    `q_i^T (H_i ... H_{j+1}) k_j`, inside the scale, with `H_t = I - beta_t w_t w_t^T`,
    `beta_t = 2 sigmoid(b . x_t + c)`, and w_t the unit vector along
    `silu(conv(U x)_t)`, conv a causal convolution over 3 tokens, channel by channel, x
    the layer's input. Query heads share the reflections of their key head.

    All tokens between count, by index, whether the mask shows them or not; padding
    does not. In decoding, the state is the convolution's past. Index must go on through
    a packed row: one that repeats in it is refused, or gives NaN if it is traced.

    Attributes:
        rank: rank of U; 0 for a full matrix.

    Raises:
        ValueError: if the rank is negative.

    References:
        Yang et al., 2025, arXiv:2505.16381;
        fla-org/flash-linear-attention@27289fc, `fla/layers/path_attn.py`.

    Departures:
        The official layer uses rank 32 with as many key heads as query heads, and a
        full matrix otherwise; here the rank is a setting. Unit vectors stay float32,
        where it rounds them to float16. Its optional forget gate is `Forgetting`, whose
        sum of log gates is added after the scale; there the scale multiplies the gates
        too, `(product + gates) / sqrt(H)`.
    """

    rank: int = 32

    title: ClassVar[str] = "PaTH"
    summary: ClassVar[str] = "keys seen through reflections of the tokens between"
    reference: ClassVar[str] = "Yang et al. 2025, arXiv:2505.16381"
    sees_turns: ClassVar[bool] = True
    causal_only: ClassVar[bool] = True
    has_carry: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.rank < 0:
            raise ValueError(f"rank must not be negative, got {self.rank}.")

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns U as `{"down", "up"}` or `{"up"}`, `{"taps"}`, and `{"b", "c"}`."""
        rng_down, rng_up, rng_taps, rng_b = jax.random.split(rng, 4)
        init = jax.nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
        width = dims.num_kv_heads * dims.head_dim
        rank = self.rank or dims.embed_dim
        params = {
            "up": init(rng_up, (rank, width), jnp.float32),
            "taps": jax.random.uniform(
                rng_taps, (_TAPS, width), jnp.float32, -(_TAPS**-0.5), _TAPS**-0.5
            ),
            "b": init(rng_b, (dims.embed_dim, dims.num_kv_heads), jnp.float32),
            "c": jnp.zeros(dims.num_kv_heads, jnp.float32),
        }
        if self.rank:
            params["down"] = init(rng_down, (dims.embed_dim, rank), jnp.float32)
        return params

    def key_features(self, params, x, k, key: Tokens, state=None):
        """Returns `w [B, S, K, H]`, `beta [B, S, K]`, and the convolution's past.

        That is the last inputs `[B, 2, K * H]`, and their segments if there are any.
        """
        x = without_padding(x, key)
        u = x @ params["down"].astype(x.dtype) if self.rank else x
        u = (u @ params["up"].astype(x.dtype)).astype(jnp.float32)
        w, state = causal_convolution(u, params["taps"], key, self.title, state)
        w = jax.nn.silu(w).reshape(*w.shape[:2], *k.shape[2:])
        w = w * jax.lax.rsqrt(jnp.square(w).sum(-1, keepdims=True) + 1e-6)
        gate = x.astype(jnp.float32) @ params["b"] + params["c"][None, None]
        beta = 2 * jax.nn.sigmoid(gate)
        if key.valid is not None:
            beta = jnp.where(key.valid[..., None], beta, 0.0)
        return (w, beta), state

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns zeros: the product is made in `carry`."""
        batch, length, heads, _ = q[0].shape
        return jnp.zeros((batch, heads, length, k[0].shape[1]), jnp.float32)

    def init_carry(
        self, params: Params, q: Views, query: Tokens
    ) -> Float[Array, "B N T H"]:
        """Returns the queries, not yet reflected."""
        return jnp.swapaxes(q[0], 1, 2).astype(jnp.float32)

    def carry(
        self,
        params: Params,
        state: Any,
        logits: Logits,
        q: Views,
        k: Views,
        query: Tokens,
        key: Tokens,
        visible: Bool[Array, "#B #N T S"],
        scale: float | Array,
    ) -> tuple[Any, Logits]:
        """Adds reflected queries against keys, and reflects queries past the block."""
        w, beta = key.features
        if key.valid is not None:
            beta = jnp.where(key.valid[..., None], beta, 0.0)
        heads = q[0].shape[2]
        k, w, beta = (
            in_sequence(_by_query_head(part, heads), key, axis=2)
            for part in (k[0], w, beta[..., None])
        )
        index = in_sequence(key.index, key, axis=1)
        passed = index[:, None, :] <= query.index[:, :, None]
        state, products = reflect_along(state, k, w, beta[..., 0], passed)
        return state, logits + scale * in_storage(products, key, axis=3)


def _by_query_head(part: Array, heads: int) -> Float[Array, "B N S F"]:
    part = jnp.repeat(part.astype(jnp.float32), heads // part.shape[2], axis=2)
    return jnp.swapaxes(part, 1, 2)
