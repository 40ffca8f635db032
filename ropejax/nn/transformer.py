"""The Transformer of the length-generalization studies, for any encodings.

By default it is the encoder of Ruoss et al. 2023 (arXiv 2305.16843): all tokens see
each other, and the answer is read at placeholder tokens behind the input. With a causal
mask it is a decoder-only model. No encoding is named here: a layer calls every hook,
always.
"""

import dataclasses
import math
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from ropejax.attention.later_keys import Seen, later_key_seen
from ropejax.encodings import Dims, Encoding
from ropejax.encodings.choices import positive
from ropejax.nn.block import Block, BlockSettings
from ropejax.nn.decoder import CachedPasses
from ropejax.nn.dropout import check_rate, dropout
from ropejax.nn.gated import GatedBlock, check_gated
from ropejax.nn.initial import Keys, bound, initial
from ropejax.nn.looped import LoopSpan, check_loops, walk_layers
from ropejax.nn.parameters import as_arrays, as_parameters
from ropejax.nn.readout import LinearReadout, Readout
from ropejax.nn.remat import rematerialized
from ropejax.nn.whole_pass import compiled_once
from ropejax.positions.base import Placement
from ropejax.tokens import Tokens, tokens
from ropejax.typing import Params, Rng


class LayerKind(NamedTuple):
    """What may differ from layer to layer.

    Attributes:
        encoding: settings of the position encoding.
        mask: a mask of `ropejax.masks`, or None for full attention.
    """

    encoding: Encoding
    mask: object = None


@dataclasses.dataclass(frozen=True)
class TransformerSpec:
    """All that makes a Transformer but its parameters: one frozen, hashable value.

    Attributes:
        num_symbols: size of the input alphabet.
        num_outputs: number of output classes, V.
        dims: the model's sizes; `embed_dim` need not be heads times head width.
        settings: what all layers have in common.
        pattern: kinds of layers, repeated until there are `dims.num_layers`.
        scan_layers: compile one repetition of the pattern and loop over it, rather than
            compile every layer: several times faster to compile, somewhat slower to run
            on a CPU.
        loops: how often all layers are applied, with the same parameters.
        input_injection: where the embedded input is added again: "none", "loop" (before
            each loop but the first) or "layer" (before each layer but the first).
        readout: how logits are read out of the last hidden states.
        embedding_scale: factor on the embeddings; `sqrt(embed_dim)` if None.
        embedding_norm: normalize embeddings, with positions if they are in them, before
            the first layer (BLOOM, BERT).

    Raises:
        ValueError: if sizes do not fit each other or an encoding.
    """

    num_symbols: int
    num_outputs: int
    dims: Dims
    settings: BlockSettings
    pattern: tuple[LayerKind, ...]
    scan_layers: bool = True
    loops: int = 1
    input_injection: str = "none"
    readout: Readout = LinearReadout()
    embedding_scale: float | None = None
    embedding_norm: bool = False

    def __post_init__(self):
        check_sizes(self)

    def init(self, rng: Rng) -> Params:
        """Returns initial parameters: a tree of dicts, float32."""
        return initial(Transformer, self, rng)

    def bind(self, params: Params) -> "Transformer":
        """Returns the model with these parameters."""
        return bound(Transformer, self, params)


class Transformer(CachedPasses, nnx.Module):
    """Embeds symbols, applies layers, and reads out logits at every token.

    Args:
        spec: sizes, encodings, and how layers are compiled.
        rngs: keys for the initial parameters.

    Departures:
        Dropout is applied to the embeddings under every encoding; the code published
        with Ruoss et al. does so only where the encoding is added to embeddings.
    """

    def __init__(self, spec: TransformerSpec, *, rngs: nnx.Rngs | Keys):
        dims, settings = spec.dims, spec.settings
        repeats = dims.num_layers // len(spec.pattern)
        self.spec = spec
        self.embedding = nnx.Param(
            nnx.initializers.truncated_normal(0.02)(
                rngs.params(), (spec.num_symbols, dims.embed_dim), jnp.float32
            )
        )
        make = GatedBlock if settings.gated else Block
        shared, layers = {}, {}
        for at, kind in enumerate(spec.pattern):
            shared[f"kind_{at}"] = kind.encoding.init_shared(rngs.params(), dims)
            layers[f"kind_{at}"] = jax.vmap(
                lambda rng, kind=kind: make(
                    dims, settings, kind.encoding, rngs=Keys(rng)
                )
            )(jax.random.split(rngs.params(), repeats))
        self.shared = as_parameters(shared)
        self.layers = nnx.data(layers)
        norm = lambda: settings.norm.make(
            dims.embed_dim, dtype=settings.dtype, rngs=rngs
        )
        self.final_norm = None if settings.norms_sums else norm()
        self.readout = spec.readout.make(dims.embed_dim, spec.num_outputs, rngs=rngs)
        self.embedding_norm = norm() if spec.embedding_norm else None

    def __call__(
        self,
        tokens: Int[Array, "B L"],
        placement: Placement,
        *,
        valid: Bool[Array, "B L"] | None = None,
        left_padded: bool = False,
        segments: Int[Array, "B L"] | None = None,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
        span: LoopSpan | None = None,
    ) -> Float[Array, "B L V"]:
        """Returns logits over output classes at every token.

        Args:
            tokens: symbols, `[B, L]`, each below `num_symbols`.
            placement: where they are, from a position scheme; if padding stands before
                tokens, from `ropejax.positions.place_real`.
            valid: False at padding, `[B, L]`; None if there is none.
            left_padded: padding stands before the tokens, not behind them.
            segments: tokens attend within equal segments only, `[B, L]`.
            rng: PRNG key for dropout; None at evaluation, where nothing is dropped.
            first_row: row of the whole batch with which these start: dropout.
            span: the loops to run, of a looped model in training; all if None.

        Returns:
            Logits `[B, L, V]`, float32.

        Raises:
            ValueError: if padding is declared or known to stand before or between
                tokens, and the placement does not say where these are; if known symbols
                are none; or as `ropejax.tokens.tokens`.
        """
        states = self.hidden_states(
            tokens,
            placement,
            valid=valid,
            left_padded=left_padded,
            segments=segments,
            rng=rng,
            first_row=first_row,
            span=span,
        )
        return self.read_out(states)

    def hidden_states(
        self,
        tokens: Int[Array, "B L"],
        placement: Placement,
        *,
        valid: Bool[Array, "B L"] | None = None,
        left_padded: bool = False,
        segments: Int[Array, "B L"] | None = None,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
        span: LoopSpan | None = None,
    ) -> Float[Array, "B L D"]:
        """Returns what the last layer gives at every token, for `read_out`.

        Args:
            tokens: see `__call__`, like all that follow.
            placement: where they are.
            valid: False at padding.
            left_padded: padding stands before the tokens.
            segments: tokens attend within equal segments only.
            rng: PRNG key for dropout.
            first_row: row of the whole batch with which these start.
            span: the loops to run.

        Raises:
            ValueError: as `__call__`.
        """
        length = tokens.shape[1]
        known = {"valid": valid, "segments": segments, "left_padded": left_padded}
        shared = list(as_arrays(self.shared).values())
        embed_rng, layers_rng = (
            (None, None) if rng is None else tuple(jax.random.split(rng))
        )
        where = placement.tokens(length, **known)
        x = self.embed_tokens(tokens, where)
        index = None if where.consecutive_index else where.index
        x = dropout(x, self.spec.settings.dropout, embed_rng, first_row, index)
        dropping = (layers_rng, first_row)
        return self._apply_layers(x, placement, known, shared, dropping, span)

    def embed_tokens(
        self, tokens: Int[Array, "B L"], where: Tokens
    ) -> Float[Array, "B L D"]:
        """Returns the symbols' embeddings, with positions where an encoding adds them.

        Args:
            tokens: symbols, `[B, L]`.
            where: where they are, in the first layer.
        """
        x = symbol_vectors(self.embedding[...], tokens) * embedding_scale(self.spec)
        shared = list(as_arrays(self.shared).values())
        for encoding, params in _distinct(self.spec.pattern, shared):
            x = encoding.embed(params, x, where)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return x.astype(self.spec.settings.dtype)

    def read_out(self, x: Float[Array, "B L D"]) -> Float[Array, "B L V"]:
        """Returns the logits, float32, of the last layer's output."""
        if self.final_norm is not None:
            x = self.final_norm(x)
        return self.spec.readout(self, x, self.spec.num_outputs)

    @compiled_once
    def _apply_layers(self, x, placement, known, shared, dropping, span):
        """Applies the pattern again and again, `loops` times."""
        length, spec = x.shape[1], self.spec
        own, common = placement.layers()
        layers_rng, first_row = dropping

        def visit(at, block, x, own, kept, rng):
            where = Placement(**own, **common, by_place=placement.by_place)
            where = where.tokens(length, **known)
            mask = spec.pattern[at].mask
            layer = partial(
                block, shared=shared[at], mask=mask, rng=rng, first_row=first_row
            )
            layer = rematerialized(layer, spec.settings.remat)
            return layer(x, where), kept

        return walk_layers(
            list(self.layers.values()),
            x,
            visit,
            own=own,
            loops=spec.loops,
            injection=spec.input_injection,
            scan=spec.scan_layers,
            rng=layers_rng,
            span=span,
        )[0]


def symbol_vectors(
    table: Float[Array, "V D"], tokens: Int[Array, "B L"]
) -> Float[Array, "B L D"]:
    """Rows of a table; a product where it is small: its gradient needs no scatter.

    Symbols that are none give NaN where they are traced.

    Raises:
        ValueError: if known symbols leave 0 .. V - 1.
    """
    size = table.shape[0]
    known = (tokens >= 0) & (tokens < size)
    if not isinstance(known, jax.core.Tracer) and not known.all():
        raise ValueError(
            f"symbols must lie in 0 .. {size - 1}, got some from {tokens.min()} to "
            f"{tokens.max()}; a larger num_symbols makes room for more."
        )
    if size <= 256:
        rows = jax.nn.one_hot(tokens, size, dtype=table.dtype) @ table
    else:
        rows = jnp.take(table, tokens, axis=0, mode="clip")
    return jnp.where(known[..., None], rows, jnp.nan)


def embedding_scale(spec: Any) -> float:
    """Returns the factor on the embeddings of a model: `sqrt(D)` if not given.

    Args:
        spec: how the model is made, with `dims` and `embedding_scale`.
    """
    given = spec.embedding_scale
    return math.sqrt(spec.dims.embed_dim) if given is None else given


def _distinct(pattern: tuple[LayerKind, ...], shared: list):
    """Each different encoding of a pattern once, with its shared parameters."""
    seen = []
    for kind, params in zip(pattern, shared, strict=True):
        if kind.encoding not in seen:
            seen.append(kind.encoding)
            yield kind.encoding, params


def check_reading(spec: Any) -> None:
    """Raises ValueError where symbols cannot be embedded, or logits read out, so.

    Args:
        spec: how the model is made, with `readout`, `embedding_scale` and alphabets.
    """
    if not isinstance(spec.readout, Readout):
        raise ValueError(
            f"readout must be a Readout of ropejax.nn.readout, got {spec.readout!r}."
        )
    spec.readout.check(spec.num_symbols, spec.num_outputs)
    if spec.embedding_scale is not None:
        positive(embedding_scale=spec.embedding_scale)
        if math.isinf(spec.embedding_scale):
            raise ValueError("embedding_scale must be finite, got inf.")


@lru_cache(1024)
def _seen_ahead(mask: Any) -> Seen | None:
    """A later token that one of the first 65 sees, if that is known of their mask."""
    where = tokens(65)
    try:
        return later_key_seen(mask, where, where)
    except ValueError:
        return None  # it reads what a position scheme says of each row


def check_sizes(spec: TransformerSpec) -> None:
    """Raises ValueError where a model's sizes do not fit each other or an encoding."""
    dims, pattern = spec.dims, spec.pattern
    sizes = dims._asdict() | {
        "num_symbols": spec.num_symbols,
        "num_outputs": spec.num_outputs,
        "mlp_dim": spec.settings.mlp_dim,
    }
    del sizes["causal"]
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}.")
    if dims.num_heads % dims.num_kv_heads:
        raise ValueError(
            f"num_heads={dims.num_heads} must be a multiple of "
            f"num_kv_heads={dims.num_kv_heads}."
        )
    if not pattern or dims.num_layers % len(pattern):
        raise ValueError(
            f"a pattern of {len(pattern)} kinds of layers does not fill "
            f"num_layers={dims.num_layers} evenly."
        )
    check_rate(spec.settings.dropout)
    check_reading(spec)
    spec.settings.weighting.check(dims)
    spec.settings.token_shift.check(dims)
    check_loops(spec.loops, spec.input_injection, dims.num_layers)
    for kind in pattern:
        if kind.encoding.causal_only and not dims.causal:
            raise ValueError(
                f"{kind.encoding.title} is defined for keys up to the query only; set "
                "model.causal=True, or choose a bidirectional encoding."
            )
        if dims.causal and (seen := _seen_ahead(kind.mask)):
            raise ValueError(
                "dims.causal=True says that no token sees a later one, and with "
                f"mask={kind.mask} token {seen.query} sees token {seen.key}; give each "
                "LayerKind a causal mask, as LayerKind(encoding, Causal()), or "
                "mask & Causal()."
            )
        kind.encoding.check(dims)
    if spec.settings.gated:
        check_gated(dims, spec.settings, [kind.encoding for kind in pattern])
