"""The gated attention unit (GAU): attention and MLP in one layer of one kind.

    u = act(x W_u),  v = act(x W_v),  z = act(x W_z)
    q = gamma_q z + beta_q,  k = gamma_k z + beta_k
    out = (u * (A(q, k) v)) W_o

u and v are e wide, in the paper twice the model; z is as wide as a head, and there is
one head. With A the identity this is a gated linear unit, with u = 1 it is attention.

A unit has about `3 e D` weights, `6 D^2` at `e = 2 D`, where attention and an MLP of
width 4 D have `12 D^2`. So the papers compare L layers of those with 2 L units, and so
must whoever compares them here: a model has as many layers as it is told.
"""

import functools
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings import Dims, Encoding
from ropejax.nn.block import BlockSettings, Layer
from ropejax.nn.dropout import dropout
from ropejax.nn.mlp import MLP
from ropejax.nn.output_gates import Ungated
from ropejax.nn.parameters import projection_init
from ropejax.nn.self_attention import SelfAttention
from ropejax.nn.token_shifts import Projections, Unshifted
from ropejax.nn.weighting import Weighting
from ropejax.tokens import tokens


class GatedAttention(SelfAttention):
    """What a gated attention unit computes, without residual and norm.

    Queries and keys are one projection of a token, seen twice: a scale and an offset a
    channel tell them apart, which start as one and zero. The position encoding sees
    heads of width s, and values of another width.

    Several heads each have a z and an equal part of u and v; with one they are the
    paper's.

    Args:
        dims: the model's sizes; s is `head_dim`.
        expanded: width e of u and v, a multiple of the heads.
        encoding: settings of the position encoding.
        activation: of u, v and z.
        dtype: dtype of the computation; parameters stay float32.
        weighting: how queries and keys become weights; by a softmax if None.
        rngs: keys for the initial parameters.

    References:
        Hua et al. 2022, "Transformer Quality in Linear Time", arXiv 2202.10447 (GAU,
        FLASH-Quad), and the code in its appendix: SiLU, e = 2 D, s = 128, and weights
        `ropejax.attention.SquaredReLU`. Su 2022, spaces.ac.cn/archives/8934, and 9052
        (GAU-alpha), where weights are a softmax of logits times `log n / log 512`,
        `ropejax.encodings.LogScale`.

    Departures:
        Projections have no biases, as in GAU-alpha. Scales start as one, as in Su's
        analysis (8990) and code; the paper's code draws them from `N(0, 0.02^2)`.
        Positions are the encoding's alone; the paper adds absolute ones to embeddings
        and a relative bias to RoPE, which `compose` of encodings does.
    """

    def __init__(
        self,
        dims: Dims,
        expanded: int,
        encoding: Encoding,
        *,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.silu,
        dtype=jnp.float32,
        weighting: Weighting | None = None,
        rngs: nnx.Rngs,
    ):
        def projection(width: int) -> nnx.LinearGeneral:
            return nnx.LinearGeneral(
                dims.embed_dim,
                (dims.num_heads, width),
                use_bias=False,
                kernel_init=projection_init,
                dtype=dtype,
                rngs=rngs,
            )

        of_head = expanded // dims.num_heads
        self.activation = activation
        self.gate = projection(of_head)
        self.value = projection(of_head)
        self.base = projection(dims.head_dim)
        each = (dims.num_heads, dims.head_dim)
        self.query_scale = nnx.Param(jnp.ones(each, jnp.float32))
        self.query_offset = nnx.Param(jnp.zeros(each, jnp.float32))
        self.key_scale = nnx.Param(jnp.ones(each, jnp.float32))
        self.key_offset = nnx.Param(jnp.zeros(each, jnp.float32))
        self.out = nnx.LinearGeneral(
            (dims.num_heads, of_head),
            dims.embed_dim,
            axis=(-2, -1),
            use_bias=False,
            kernel_init=projection_init,
            dtype=dtype,
            rngs=rngs,
        )
        super().__init__(dims, encoding, weighting=weighting, rngs=rngs)

    def projections(self, x: Float[Array, "B L D"]) -> Projections:
        """Returns queries and keys, of one projection, and each head's part of v."""
        z = self.activation(self.base(x))
        return Projections(
            _affine(z, self.query_scale, self.query_offset),
            _affine(z, self.key_scale, self.key_offset),
            self.activation(self.value(x)),
        )

    def output(
        self, x: Float[Array, "B T D"], attended: Float[Array, "B T N Hv"]
    ) -> Float[Array, "B T D"]:
        """Returns what was attended to, gated by u of the queries, projected."""
        return self.out(self.activation(self.gate(x)) * attended)


class GatedBlock(Layer):
    """A gated attention unit with its residual and norm.

    Post-norm (GAU-alpha): `norm(x + unit(x))`. Pre-norm (the paper):
    `x + unit(norm(x))`. Norms of outputs: `x + norm(unit(x))`.
    """

    def __init__(
        self, dims: Dims, settings: BlockSettings, encoding: Encoding, *, rngs: nnx.Rngs
    ):
        self.settings = settings
        self.attention = GatedAttention(
            dims,
            settings.mlp_dim,
            encoding,
            activation=settings.activation,
            dtype=settings.dtype,
            weighting=settings.weighting,
            rngs=rngs,
        )
        self.add_norms("attention", dims.embed_dim, rngs=rngs)

    def around(self, x, attend, *, rng=None, first_row=0, index=None):
        """Applies the unit, which is the attention."""
        own = None if rng is None else jax.random.split(rng, 1)[0]
        dropped = lambda h: dropout(h, self.settings.dropout, own, first_row, index)
        return self.plus("attention", self.held(x), attend, dropped)


def check_gated(
    dims: Dims, settings: BlockSettings, encodings: Iterable[Encoding]
) -> None:
    """Raises ValueError where gated attention units cannot be of these sizes.

    Args:
        dims: the model's sizes.
        settings: what its layers have in common.
        encodings: of its layers.
    """
    heads, expanded = dims.num_heads, settings.mlp_dim
    plain_parts = {
        "mlp": MLP(),
        "parallel": False,
        "qkv_bias": False,
        "out_bias": False,
        "token_shift": Unshifted(),
        "output_gate": Ungated(),
    }
    for name, plain in plain_parts.items():
        if (given := getattr(settings, name)) != plain:
            raise ValueError(
                f"{name}={given} is of layers of attention and MLP, which gated "
                f"attention units replace; leave it at {plain}."
            )
    if dims.num_kv_heads != heads:
        raise ValueError(
            "a gated attention unit makes queries and keys of one projection, so "
            f"num_kv_heads={dims.num_kv_heads} must be num_heads={heads}."
        )
    if expanded % heads:
        raise ValueError(
            f"num_heads={heads} must divide the expanded width mlp_dim={expanded} of "
            "gated attention units; use one head, as in the paper, or another width."
        )
    wide = settings.value_width(dims)
    for encoding in encodings:
        if _takes_values(encoding, dims, dims.head_dim) and not _takes_values(
            encoding, dims, wide
        ):
            raise ValueError(
                f"{encoding.title} needs values as wide as queries, "
                f"head_dim={dims.head_dim}, but those of a gated attention unit are "
                f"mlp_dim / num_heads = {wide} wide; choose another encoding, or its "
                "setting that leaves values alone."
            )


@functools.lru_cache(maxsize=256)
def _takes_values(encoding: Encoding, dims: Dims, width: int) -> bool:
    """Whether what an encoding does with values works for values of a width."""

    def mixed(rng):
        shared = encoding.init_shared(rng, dims)
        own = encoding.init_layer(rng, dims)
        where = tokens(2)
        params = encoding.prepare(shared, own, where, where, dims)
        v = encoding.values(params, jnp.ones((1, 2, dims.num_kv_heads, width)), where)
        weights = jnp.ones((1, dims.num_heads, 2, 2))
        out = encoding.mix(params, weights, v, where, where)
        return encoding.outputs(params, out, where)

    try:
        out = jax.eval_shape(mixed, jax.random.key(0))
    except (TypeError, ValueError):
        return False
    return out.shape == (1, 2, dims.num_heads, width)


def _affine(z, scale: nnx.Param, offset: nnx.Param):
    return z * scale[...].astype(z.dtype) + offset[...].astype(z.dtype)
