"""Multi-head self-attention as a thin Flax module around `ropejax.attention.attend`."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.attention import attend
from ropejax.encodings import Dims, Encoding
from ropejax.nn.parameters import as_arrays, as_parameters, projection_init
from ropejax.tokens import Tokens
from ropejax.typing import Params


class MultiHeadAttention(nnx.Module):
    """Projects, attends under an encoding, projects back; no biases in projections.

    `out = W_o concat_heads(attend(W_q x, W_k x, W_v x))`.

    Args:
        dims: the model's sizes.
        encoding: settings of the position encoding.
        dtype: dtype of the computation; parameters stay float32.
        rngs: keys for the initial parameters.
    """

    def __init__(
        self, dims: Dims, encoding: Encoding, *, dtype=jnp.float32, rngs: nnx.Rngs
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

        self.dims = dims
        self.encoding = encoding
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
        self.encoding_params = as_parameters(encoding.init_layer(rngs.params(), dims))

    def __call__(
        self,
        x: Float[Array, "B L D"],
        where: Tokens,
        *,
        shared: Params,
        mask=None,
        implementation: str = "auto",
    ) -> Float[Array, "B L D"]:
        """Attends within a sequence.

        Args:
            x: hidden states, `[B, L, D]`.
            where: where the tokens are.
            shared: the encoding's parameters that all layers share.
            mask: a mask of `ropejax.masks`, or None.
            implementation: which attention engine.

        Returns:
            Hidden states `[B, L, D]`.
        """
        encoding = self.encoding
        own = as_arrays(self.encoding_params)
        params = encoding.prepare(shared, own, where, where, self.dims)
        q, k, v = self.query(x), self.key(x), self.value(x)
        query = where.replace(features=encoding.query_features(params, x, q, where))
        features, _ = encoding.key_features(params, x, k, where)
        out = attend(
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            query=query,
            key=where.replace(features=features),
            mask=mask,
            implementation=implementation,
        )
        return self.out(out)
