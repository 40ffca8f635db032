"""One layer of a Transformer: attention and MLP, each with its residual and norm."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings import Dims, Encoding
from ropejax.nn.attention import MultiHeadAttention
from ropejax.nn.dropout import dropout
from ropejax.nn.parameters import projection_init
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True)
class BlockSettings:
    """What every layer of a model has in common.

    Attributes:
        mlp_dim: hidden width of the MLP, F.
        activation: the MLP's activation.
        pre_norm: normalize what enters each part rather than each sum.
        dropout: probability of dropping an element of each part's output.
        dtype: dtype of the computation; parameters stay float32.
        implementation: which attention engine.
    """

    mlp_dim: int
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu
    pre_norm: bool = False
    dropout: float = 0.1
    dtype: jnp.dtype = jnp.dtype("float32")
    implementation: str = "auto"


class Block(nnx.Module):
    """Attention and MLP with residuals.

    Post-norm (Vaswani et al. 2017): `y = norm(x + attention(x))`, `norm(y + mlp(y))`.
    Pre-norm (Xiong et al. 2020): `y = x + attention(norm(x))`, `y + mlp(norm(y))`.
    """

    def __init__(
        self, dims: Dims, settings: BlockSettings, encoding: Encoding, *, rngs: nnx.Rngs
    ):
        width, dtype = dims.embed_dim, settings.dtype
        self.settings = settings
        self.attention = MultiHeadAttention(dims, encoding, dtype=dtype, rngs=rngs)
        self.attention_norm = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.mlp_in = nnx.Linear(
            width, settings.mlp_dim, kernel_init=projection_init, dtype=dtype, rngs=rngs
        )
        self.mlp_out = nnx.Linear(
            settings.mlp_dim, width, kernel_init=projection_init, dtype=dtype, rngs=rngs
        )
        self.mlp_norm = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        where: Tokens,
        *,
        shared: Params,
        mask=None,
        rng: Rng | None = None,
    ) -> Float[Array, "B L D"]:
        """Applies the layer.

        Args:
            x: hidden states, `[B, L, D]`.
            where: where the tokens are.
            shared: the encoding's parameters that all layers share.
            mask: a mask of `ropejax.masks`, or None.
            rng: PRNG key for dropout; None at evaluation.

        Returns:
            Hidden states `[B, L, D]`.
        """
        rngs = (None, None) if rng is None else jax.random.split(rng)

        def attend(h):
            out = self.attention(
                h,
                where,
                shared=shared,
                mask=mask,
                implementation=self.settings.implementation,
            )
            return dropout(out, self.settings.dropout, rngs[0])

        def mlp(h):
            out = self.mlp_out(self.settings.activation(self.mlp_in(h)))
            return dropout(out, self.settings.dropout, rngs[1])

        if self.settings.pre_norm:
            x = x + attend(self.attention_norm(x))
            return x + mlp(self.mlp_norm(x))
        x = self.attention_norm(x + attend(x))
        return self.mlp_norm(x + mlp(x))
