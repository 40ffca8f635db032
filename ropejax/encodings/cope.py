"""CoPE: positions that count what matters, instead of tokens.

A gate of each query and key says whether the key counts. Summed from the query back to
the key, gates give a fractional position, at which a learned vector is interpolated; so
a query can ask for the third last sentence as well as for the third last token.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Apart, Dims, Encoding, Views
from ropejax.encodings.choices import not_negative, positive
from ropejax.encodings.heads import dot_product
from ropejax.encodings.sequence_order import (
    in_sequence,
    in_storage,
    without_padding,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Bool, Float, Logits, Params, Rng


@dataclasses.dataclass(frozen=True)
class CoPE(Encoding):
    """Adds queries against vectors of contextual positions to the scaled logits.

    `g_ij = sigmoid(logit_ij)`, `p_ij = min(sum of g_it for j <= t <= i, M - 1)`, and
    `logit_ij + q_i . e(p_ij)`, with e linear between M learned vectors. Keys that are
    not visible count as zero.

    Attributes:
        num_positions: number of vectors, M.
        scaled: True to multiply `q . e` by the attention's scale, too.
        gate_keys: True for gates `sigmoid(scale q_i . c_j)` with keys c of their own,
            projected from the layer's input.
        init_std: standard deviation of the vectors at the start; the official code
            starts at zero.

    Raises:
        ValueError: if num_positions is not positive, or init_std is negative.

    References:
        Golovneva et al., 2024, arXiv:2405.18719;
        facebookresearch/RAM@e6f051f, `ContextPosSelfAttn`. The number of positions is
        not fixed by the paper; 64 is this project's choice.

    Departures:
        `scaled=False` follows the paper's listing; the official code scales by default.
    """

    num_positions: int = 64
    scaled: bool = False
    gate_keys: bool = False
    init_std: float = 0.0

    title: ClassVar[str] = "CoPE"
    summary: ClassVar[str] = "vectors of positions that count gated tokens"
    reference: ClassVar[str] = "Golovneva et al. 2024, arXiv:2405.18719"
    sees_turns: ClassVar[bool] = True
    causal_only: ClassVar[bool] = True
    has_carry: ClassVar[bool] = True
    carry_skips_hidden: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(num_positions=self.num_positions)
        not_negative(init_std=self.init_std)

    @property
    def places_queries(self) -> bool:
        """False: what it makes of queries stands beside them."""
        return False

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"vectors": [M, H]}`, and `{"gate_keys": [D, K, H]}` if asked."""
        rng_vectors, rng_keys = jax.random.split(rng)
        shape = (self.num_positions, dims.head_dim)
        vectors = jax.random.normal(rng_vectors, shape, jnp.float32)
        params = {"vectors": self.init_std * vectors}
        if self.gate_keys:
            init = jax.nn.initializers.variance_scaling(
                1.0, "fan_in", "truncated_normal", in_axis=0, out_axis=(1, 2)
            )
            shape = (dims.embed_dim, dims.num_kv_heads, dims.head_dim)
            params["gate_keys"] = init(rng_keys, shape, jnp.float32)
        return params

    def key_features(self, params, x, k, key: Tokens, state=None):
        """Returns the gates' own keys `[B, S, K, H]`, if any; there is no state."""
        if not self.gate_keys:
            return None, None
        weights = params["gate_keys"].astype(x.dtype)
        return jnp.einsum("bsd,dkh->bskh", without_padding(x, key), weights), None

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries, and queries against the vectors of whole positions."""
        at_whole = jnp.einsum(
            "btnh,mh->btnm",
            q,
            params["vectors"].astype(q.dtype),
            preferred_element_type=jnp.float32,
        )
        return q, Apart(at_whole)

    def init_carry(
        self, params: Params, q: Views, query: Tokens
    ) -> Float[Array, "B N T"]:
        """Returns zero: nothing counted yet."""
        batch, length, heads, _ = q[0].shape
        return jnp.zeros((batch, heads, length), jnp.float32)

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
        """Counts gates from the query back, and adds the vectors of the counts."""
        inputs = dot_product(q[0], key.features) * scale if self.gate_keys else logits
        gates = jnp.where(visible, jax.nn.sigmoid(inputs), 0.0)
        ordered = in_sequence(gates, key, axis=3)
        counted = jnp.flip(jnp.cumsum(jnp.flip(ordered, -1), -1), -1)
        position = state[..., None] + in_storage(counted, key, axis=3)
        position = jnp.minimum(position, self.num_positions - 1)
        at_whole = jnp.swapaxes(q[-1].numbers, 1, 2)
        added = interpolated(at_whole, position) * (scale if self.scaled else 1.0)
        return state + gates.sum(-1), logits + added


def interpolated(
    at_whole: Float[Array, "B N T M"], position: Float[Array, "B N T S"]
) -> Float[Array, "B N T S"]:
    """Returns numbers at fractional positions, linear between whole ones.

    Args:
        at_whole: numbers at the positions 0 .. M - 1.
        position: where to read, in 0 .. M - 1.
    """
    below = jnp.floor(position)
    part = position - below
    low = below.astype(jnp.int32)
    high = jnp.minimum(low + 1, at_whole.shape[-1] - 1)
    left, right = (jnp.take_along_axis(at_whole, at, axis=-1) for at in (low, high))
    return left * (1 - part) + right * part
