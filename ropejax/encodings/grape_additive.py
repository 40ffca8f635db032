"""Additive GRAPE: distance penalties with gates learned on tokens or on the path."""

import dataclasses
import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.encodings.alibi import alibi_slopes
from ropejax.encodings.angles import pair_angles
from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.choices import check_choice
from ropejax.encodings.heads import per_head
from ropejax.encodings.rotation import rotate
from ropejax.encodings.sequence_order import (
    in_sequence,
    in_storage,
    without_padding,
)
from ropejax.tokens import Tokens, relative_positions
from ropejax.typing import Logits, Params, Rng

GATES = ("key", "query", "both")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrapeA(Encoding):
    """Additive GRAPE: a distance penalty that keys, queries or both open and close.

    Bias = `-slope_h softplus(w_h) gate (i - j)`, with ALiBi's slopes and the gate
    `softplus(u_h . k_j / sqrt(H))` ("key"), the same of a query ("query"), or the sum
    of both; u has length 1 and `softplus(w)` starts at 1.

    Attributes:
        gate: "key", "query" or "both".

    References:
        Zhang et al. (2025), GRAPE, arXiv:2512.07805; the official key-gated code
        (`KeyGatedAdditiveBias`); the other gates as secondary code states them.

    Departures:
        None known; the paper itself was not read.
    """

    gate: Literal["key", "query", "both"] = "key"

    title: ClassVar[str] = "GRAPE-A"
    summary: ClassVar[str] = "ALiBi's penalty with learned gates on keys or queries"
    reference: ClassVar[str] = "Zhang et al. 2025, arXiv:2512.07805"
    causal_only: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        check_choice("gate", self.gate, GATES)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `strength [N]`, and `key_gate`, `query_gate [N, H]` as used."""
        one = math.log(math.expm1(1.0))  # whose softplus is 1
        params = {"strength": jnp.full((dims.num_heads,), one, jnp.float32)}
        shape = (dims.num_heads, dims.head_dim)
        sides = zip(("key", "query"), jax.random.split(rng), strict=True)
        for side, rng_gate in sides:
            if self.gate in (side, "both"):
                gate = jax.random.normal(rng_gate, shape, jnp.float32)
                params[f"{side}_gate"] = gate / math.sqrt(dims.head_dim)
        return params

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns slopes of each head and gates of length 1."""
        slopes = jnp.asarray(alibi_slopes(dims.num_heads), jnp.float32)
        params = {"slopes": slopes * jax.nn.softplus(layer["strength"])}
        for name in ("key_gate", "query_gate"):
            if name in layer:
                length = jnp.linalg.norm(layer[name], axis=-1, keepdims=True)
                params[name] = layer[name] / jnp.maximum(length, 1e-6)
        return params

    def query_features(
        self, params, x, q, query, state=None
    ) -> Float[Array, "B T N"] | None:
        """Returns the queries' gates."""
        return _gate(params.get("query_gate"), q, query)

    def key_features(
        self, params, x, k, key, state=None
    ) -> tuple[Float[Array, "B S N"] | None, None]:
        """Returns the keys' gates; later tokens need nothing of them."""
        return _gate(params.get("key_gate"), k, key), None

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns minus slope times gate times distance, 0 for later keys."""
        distance = jnp.maximum(-relative_positions(query, key), 0).astype(jnp.float32)
        gate = 0.0
        if query.features is not None:
            gate = gate + jnp.swapaxes(query.features, 1, 2)[..., None]
        if key.features is not None:
            gate = gate + jnp.swapaxes(key.features, 1, 2)[:, :, None]
        return -per_head(params["slopes"]) * gate * distance[:, None]


def _gate(
    vectors: Float[Array, "N H"] | None, x: Float[Array, "B L K H"], where: Tokens
) -> Float[Array, "B L N"] | None:
    if vectors is None:
        return None
    heads, width = vectors.shape
    x = without_padding(x, where).astype(jnp.float32)
    x = jnp.repeat(x, heads // x.shape[2], axis=2)
    return jax.nn.softplus(jnp.einsum("blnh,nh->bln", x, vectors) / math.sqrt(width))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrapeAP(Encoding):
    """Path-integral GRAPE: gates summed over the tokens from key to query.

    Bias = `slope_h sum_{t = j + 1 .. i} log sigmoid(p_i . R(t) p_t / P)` over visible
    t, where p are projections of the hidden states of unit root mean square, P wide, R
    turns all pairs by one radian a token, and slopes are ALiBi's.

    Attributes:
        width: width of p, even; the head width if None.

    References:
        Zhang et al. (2025), GRAPE, arXiv:2512.07805; model-architectures/GRAPE,
        `llama-mha-grape-a-pi.py`.

    Departures:
        As in the code, only p_t is rotated, so the absolute position t enters and
        shifting all positions changes the result; the paper itself was not read. Tying
        p to queries, keys or values is not offered.
    """

    width: int | None = None

    title: ClassVar[str] = "GRAPE-AP"
    summary: ClassVar[str] = "learned gates summed over the path from key to query"
    reference: ClassVar[str] = "Zhang et al. 2025, arXiv:2512.07805"
    causal_only: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False
    has_carry: ClassVar[bool] = True
    carry_skips_hidden: ClassVar[bool] = True

    def check(self, dims: Dims) -> None:
        """Raises ValueError if the width is not even."""
        width = self.width or dims.head_dim
        if width < 2 or width % 2:
            raise ValueError(f"{self.title} rotates pairs: {width=} must be even.")

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the projection `{"path": [D, N, P]}`."""
        self.check(dims)
        shape = (dims.embed_dim, dims.num_heads, self.width or dims.head_dim)
        init = jax.nn.initializers.variance_scaling(
            1.0, "fan_in", "truncated_normal", in_axis=0, out_axis=(1, 2)
        )
        return {"path": init(rng, shape, jnp.float32)}

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the projection and ALiBi's slopes."""
        slopes = jnp.asarray(alibi_slopes(dims.num_heads), jnp.float32)
        return {**layer, "slopes": slopes}

    def query_features(
        self, params, x, q, query, state=None
    ) -> Float[Array, "B T N P"]:
        """Returns normalized projections of the queries' tokens."""
        return _normalized(params, without_padding(x, query))

    def key_features(
        self, params, x, k, key, state=None
    ) -> tuple[Float[Array, "B S N P"], None]:
        """Returns normalized projections of the keys' tokens, rotated."""
        if key.positions.ndim != 2:
            raise ValueError(
                f"{self.title} takes positions on one axis, got shape "
                f"{key.positions.shape}."
            )
        path = _normalized(params, without_padding(x, key))
        turned = pair_angles(-key.positions[..., None], np.ones(path.shape[-1] // 2))
        return rotate(path, turned), None

    def init_carry(self, params: Params, q: Views, query: Tokens) -> Array:
        """Returns sums over no token, `[B, N, T]`."""
        batch, length, heads, _ = q[0].shape
        return jnp.zeros((batch, heads, length), jnp.float32)

    def carry(
        self, params, state, logits, q, k, query, key, visible, scale
    ) -> tuple[Any, Logits]:
        """Adds to each logit the gates of the tokens between, and sums them up."""
        gates = jnp.einsum("btnp,bsnp->bnts", query.features, key.features)
        gates = jax.nn.log_sigmoid(gates / query.features.shape[-1])
        gates = jnp.where(visible, gates * per_head(params["slopes"]), 0.0)
        ordered = in_sequence(gates, key, axis=3)
        after = jnp.flip(jnp.cumsum(jnp.flip(ordered, -1), -1), -1) - ordered
        logits = logits + state[..., None] + in_storage(after, key, axis=3)
        return state + gates.sum(-1), logits


def _normalized(params: Params, x: Array) -> Float[Array, "B L N P"]:
    x, weights = x.astype(jnp.float32), params["path"].astype(jnp.float32)
    path = jnp.einsum("bld,dnp->blnp", x, weights)
    return path * jax.lax.rsqrt(jnp.mean(path**2, -1, keepdims=True) + 1e-7)
