"""Wall attention: every channel of a head forgets at a pace of its own.

As in the forget gate of FoX, each token lets go of a part of what came before it; but
here of every channel apart, inside the product of query and key. A head can keep what
some channels say of far tokens, and drop the rest; gates that depend on content take
the place of positions.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.centred import about_centres, exponent_limit
from ropejax.encodings.choices import not_negative
from ropejax.encodings.heads import dot_product
from ropejax.encodings.sequence_order import (
    accurate_cumsum,
    add_pairs,
    in_one_order,
    in_storage,
    without_padding,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Logits, Params, Rng

Decay = tuple[Float[Array, "B L N H"], Float[Array, "B L N H"]]
"""How far each channel has decayed, in nats, growing with tokens: high plus low."""

_CHUNKS = (128, 16)


def decayed_product(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    query: Decay,
    key: Decay,
) -> Logits:
    """Returns `sum_c q_c k_c exp(d_c(key) - d_c(query))`, for keys up to the query.

    Where a block's queries have decayed about equally this is one dot product, about
    their middle; otherwise it is worked out in chunks, and where even those spread too
    far, query by query. Nothing overflows, whatever the gates.

    Args:
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`.
        query: how far channels have decayed at the queries, each `[B, T, N, H]`.
        key: at the keys, each `[B, S, N, H]`.

    Returns:
        Logits `[B, N, T, S]`; meaningless for keys after their query.
    """
    limit = exponent_limit(q.dtype)
    k = jnp.repeat(k, q.shape[2] // k.shape[2], axis=2)

    def ends(rows) -> tuple[Array, Array]:
        high = jax.lax.stop_gradient(rows[1])
        return high.min(1, keepdims=True), high.max(1, keepdims=True)

    def narrow(rows) -> Array:
        first, last = ends(rows)
        return (last - first).max() / 2 <= limit

    def at_once(rows) -> Logits:
        q, high, low = rows
        first, last = ends(rows)
        centre = (first + last) / 2
        since = jnp.clip((high - centre) + low, -limit, limit)
        before = jnp.minimum((key[0] - centre) + key[1], limit)
        return dot_product(_times_exp(q, -since), _times_exp(k, before))

    def one(row) -> Array:
        q, high, low = (part[:, None] for part in row)
        past = (high - key[0]) + (low - key[1])
        # Not a maximum, which halves the gradient of channels that do not decay.
        past = jnp.where(past >= 0, past, 0.0)
        return dot_product(q, _times_exp(k, -past))[:, :, 0]

    return about_centres((q, *query), narrow, at_once, one, chunks=_CHUNKS)


def _times_exp(x: Array, exponent: Array) -> Array:
    return (x.astype(jnp.float32) * jnp.exp(exponent)).astype(x.dtype)


@dataclasses.dataclass(frozen=True)
class Wall(Encoding):
    """Multiplies channels of the product by their gates between key and query.

    `sum_c q_ic k_jc exp(sum of log sigmoid(w_hc . x_t + b_hc), j < t <= i)`, inside the
    scale, x the layer's input; each query head has gates of its own.

    Padding neither forgets nor is counted. In decoding, the state is the sums so far.
    Index must go on through a packed row: one that repeats in it is refused, or gives
    NaN if it is traced.
    Each key keeps two numbers a channel of every query head.

    Attributes:
        initial_bias: b at the start; at 8, all but 1/3000 is kept from token to token.
        init_std: standard deviation of w at the start.

    Raises:
        ValueError: if init_std is negative.

    References:
        Averbuch and Pai (Tilde Research), fla-org/flash-linear-attention@189b286,
        `fla/layers/wall_attn.py`, and its `fla/ops/wall_attn/naive.py`.

    Departures:
        The gates alone: the layer's scalar gate a head is `Forgetting` (with b at 8),
        composed with this; its output gate, norms and sinks are other parts of a model.
    """

    initial_bias: float = 8.0
    init_std: float = 0.02

    title: ClassVar[str] = "Wall attention"
    summary: ClassVar[str] = "every channel decays by gates of the tokens that followed"
    reference: ClassVar[str] = "Averbuch, Pai, fla-org/flash-linear-attention@189b286"
    sees_turns: ClassVar[bool] = True
    causal_only: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        not_negative(init_std=self.init_std)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"w": [D, N, H], "b": [N, H]}`."""
        channels = (dims.num_heads, dims.head_dim)
        shape = (dims.embed_dim, *channels)
        return {
            "w": self.init_std * jax.random.normal(rng, shape, jnp.float32),
            "b": jnp.full(channels, self.initial_bias, jnp.float32),
        }

    def query_features(self, params, x, q, query: Tokens, state=None):
        """Returns how far channels have decayed at each query: a `Decay`."""
        return self._decays(params, x, query, state)[0]

    def key_features(self, params, x, k, key: Tokens, state=None):
        """Returns how far channels have decayed at each key, and at the last."""
        return self._decays(params, x, key, state)

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns the decayed product."""
        return decayed_product(q[0], k[0], query.features, key.features)

    def _decays(self, params, x, where: Tokens, state):
        w, b = (params[name].astype(jnp.float32) for name in "wb")
        x = without_padding(x, where).astype(jnp.float32)
        gates = jnp.einsum("bld,dnh->blnh", x, w) + b[None, None]
        steps = -jax.nn.log_sigmoid(gates)
        if where.valid is not None:
            steps = jnp.where(where.valid[..., None, None], steps, 0.0)
        flat = in_one_order(steps, where, self.title).reshape(*x.shape[:2], -1)
        sums = accurate_cumsum(flat)
        if state is not None:
            sums = add_pairs(tuple(total[:, None] for total in state), sums)
        last = tuple(part[:, -1] for part in sums)
        decays = tuple(
            in_storage(part, where, axis=1).reshape(steps.shape) for part in sums
        )
        return decays, last
