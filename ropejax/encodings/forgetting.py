"""Forgetting: each token lets go of a part of everything before it.

A gate in 0 .. 1 of every token and head, multiplied up between key and query, scales
the key's weight. In logits that is a bias, the sum of log gates, which is the
difference of two cumulative sums; so decay depends on content, and nothing on position.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import not_negative, positive
from ropejax.encodings.sequence_order import (
    accurate_cumsum,
    add_pairs,
    in_one_order,
    in_storage,
    without_padding,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Rng


@dataclasses.dataclass(frozen=True)
class Forgetting(Encoding):
    """Adds the log gates of the tokens after the key, up to the query.

    `sum of log sigmoid(w_h . x_t + b_h), j < t <= i`, x the layer's input: the
    forget gate of FoX. With all gates open it is plain attention.

    Padding neither forgets nor is counted. In decoding, the state is the sum so far.
    Index must go on through a packed row: one that repeats in it is refused, or gives
    NaN if it is traced.

    Attributes:
        from_content: True for gates of the token's content; False for one learned gate
            a head, which forgets over `shortest` to `longest` tokens at the start.
        shortest: least decay time, in tokens, of constant gates at the start.
        longest: largest decay time, in tokens, of constant gates at the start.
        init_std: standard deviation of w at the start.
        initial_bias: b at the start, of gates of content. At 0 each token lets go of
            half of what was before it; at 5, of 1/150, so that a layer starts close to
            plain attention over hundreds of tokens (`Wall` starts at 8).

    Raises:
        ValueError: if a decay time is not positive, init_std is negative, or constant
            gates, which start at decay times, are given an initial bias.

    References:
        Lin et al., 2025, arXiv:2503.02130;
        zhixuan-lin/forgetting-transformer@246d5e3, `ForgettingAttentionLayer`, whose
        gates of content start at a bias of 0, as here by default.

    Departures:
        The gate alone: what else the paper's "Pro" block has are settings of a model,
        `ropejax.nn.output_gates.SigmoidGate(norm=True)`, `token_shifts.KVShift()` and
        `query_key_norm.HeadRMSNorm()`.
    """

    from_content: bool = True
    shortest: float = 1.0
    longest: float = 1024.0
    init_std: float = 0.02
    initial_bias: float = 0.0

    title: ClassVar[str] = "FoX forget gate"
    summary: ClassVar[str] = "keys decay by gates of the tokens that followed them"
    reference: ClassVar[str] = "Lin et al. 2025, arXiv:2503.02130"
    causal_only: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(shortest=self.shortest, longest=self.longest)
        not_negative(init_std=self.init_std)
        if self.initial_bias and not self.from_content:
            raise ValueError(
                f"initial_bias={self.initial_bias} is of gates of content, but "
                "constant gates (from_content=False) start at decay times; leave it at "
                "0, and set shortest and longest."
            )

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"w": [D, N], "b": [N]}`, or `{"b"}` for constant gates."""
        if not self.from_content:
            heads = jnp.geomspace(self.shortest, self.longest, dims.num_heads)
            return {"b": -jnp.log(jnp.expm1(1 / heads.astype(jnp.float32)))}
        shape = (dims.embed_dim, dims.num_heads)
        return {
            "w": self.init_std * jax.random.normal(rng, shape, jnp.float32),
            "b": jnp.full(dims.num_heads, self.initial_bias, jnp.float32),
        }

    def log_gates(
        self, params: Params, x: Float[Array, "B L D"]
    ) -> Float[Array, "B L N"]:
        """Returns the log of each token's gates, at most 0, float32."""
        return jax.nn.log_sigmoid(self.gate_inputs(params, x))

    def gate_inputs(
        self, params: Params, x: Float[Array, "B L D"]
    ) -> Float[Array, "B L N"]:
        """Returns `w . x + b`, float32."""
        bias = params["b"].astype(jnp.float32)[None, None]
        if not self.from_content:
            return jnp.broadcast_to(bias, (*x.shape[:2], bias.shape[-1]))
        weights = params["w"].astype(jnp.float32)
        return jnp.einsum("bld,dn->bln", x.astype(jnp.float32), weights) + bias

    def query_features(self, params, x, q, query: Tokens, state=None):
        """Returns the sum of log gates up to each query, two numbers `[B, T, N]`."""
        return self._sums(params, x, query, state)[0]

    def key_features(self, params, x, k, key: Tokens, state=None):
        """Returns the sum of log gates up to each key, and the last sum as state."""
        return self._sums(params, x, key, state)

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns the sum at the query minus the sum at the key."""
        later, earlier = (
            [jnp.swapaxes(part, 1, 2) for part in side.features]
            for side in (query, key)
        )
        high, low = (
            q[..., None] - k[:, :, None, :] for q, k in zip(later, earlier, strict=True)
        )
        return high + low

    def _sums(self, params, x, where, state):
        gates = self.log_gates(params, without_padding(x, where))
        if where.valid is not None:
            gates = jnp.where(where.valid[..., None], gates, 0.0)
        sums = accurate_cumsum(in_one_order(gates, where, self.title))
        if state is not None:
            sums = add_pairs(tuple(total[:, None] for total in state), sums)
        last = tuple(part[:, -1] for part in sums)
        return tuple(in_storage(part, where, axis=1) for part in sums), last


@dataclasses.dataclass(frozen=True)
class CABLE(Forgetting):
    """Adds the difference of cumulative biases that tokens contribute.

    `B_i - B_j`, `B_i = -sum of softplus(w_h . x_t + b_h), t <= i`: the forget gate of
    FoX with the opposite sign of its input. So it is with an `initial_bias` below 0
    that less is forgotten at the start.

    References:
        Veisi et al., 2025, arXiv:2503.08067; axiomlab/Cable@2d7410b, `src/Cable.py`,
        where b starts at 0.

    Departures:
        The released code divides queries and keys by 1, so has no 1 / sqrt(H); pass
        `scale=1` to attention for that model.
    """

    title: ClassVar[str] = "CABLE"
    summary: ClassVar[str] = "keys decay by learned contributions of later tokens"
    reference: ClassVar[str] = "Veisi et al. 2025, arXiv:2503.08067"

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns what FoX has, b turned where it follows from a decay time."""
        params = super().init_layer(rng, dims)
        return params if self.from_content else {"b": -params["b"]}

    def log_gates(
        self, params: Params, x: Float[Array, "B L D"]
    ) -> Float[Array, "B L N"]:
        """Returns minus the softplus of the gates' inputs, float32."""
        return -jax.nn.softplus(self.gate_inputs(params, x))
