"""Multi-head self-attention as a thin Flax module."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings import Dims, Encoding
from ropejax.nn.output_gates import Ungated
from ropejax.nn.parameters import as_arrays, projection_init
from ropejax.nn.self_attention import SelfAttention
from ropejax.nn.token_shifts import Projections, Unshifted
from ropejax.nn.weighting import Weighting


class MultiHeadAttention(SelfAttention):
    """Projects, attends under an encoding, projects back.

    `out = W_o gate(concat_heads(attend(norm_q(W_q x), norm_k(W_k x), W_v x)))`, where
    norms and gate are the identity by default, projections have biases where they are
    asked for, and those to queries, keys and values may take in the tokens before.

    Args:
        dims: the model's sizes.
        encoding: settings of the position encoding.
        dtype: dtype of the computation; parameters stay float32.
        weighting: how queries and keys become weights; by a softmax if None.
        token_shift: what projections take from the tokens before; nothing if None.
        output_gate: what gates heads' outputs before W_o; nothing if None.
        qkv_bias: whether W_q, W_k and W_v have biases (Qwen2).
        out_bias: whether W_o has one.
        rngs: keys for the initial parameters.
    """

    def __init__(
        self,
        dims: Dims,
        encoding: Encoding,
        *,
        dtype=jnp.float32,
        weighting: Weighting | None = None,
        token_shift: Unshifted | None = None,
        output_gate: Ungated | None = None,
        qkv_bias: bool = False,
        out_bias: bool = False,
        rngs: nnx.Rngs,
    ):
        def projection(heads: int) -> nnx.LinearGeneral:
            return nnx.LinearGeneral(
                dims.embed_dim,
                (heads, dims.head_dim),
                use_bias=qkv_bias,
                kernel_init=projection_init,
                dtype=dtype,
                rngs=rngs,
            )

        self.query = projection(dims.num_heads)
        self.key = projection(dims.num_kv_heads)
        self.value = projection(dims.num_kv_heads)
        self.out = nnx.LinearGeneral(
            (dims.num_heads, dims.head_dim),
            dims.embed_dim,
            axis=(-2, -1),
            use_bias=out_bias,
            kernel_init=projection_init,
            dtype=dtype,
            rngs=rngs,
        )
        super().__init__(
            dims,
            encoding,
            weighting=weighting,
            token_shift=token_shift,
            output_gate=output_gate,
            rngs=rngs,
        )

    def projections(self, x: Float[Array, "B L D"]) -> Projections:
        """Returns queries, keys and values of each token alone."""
        return Projections(self.query(x), self.key(x), self.value(x))

    def output(
        self, x: Float[Array, "B T D"], attended: Float[Array, "B T N H"]
    ) -> Float[Array, "B T D"]:
        """Returns heads side by side, gated, projected."""
        own = as_arrays(self.output_gate_params)
        return self.out(self.output_gate.gated(own, x, attended))
