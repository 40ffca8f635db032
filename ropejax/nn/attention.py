"""Multi-head self-attention as a thin Flax module around `ropejax.attention.attend`."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.attention import SequenceParallel, attend, attention_weights
from ropejax.encodings import Dims, Encoding
from ropejax.nn.parameters import as_arrays, as_parameters, projection_init
from ropejax.tokens import Tokens
from ropejax.typing import Params


class Projected(NamedTuple):
    """Hidden states as an attention engine takes them.

    Attributes:
        q: queries, `[B, L, N, H]`.
        k: keys, `[B, L, K, H]`.
        v: values, `[B, L, K, H]`.
        params: the encoding's, prepared.
        query: where the queries are, with the encoding's features.
        key: where the keys are, with the encoding's features.
    """

    q: Float[Array, "B L N H"]
    k: Float[Array, "B L K H"]
    v: Float[Array, "B L K H"]
    params: Params
    query: Tokens
    key: Tokens


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
        implementation: str | SequenceParallel = "auto",
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
        made = self.project(x, where, shared=shared)
        out = attend(
            made.q,
            made.k,
            made.v,
            encoding=self.encoding,
            params=made.params,
            query=made.query,
            key=made.key,
            mask=mask,
            implementation=implementation,
        )
        return self.out(out)

    def weights(
        self, x: Float[Array, "B L D"], where: Tokens, *, shared: Params, mask=None
    ) -> Float[Array, "B N L L"]:
        """Returns the weights with which tokens attend to each other, `[B, N, L, L]`.

        Args:
            x: hidden states, `[B, L, D]`.
            where: where the tokens are.
            shared: the encoding's parameters that all layers share.
            mask: a mask of `ropejax.masks`, or None.
        """
        made = self.project(x, where, shared=shared)
        return attention_weights(
            made.q,
            made.k,
            encoding=self.encoding,
            params=made.params,
            query=made.query,
            key=made.key,
            mask=mask,
            scale=1 / math.sqrt(self.dims.head_dim),
        )[0]

    def project(
        self, x: Float[Array, "B L D"], where: Tokens, *, shared: Params
    ) -> Projected:
        """Returns what an attention engine takes, of hidden states."""
        encoding = self.encoding
        own = as_arrays(self.encoding_params)
        params = encoding.prepare(shared, own, where, where, self.dims)
        q, k, v = self.query(x), self.key(x), self.value(x)
        query = where.replace(features=encoding.query_features(params, x, q, where))
        features, _ = encoding.key_features(params, x, k, where)
        return Projected(q, k, v, params, query, where.replace(features=features))
