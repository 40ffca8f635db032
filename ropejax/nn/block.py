"""What layers of a Transformer are: attention and MLP, each with residual and norm."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from ropejax.attention import Normalizer, SequenceParallel, Softmax
from ropejax.encodings import Dims, Encoding
from ropejax.encodings.choices import positive
from ropejax.nn.attention import MultiHeadAttention
from ropejax.nn.dropout import dropout
from ropejax.nn.dtypes import check_floating
from ropejax.nn.mlp import MLP
from ropejax.nn.norms import LayerNorm, Norm
from ropejax.nn.output_gates import Ungated
from ropejax.nn.query_key_norm import Unnormalized
from ropejax.nn.remat import check_remat
from ropejax.nn.row_scales import Unscaled
from ropejax.nn.self_attention import SelfAttention
from ropejax.nn.token_shifts import Unshifted
from ropejax.nn.weighting import Weighting
from ropejax.settings import Settings, check_finite
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True)
class BlockSettings(Settings):
    """What every layer of a model has in common.

    Attributes:
        mlp_dim: hidden width of the MLP, F; of gated units, their expanded width.
        activation: the MLP's activation, or the gated units'.
        pre_norm: normalize what enters each part rather than each sum.
        output_norm: normalize what each part returns, before it is added; with
            `pre_norm` that is Gemma 2's, alone OLMo 2's, without norms of sums.
        residual_scale: the factor on what each part returns, before it is added
            (Granite; the muP of depth).
        dropout: probability of dropping an element of each part's output.
        dtype: dtype of the computation; parameters stay float32.
        implementation: which attention engine.
        remat: what the backward pass computes again instead of keeping it: "none",
            "full" (all of a layer but its input) or "dots" (all but the outputs of
            projections).
        normalizer: what turns logits into weights, in all attention (encoder-decoders:
            cross attention too); its parameters, if any, are learned in every layer.
        qk_norm: what normalizes queries and keys, before the position encoding.
        attention_scale: the factor on queries times keys; that of `qk_norm` if None,
            which is `1 / sqrt(H)` for most.
        row_scale: the learned factor on the logits of each query.
        attention_dropout: probability of dropping an attention weight.
        token_shift: what queries, keys and values of self-attention take from the
            tokens before.
        output_gate: what gates heads' outputs, in all attention.
        norm: what normalizes hidden states, in layers and before the readout.
        mlp: the form of the MLP: two projections, or three with a gate.
        parallel: attention and MLP beside each other: both read what enters the layer,
            each behind its own norm, and both are added to it.
        qkv_bias: projections to queries, keys and values have biases.
        out_bias: the projection of what attention returns has a bias.
        gated: layers are gated attention units (`ropejax.nn.gated`), each in place of
            attention and MLP.
        hidden_sharding: how hidden states `[B, L, D]` are held over devices; None
            leaves it to the compiler.

    Raises:
        ValueError: if `remat` is unknown, `dtype` no floating-point type,
            `residual_scale` not positive and finite, or `parallel` without `pre_norm`.
    """

    mlp_dim: int
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu
    pre_norm: bool = False
    dropout: float = 0.1
    dtype: jnp.dtype = jnp.dtype("float32")
    implementation: str | SequenceParallel = "auto"
    remat: str = "none"
    hidden_sharding: jax.sharding.Sharding | None = None
    normalizer: Normalizer = Softmax()
    qk_norm: Unnormalized = Unnormalized()
    row_scale: Unscaled = Unscaled()
    attention_dropout: float = 0.0
    gated: bool = False
    token_shift: Unshifted = Unshifted()
    output_gate: Ungated = Ungated()
    norm: Norm = LayerNorm()
    mlp: MLP = MLP()
    parallel: bool = False
    output_norm: bool = False
    attention_scale: float | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    residual_scale: float = 1.0

    def __post_init__(self):
        check_finite(self)
        check_remat(self.remat)
        check_floating("dtype", self.dtype)
        positive(residual_scale=self.residual_scale)
        if self.parallel and not self.pre_norm:
            raise ValueError(
                "parallel=True: attention and MLP read what enters the layer through "
                "norms of their own; set pre_norm=True."
            )

    @property
    def weighting(self) -> Weighting:
        """How queries and keys become weights."""
        return Weighting(
            self.normalizer,
            self.qk_norm,
            self.row_scale,
            self.attention_dropout,
            self.attention_scale,
        )

    @property
    def norms_sums(self) -> bool:
        """True if norms stand on sums, so that none is wanted before the readout."""
        return not (self.pre_norm or self.output_norm)

    def value_width(self, dims: Dims) -> int:
        """Returns the width of each head's values.

        Args:
            dims: the model's sizes.
        """
        return self.mlp_dim // dims.num_heads if self.gated else dims.head_dim


class Layer(nnx.Module):
    """A layer around self-attention; what derives from it says what is `around` it.

    Attributes:
        settings: what all layers of its model have in common.
        attention: its self-attention.
    """

    settings: BlockSettings
    attention: SelfAttention

    def __call__(
        self,
        x: Float[Array, "B L D"],
        where: Tokens,
        *,
        shared: Params,
        mask=None,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
    ) -> Float[Array, "B L D"]:
        """Applies the layer.

        Args:
            x: hidden states, `[B, L, D]`.
            where: where the tokens are.
            shared: the encoding's parameters that all layers share.
            mask: a mask of `ropejax.masks`, or None.
            rng: PRNG key for dropout; None at evaluation.
            first_row: row of the whole batch with which x starts.

        Returns:
            Hidden states `[B, L, D]`.
        """

        def attend(h):
            return self.attention(
                h,
                where,
                shared=shared,
                mask=mask,
                implementation=self.settings.implementation,
                rng=rng,
                first_row=first_row,
            )

        index = None if where.consecutive_index else where.index
        return self.around(x, attend, rng=rng, first_row=first_row, index=index)

    def around(
        self,
        x: Float[Array, "B L D"],
        attend: Callable[[Float[Array, "B L D"]], Float[Array, "B L D"]],
        *,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
        index: Int[Array, "#B L"] | None = None,
    ) -> Float[Array, "B L D"]:
        """Applies the layer around any attention, such as one with a cache.

        Args:
            x: hidden states, `[B, L, D]`.
            attend: the attention, a function of (normalized) hidden states.
            rng: PRNG key for dropout; None at evaluation.
            first_row: row of the whole batch with which x starts.
            index: the tokens' order, if they are stored in another one: dropout.

        Returns:
            Hidden states `[B, L, D]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define around.")

    def add_norms(self, part: str, width: int, *, rngs: nnx.Rngs) -> None:
        """Makes a part's norms, as the settings say.

        `PART_norm` is of what the part reads or of the sum, `PART_output_norm` of what
        it returns.

        Args:
            part: its name.
            width: the model's, D.
            rngs: keys for the initial parameters.
        """
        settings = self.settings
        make = lambda: settings.norm.make(width, dtype=settings.dtype, rngs=rngs)
        if settings.pre_norm or settings.norms_sums:
            setattr(self, f"{part}_norm", make())
        if settings.output_norm:
            setattr(self, f"{part}_output_norm", make())

    def entering(self, part: str, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        """Returns what a part reads of hidden states: normalized, with `pre_norm`."""
        return getattr(self, f"{part}_norm")(x) if self.settings.pre_norm else x

    def plus(
        self,
        part: str,
        x: Float[Array, "B L D"],
        function: Callable[[Float[Array, "B L D"]], Float[Array, "B L D"]],
        dropped: Callable[[Float[Array, "B L D"]], Float[Array, "B L D"]],
        read: Float[Array, "B L D"] | None = None,
    ) -> Float[Array, "B L D"]:
        """Returns hidden states plus what a part makes of them, with its norms.

        Args:
            part: its name.
            x: hidden states, `[B, L, D]`.
            function: the part, of what enters it.
            dropped: dropout of what is added.
            read: hidden states that the part reads; x if None.
        """
        out = function(self.entering(part, x if read is None else read))
        if self.settings.output_norm:
            out = getattr(self, f"{part}_output_norm")(out)
        if (factor := self.settings.residual_scale) != 1:
            out = factor * out
        x = x + dropped(out)
        return getattr(self, f"{part}_norm")(x) if self.settings.norms_sums else x

    def held(self, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        """Returns hidden states held over devices as the settings say."""
        if self.settings.hidden_sharding is None:
            return x
        return jax.lax.with_sharding_constraint(x, self.settings.hidden_sharding)


class Block(Layer):
    """Attention and MLP with residuals.

    Post-norm (Vaswani et al. 2017): `y = norm(x + attention(x))`, `norm(y + mlp(y))`.
    Pre-norm (Xiong et al. 2020): `y = x + attention(norm(x))`, `y + mlp(norm(y))`.
    Norms of outputs (OLMo 2, arXiv 2501.00656): `y = x + norm(attention(x))`,
    `y + norm(mlp(y))`; with pre-norm (Gemma 2, arXiv 2408.00118):
    `y = x + norm'(attention(norm(x)))`, and so the MLP.
    With a residual scale s: `y = x + s attention(...)`, and so the MLP.
    Parallel (Wang and Komatsuzaki 2021, GPT-J; Black et al. 2022, GPT-NeoX, arXiv
    2204.06745): `x + attention(norm(x)) + mlp(norm'(x))`.
    """

    def __init__(
        self, dims: Dims, settings: BlockSettings, encoding: Encoding, *, rngs: nnx.Rngs
    ):
        width, dtype = dims.embed_dim, settings.dtype
        self.settings = settings
        self.attention = MultiHeadAttention(
            dims,
            encoding,
            dtype=dtype,
            weighting=settings.weighting,
            token_shift=settings.token_shift,
            output_gate=settings.output_gate,
            qkv_bias=settings.qkv_bias,
            out_bias=settings.out_bias,
            rngs=rngs,
        )
        self.surround(width, rngs=rngs)

    def surround(self, width: int, *, rngs: nnx.Rngs) -> None:
        """Makes what is around attention: norms and MLP.

        Args:
            width: the model's, D.
            rngs: keys for the initial parameters.
        """
        settings, dtype = self.settings, self.settings.dtype
        self.add_norms("attention", width, rngs=rngs)
        made = settings.mlp.make(width, settings.mlp_dim, dtype=dtype, rngs=rngs)
        for name, projection in made.items():
            setattr(self, name, projection)
        self.add_norms("mlp", width, rngs=rngs)

    def mlp(self, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        """Returns what the MLP makes of hidden states, without residual and norm."""
        return self.settings.mlp(self, self.settings.activation, x)

    def around(self, x, attend, *, rng=None, first_row=0, index=None):
        """Applies attention and MLP."""
        rngs = (None, None) if rng is None else jax.random.split(rng)
        x = self.held(x)

        def dropped(rng):
            return lambda h: dropout(h, self.settings.dropout, rng, first_row, index)

        attended = self.plus("attention", x, attend, dropped(rngs[0]))
        read = x if self.settings.parallel else attended
        return self.plus("mlp", attended, self.mlp, dropped(rngs[1]), read)
