"""Multi-head self-attention as a thin Flax module."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings import Dims, Encoding
from ropejax.nn.parameters import as_arrays, projection_init
from ropejax.nn.self_attention import SelfAttention
from ropejax.nn.weighting import Weighting


class MultiHeadAttention(SelfAttention):
    """Projects, attends under an encoding, projects back; no biases in projections.

    `out = W_o concat_heads(attend(norm_q(W_q x), norm_k(W_k x), W_v x))`, where the
    norms of queries and keys are the identity by default.

    Args:
        dims: the model's sizes.
        encoding: settings of the position encoding.
        dtype: dtype of the computation; parameters stay float32.
        weighting: how queries and keys become weights; by a softmax if None.
        rngs: keys for the initial parameters.
    """

    def __init__(
        self,
        dims: Dims,
        encoding: Encoding,
        *,
        dtype=jnp.float32,
        weighting: Weighting | None = None,
        rngs: nnx.Rngs,
    ):
        def projection(heads: int) -> nnx.LinearGeneral:
            return nnx.LinearGeneral(
                dims.embed_dim,
                (heads, dims.head_dim),
                use_bias=False,
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
            use_bias=False,
            kernel_init=projection_init,
            dtype=dtype,
            rngs=rngs,
        )
        super().__init__(dims, encoding, weighting=weighting, rngs=rngs)

    def queries(self, x: Float[Array, "B T D"]) -> Float[Array, "B T N H"]:
        """Returns queries, normalized if they are to be, before the encoding."""
        return self.weighting.queries(as_arrays(self.weighting_params), self.query(x))

    def keys(self, x: Float[Array, "B S D"]) -> Float[Array, "B S K H"]:
        """Returns keys, normalized if they are to be, before the encoding."""
        return self.weighting.keys(as_arrays(self.weighting_params), self.key(x))

    def values(self, x: Float[Array, "B S D"]) -> Float[Array, "B S K H"]:
        """Returns values, before the encoding."""
        return self.value(x)

    def output(
        self, x: Float[Array, "B T D"], attended: Float[Array, "B T N H"]
    ) -> Float[Array, "B T D"]:
        """Returns heads side by side, projected."""
        return self.out(attended)
