"""Linear recurrences in the layers of a Transformer, under the same contract.

Depth, norms, MLP, dropout and rematerialization mean what they mean there; only what
mixes tokens is another. So a difference in scores is one of mixing tokens.
"""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from ropejax.encodings import Dims, Encoding
from ropejax.encodings.choices import positive
from ropejax.masks import Causal
from ropejax.nn.block import Block, BlockSettings
from ropejax.nn.dropout import check_rate, dropout
from ropejax.nn.initial import Keys, bound, initial
from ropejax.nn.looped import walk_layers
from ropejax.nn.parameters import projection_init
from ropejax.nn.recurrent.mixers import MixerSettings
from ropejax.nn.recurrent.rows import check_rows
from ropejax.nn.remat import rematerialized
from ropejax.nn.transformer import LayerKind, symbol_vectors
from ropejax.nn.whole_pass import compiled_once
from ropejax.positions.base import Placement
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True)
class LayeredSpec:
    """All that makes such a model but its parameters: one frozen, hashable value.

    Attributes:
        num_symbols: size of the input alphabet, the placeholder last.
        num_outputs: number of output classes, V.
        dims: the model's sizes; heads are of meaning to some mixers only.
        settings: what layers have around the mixer; what is of attention alone is not
            looked at.
        mixer: what stands in place of attention.
        scan_layers: compile one layer and loop over it, rather than every layer.

    Raises:
        ValueError: if a size is below 1, or the mixer cannot have such sizes.
    """

    num_symbols: int
    num_outputs: int
    dims: Dims
    settings: BlockSettings
    mixer: MixerSettings
    scan_layers: bool = True

    def __post_init__(self):
        sizes = self.dims._asdict()
        del sizes["causal"]
        positive(
            num_symbols=self.num_symbols,
            num_outputs=self.num_outputs,
            mlp_dim=self.settings.mlp_dim,
            **sizes,
        )
        check_rate(self.settings.dropout)
        self.mixer.check(self.dims)

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return self.mixer.title

    @property
    def pattern(self) -> tuple[LayerKind, ...]:
        """All layers alike: no encoding, and no token sees a later one."""
        return (LayerKind(Encoding(), Causal()),)

    def init(self, rng: Rng) -> Params:
        """Returns initial parameters: a tree of dicts, float32."""
        return initial(Layered, self, rng)

    def bind(self, params: Params) -> "Layered":
        """Returns the model with these parameters."""
        return bound(Layered, self, params)


class MixerBlock(Block):
    """A mixer and an MLP with residuals and norms; the mixer is called `attention`."""

    def __init__(
        self, dims: Dims, settings: BlockSettings, mixer: MixerSettings, *, rngs
    ):
        width, dtype = dims.embed_dim, settings.dtype
        self.settings = settings
        self.attention = mixer.make(dims, dtype=dtype, rngs=rngs)
        self.surround(width, rngs=rngs)


class Layered(nnx.Module):
    """Embeds symbols, applies layers, and reads out logits at every token.

    Args:
        spec: sizes, and what layers are.
        rngs: keys for the initial parameters.
    """

    def __init__(self, spec: LayeredSpec, *, rngs: nnx.Rngs | Keys):
        dims, settings = spec.dims, spec.settings
        self.spec = spec
        self.embedding = nnx.Param(
            nnx.initializers.truncated_normal(0.02)(
                rngs.params(), (spec.num_symbols, dims.embed_dim), jnp.float32
            )
        )
        make = lambda rng: MixerBlock(dims, settings, spec.mixer, rngs=Keys(rng))
        self.layers = jax.vmap(make)(jax.random.split(rngs.params(), dims.num_layers))
        self.final_norm = (
            None
            if settings.norms_sums
            else settings.norm.make(dims.embed_dim, dtype=settings.dtype, rngs=rngs)
        )
        self.readout = nnx.Linear(
            dims.embed_dim, spec.num_outputs, kernel_init=projection_init, rngs=rngs
        )

    def __call__(
        self,
        tokens: Int[Array, "B L"],
        placement: Placement,
        *,
        valid: Bool[Array, "B L"] | None = None,
        segments: Int[Array, "B L"] | None = None,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
    ) -> Float[Array, "B L V"]:
        """Returns logits over output classes at every token.

        Args:
            tokens: symbols, `[B, L]`, each below `num_symbols`.
            placement: not looked at: order is all that a recurrent model knows.
            valid: False at padding, `[B, L]`, which must come last in its row; None if
                there is none.
            segments: None; packed rows would need a fresh state in the middle.
            rng: PRNG key for dropout; None at evaluation, where nothing is dropped.
            first_row: row of the whole batch with which these start: dropout.

        Returns:
            Logits `[B, L, V]`, float32. Those of a token depend on it and on those
            before it.

        Raises:
            ValueError: if `segments` are given, padding is known not to come last, or
                known symbols are none.
        """
        check_rows(valid, segments)
        settings, width = self.spec.settings, self.spec.dims.embed_dim
        embed_rng, layers_rng = (None, None) if rng is None else jax.random.split(rng)
        x = symbol_vectors(self.embedding[...], tokens) * math.sqrt(width)
        x = dropout(x.astype(settings.dtype), settings.dropout, embed_rng, first_row)
        x = self._apply_layers(x, layers_rng, first_row)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return self.readout(x.astype(jnp.float32))

    @compiled_once
    def _apply_layers(self, x, rng, first_row):
        remat, scan = self.spec.settings.remat, self.spec.scan_layers

        def visit(at, block, x, own, kept, rng):
            layer = partial(
                block.around, attend=block.attention, rng=rng, first_row=first_row
            )
            return rematerialized(layer, remat)(x), kept

        return walk_layers([self.layers], x, visit, scan=scan, rng=rng)[0]
