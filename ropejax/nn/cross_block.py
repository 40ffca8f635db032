"""One layer of a decoder that looks at an encoder's output."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Float, Int

from ropejax.attention import attend
from ropejax.encodings import Dims, Encoding
from ropejax.nn.attention import MultiHeadAttention
from ropejax.nn.block import Block, BlockSettings
from ropejax.nn.dropout import dropout
from ropejax.nn.parameters import as_arrays
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng

Hidden = Float[Array, "B L D"]


class Remembered(NamedTuple):
    """What cross attention of one layer needs of the encoder's output.

    Attributes:
        k: keys, `[B, S, K, H]`.
        v: values.
        key: where they are, with features.
    """

    k: Float[Array, "B S K H"]
    v: Float[Array, "B S K H"]
    key: Tokens


class CrossAttention(MultiHeadAttention):
    """Attention from a decoder's tokens to an encoder's output."""

    def remember(self, memory: Hidden, where: Tokens, shared: Params) -> Remembered:
        """Projects the encoder's output, once for all queries.

        Args:
            memory: the encoder's output, `[B, S, D]`.
            where: where its tokens are; padding is not valid.
            shared: the encoding's parameters that all layers share.
        """
        params = self._params(shared, where, where)
        own = as_arrays(self.weighting_params)
        k, v = self.weighting.keys(own, self.key(memory)), self.value(memory)
        features, _ = self.encoding.key_features(params, memory, k, where)
        return Remembered(k, v, where.replace(features=features))

    def look(
        self,
        x: Hidden,
        where: Tokens,
        remembered: Remembered,
        *,
        shared: Params,
        implementation: Any = "auto",
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
    ) -> Hidden:
        """Attends to what was remembered.

        Args:
            x: hidden states of the decoder, `[B, T, D]`.
            where: where its tokens are.
            remembered: what `remember` returned.
            shared: the encoding's parameters that all layers share.
            implementation: which attention engine.
            rng: PRNG key for dropout, not that of self-attention; None at evaluation.
            first_row: row of the whole batch with which x starts.
        """
        own, key = as_arrays(self.weighting_params), remembered.key
        q = self.weighting.queries(own, self.query(x))
        params = self._params(shared, where, key)
        features = self.encoding.query_features(params, x, q, where)
        out = attend(
            q,
            remembered.k,
            remembered.v,
            encoding=self.encoding,
            params=params,
            query=where.replace(features=features),
            key=key,
            implementation=implementation,
            **self.how(x, where, key, None),
            **self.weighting.dropping(rng, first_row),
        )
        return self.output(x, out)

    def _params(self, shared, query, key):
        own = as_arrays(self.encoding_params)
        return self.encoding.prepare(shared, own, query, key, self.dims)


class CrossBlock(Block):
    """Self-attention, cross attention and MLP, each with its residual and norm.

    Args:
        dims: the decoder's sizes.
        settings: what all layers have in common.
        encoding: of self-attention.
        cross: encoding of cross attention.
        rngs: keys for the initial parameters.
    """

    def __init__(
        self,
        dims: Dims,
        settings: BlockSettings,
        encoding: Encoding,
        cross: Encoding,
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(dims, settings, encoding, rngs=rngs)
        both_ways = dims._replace(causal=False)
        dtype = settings.dtype
        self.cross = CrossAttention(
            both_ways,
            cross,
            dtype=dtype,
            weighting=settings.weighting,
            output_gate=settings.output_gate,
            qkv_bias=settings.qkv_bias,
            out_bias=settings.out_bias,
            rngs=rngs,
        )
        self.add_norms("cross", dims.embed_dim, rngs=rngs)

    def with_cross(
        self,
        x: Hidden,
        attend: Callable[[Hidden], Hidden],
        look: Callable[[Hidden], Hidden],
        *,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
    ) -> Hidden:
        """Applies the layer around its two attentions.

        Args:
            x: hidden states, `[B, L, D]`.
            attend: self-attention, a function of (normalized) hidden states.
            look: cross attention, likewise.
            rng: PRNG key for dropout; None at evaluation.
            first_row: row of the whole batch with which x starts.
        """
        rngs = (None,) * 3 if rng is None else jax.random.split(rng, 3)
        rate = self.settings.dropout
        x = self.held(x)
        parts = {"attention": attend, "cross": look, "mlp": self.mlp}
        for (part, function), own in zip(parts.items(), rngs, strict=True):
            dropped = lambda h, own=own: dropout(h, rate, own, first_row)
            x = self.plus(part, x, function, dropped)
        return x
