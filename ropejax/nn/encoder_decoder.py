"""An encoder-decoder under the contract of `ropejax.nn.TransformerSpec`.

It reads the rows that decoder-only models read (`ropejax.tasks.Autoregressive`): what
stands before the separator goes to the encoder, the separator and the answers behind it
to the decoder. All keep their positions in the row. Padding apart, each part sees its
own tokens alone.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from ropejax.attention import Cache
from ropejax.encodings import Dims, Encoding
from ropejax.masks import Causal
from ropejax.nn.block import Block, BlockSettings
from ropejax.nn.cross_block import CrossBlock, Remembered
from ropejax.nn.decoder import cached_attention, check_places, known_read, tokens_at
from ropejax.nn.dropout import dropout
from ropejax.nn.initial import Keys, bound, initial
from ropejax.nn.looped import walk_layers
from ropejax.nn.parameters import as_arrays, as_parameters
from ropejax.nn.readout import LinearReadout, Readout
from ropejax.nn.remat import rematerialized
from ropejax.nn.transformer import (
    LayerKind,
    TransformerSpec,
    embedding_scale,
    symbol_vectors,
)
from ropejax.nn.whole_pass import compiled_once
from ropejax.padding import check_padding_behind
from ropejax.positions.base import Placement
from ropejax.typing import Params, Rng
from ropejax.whole_numbers import whole_number

_CROSS = 2**21  # folded into a layer's key: self-attention drops other weights


@dataclasses.dataclass(frozen=True)
class EncoderDecoderSpec:
    """All that makes an encoder-decoder but its parameters: frozen and hashable.

    Attributes:
        num_symbols: size of the input alphabet.
        num_outputs: number of output classes, V.
        separator: the symbol with which the decoder's part of a row begins.
        dims: sizes of both parts, the number of layers of each; `causal` is the
            decoder's and must be True.
        settings: what all layers have in common.
        encoding: of self-attention in both parts.
        cross: encoding of cross attention; none by default.
        scan_layers: compile one layer a part and loop over it.
        readout: how logits are read out of the decoder's last hidden states.
        embedding_scale: factor on the embeddings; `sqrt(embed_dim)` if None.

    Raises:
        ValueError: if sizes do not fit each other or an encoding.

    References:
        Vaswani et al. 2017, arXiv 1706.03762; no positions in cross attention, Raffel
        et al. 2020 (T5), arXiv 1910.10683.
    """

    num_symbols: int
    num_outputs: int
    separator: int
    dims: Dims
    settings: BlockSettings
    encoding: Encoding
    cross: Encoding = Encoding()
    scan_layers: bool = True
    readout: Readout = LinearReadout()
    embedding_scale: float | None = None

    def __post_init__(self):
        if not self.dims.causal:
            raise ValueError("dims.causal must be True: it is the decoder's.")
        if self.settings.gated:
            raise ValueError(
                "an encoder-decoder has no gated attention units, which the papers "
                "leave without cross attention; set gated=False, or use a decoder."
            )
        if self.settings.parallel:
            raise ValueError(
                "parallel=True: in an encoder-decoder cross attention stands between "
                "attention and MLP; leave it False."
            )
        for encoding in (self.encoding, self.cross):
            # Refuses what the encoder and cross attention, which see all, cannot serve.
            TransformerSpec(
                self.num_symbols,
                self.num_outputs,
                self.dims._replace(causal=False),
                self.settings,
                (LayerKind(encoding),),
                readout=self.readout,
                embedding_scale=self.embedding_scale,
            )
        for _, part in getattr(self.cross, "parts", (("", self.cross),)):
            if type(part).embed is not Encoding.embed:
                raise ValueError(
                    f"{part.title} enters with embeddings, of which cross attention "
                    "has none; choose another encoding of cross attention."
                )
        if not 0 <= self.separator < self.num_symbols:
            raise ValueError(
                f"separator must be a symbol below {self.num_symbols}, got "
                f"{self.separator}."
            )

    @property
    def pattern(self) -> tuple[LayerKind, ...]:
        """Kinds of self-attention layers: the decoder's."""
        return (LayerKind(self.encoding, Causal()),)

    def init(self, rng: Rng) -> Params:
        """Returns initial parameters: a tree of dicts, float32."""
        return initial(EncoderDecoder, self, rng)

    def bind(self, params: Params) -> "EncoderDecoder":
        """Returns the model with these parameters."""
        return bound(EncoderDecoder, self, params)


class Kept(NamedTuple):
    """What a decoder layer keeps between symbols."""

    cache: Cache | None
    remembered: Remembered


class Memory(NamedTuple):
    """What decoding keeps: where all tokens are, and what each layer keeps."""

    placement: Placement
    layers: list[Kept]


class EncoderDecoder(nnx.Module):
    """Encodes what precedes the separator, and decodes from the separator on.

    Args:
        spec: sizes and encodings.
        rngs: keys for the initial parameters.
    """

    def __init__(self, spec: EncoderDecoderSpec, *, rngs: nnx.Rngs | Keys):
        dims, settings = spec.dims, spec.settings
        both_ways = dims._replace(causal=False)
        self.spec = spec
        self.embedding = nnx.Param(
            nnx.initializers.truncated_normal(0.02)(
                rngs.params(), (spec.num_symbols, dims.embed_dim), jnp.float32
            )
        )
        self.shared = as_parameters(
            {
                "encoder": spec.encoding.init_shared(rngs.params(), both_ways),
                "decoder": spec.encoding.init_shared(rngs.params(), dims),
                "cross": spec.cross.init_shared(rngs.params(), both_ways),
            }
        )
        each = lambda: jax.random.split(rngs.params(), dims.num_layers)
        self.encoder = jax.vmap(
            lambda rng: Block(both_ways, settings, spec.encoding, rngs=Keys(rng))
        )(each())
        self.decoder = jax.vmap(
            lambda rng: CrossBlock(
                dims, settings, spec.encoding, spec.cross, rngs=Keys(rng)
            )
        )(each())
        norm = lambda: settings.norm.make(
            dims.embed_dim, dtype=settings.dtype, rngs=rngs
        )
        self.encoder_norm = None if settings.norms_sums else norm()
        self.final_norm = None if settings.norms_sums else norm()
        self.readout = spec.readout.make(dims.embed_dim, spec.num_outputs, rngs=rngs)

    def __call__(
        self,
        tokens: Int[Array, "B L"],
        placement: Placement,
        *,
        valid: Bool[Array, "B L"] | None = None,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
    ) -> Float[Array, "B L V"]:
        """Returns logits over output classes at every token.

        Args:
            tokens: symbols, `[B, L]`, a separator in each row.
            placement: where they are, from a position scheme.
            valid: False at padding, `[B, L]`, which must stand behind the tokens; None
                if there is none.
            rng: PRNG key for dropout; None at evaluation.
            first_row: row of the whole batch with which these start: dropout.

        Returns:
            Logits `[B, L, V]`, float32; those before the separator mean nothing.

        Raises:
            ValueError: if padding is known to stand elsewhere.
        """
        check_padding_behind(valid)
        places = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
        prompt = jnp.cumsum(tokens == self.spec.separator, axis=1) == 0
        valid = jnp.ones_like(prompt) if valid is None else valid
        rngs = (None, None) if rng is None else tuple(jax.random.split(rng))
        asked, answer = prompt & valid, ~prompt & valid
        at = (tokens, placement, places)
        read, encoder_rng = self._embed("encoder", *at, asked, rngs[0], first_row)
        x, decoder_rng = self._embed("decoder", *at, answer, rngs[1], first_row)
        dropping = (encoder_rng, decoder_rng, first_row)
        x = self._apply_layers(read, x, placement, places, asked, answer, dropping)
        return self._read_out(x)

    @compiled_once
    def _apply_layers(self, read, x, placement, places, asked, answer, dropping):
        """The decoder's last hidden states, of both parts' embedded symbols."""
        encoder_rng, rng, first_row = dropping
        memory = self._encode(read, placement, places, asked, encoder_rng, first_row)
        shared, settings = as_arrays(self.shared), self.spec.settings
        _, common = placement.layers()

        def visit(at, block, x, own, kept, rng):
            where = tokens_at(own | common, places, answer)
            encoded = where.replace(valid=asked)

            def layer(x, memory):
                self_attention = lambda h: block.attention(
                    h,
                    where,
                    shared=shared["decoder"],
                    mask=Causal(),
                    implementation=settings.implementation,
                    rng=rng,
                    first_row=first_row,
                )
                remembered = block.cross.remember(memory, encoded, shared["cross"])
                look = self._look(block, where, remembered, rng, first_row)
                return block.with_cross(
                    x, self_attention, look, rng=rng, first_row=first_row
                )

            return rematerialized(layer, settings.remat)(x, memory), kept

        return self._walk(self.decoder, x, visit, placement, rng)[0]

    @property
    def can_cache(self) -> bool:
        """False if an encoding needs the total length, which changes as tokens come."""
        spec = self.spec
        return not (spec.encoding.length_dependent or spec.cross.length_dependent)

    def has_state(self, placement: Placement) -> bool:
        """False: the decoder starts at the separator, whatever the prompt's length."""
        return False

    def start(
        self,
        tokens: Int[Array, "B S"],
        placement: Placement,
        prompts: Int[Array, ""] | Int[Array, " B"],
        *,
        capacity: int,
    ) -> tuple[Float[Array, "B V"], Memory]:
        """Encodes prompts and reads the separator: see `CachedPasses.start`."""
        capacity = whole_number("capacity", capacity, least=1)
        check_places(placement, capacity)
        places = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
        prompts = jnp.asarray(prompts, jnp.int32).reshape(-1, 1)
        valid = places < prompts - 1
        if prompts.shape[0] > 1:
            places = jnp.broadcast_to(places, tokens.shape)
        x, _ = self._embed("encoder", tokens, placement, places, valid, None, 0)
        remembered = self._remember(x, placement, places, valid)
        separators = jnp.full(tokens.shape[:1], self.spec.separator)
        room = capacity + 1 - tokens.shape[1]
        kept = [Kept(None, remembered)]
        return self._step(separators, prompts - 1, placement, kept, room)

    @compiled_once
    def _remember(self, x, placement, places, valid):
        """What each decoder layer needs of embedded prompts, layers first."""
        encoded = self._encode(x, placement, places, valid, None, 0)
        shared = as_arrays(self.shared)["cross"]
        _, common = placement.layers()

        def visit(at, block, x, own, kept, rng):
            where = tokens_at(own | common, places, valid)
            return x, block.cross.remember(x, where, shared)

        _, (remembered,) = self._walk(self.decoder, encoded, visit, placement)
        return remembered

    def step(
        self,
        memory: Memory,
        tokens: Int[Array, " B"],
        places: Int[Array, ""] | Int[Array, " B"],
    ) -> tuple[Float[Array, "B V"], Memory]:
        """Reads one more symbol of each row: see `CachedPasses.step`."""
        places = jnp.asarray(places, jnp.int32).reshape(-1, 1)
        known_read(memory.placement, places)
        _check_room(memory.layers[0].cache)
        return self._step(tokens, places, memory.placement, memory.layers, 0)

    def _step(self, tokens, places, placement, kept, room):
        valid = jnp.ones_like(places, bool)
        x, _ = self._embed(
            "decoder", tokens[:, None], placement, places, valid, None, 0
        )
        x, kept = self._read_layers(x, placement, places, kept, room)
        return self._read_out(x)[:, 0], Memory(placement, kept)

    @compiled_once
    def _read_layers(self, x, placement, places, kept, room):
        """The decoder's last hidden states of new symbols, and what layers keep."""
        shared = as_arrays(self.shared)["decoder"]
        _, common = placement.layers()

        def visit(at, block, x, own, kept, rng):
            where = tokens_at(own | common, places, jnp.ones_like(places, bool))
            cache = kept.cache

            def attend_cached(h):
                nonlocal cache
                out, cache = cached_attention(
                    block.attention,
                    h,
                    where,
                    cache,
                    shared=shared,
                    mask=Causal(),
                    capacity=room,
                )
                return out

            look = self._look(block, where, kept.remembered)
            x = block.with_cross(x, attend_cached, look)
            return x, Kept(cache, kept.remembered)

        return self._walk(self.decoder, x, visit, placement, kept=kept)

    def _embed(self, part, tokens, placement, places, valid, rng, first_row):
        """Embedded symbols of one part, and the key for its layers' dropout."""
        spec, (own, common) = self.spec, placement.layers()
        first = jax.tree.map(lambda array: array[0], own)
        x = symbol_vectors(self.embedding[...], tokens) * embedding_scale(spec)
        where = tokens_at(first | common, places, valid)
        x = spec.encoding.embed(as_arrays(self.shared)[part], x, where)
        rng, layers_rng = (None, None) if rng is None else jax.random.split(rng)
        x = x.astype(spec.settings.dtype)
        return dropout(x, spec.settings.dropout, rng, first_row), layers_rng

    def _encode(self, x, placement, places, valid, rng, first_row):
        """The encoder's output, of embedded symbols."""
        shared, settings = as_arrays(self.shared)["encoder"], self.spec.settings
        _, common = placement.layers()

        def visit(at, block, x, own, kept, rng):
            where = tokens_at(own | common, places, valid)
            layer = partial(block, shared=shared, rng=rng, first_row=first_row)
            return rematerialized(layer, settings.remat)(x, where), kept

        x = self._walk(self.encoder, x, visit, placement, rng)[0]
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def _look(self, block, where, remembered, rng=None, first_row=0):
        """Cross attention to what a layer remembers, as a function."""
        rng = None if rng is None else jax.random.fold_in(rng, _CROSS)
        return lambda h: block.cross.look(
            h,
            where,
            remembered,
            shared=as_arrays(self.shared)["cross"],
            implementation=self.spec.settings.implementation,
            rng=rng,
            first_row=first_row,
        )

    def _walk(self, layers, x, visit, placement, rng=None, kept=None):
        return walk_layers(
            [layers],
            x,
            visit,
            own=placement.layers()[0],
            kept=kept,
            scan=self.spec.scan_layers,
            rng=rng,
        )

    def _read_out(self, x):
        x = x if self.final_norm is None else self.final_norm(x)
        return self.spec.readout(self, x, self.spec.num_outputs)


def _check_room(cache: Cache) -> None:
    """Raises ValueError if layers' caches are known to have no room for a symbol."""
    capacity = cache.k.shape[-3]
    if not isinstance(cache.count, jax.core.Tracer) and cache.count.max() >= capacity:
        raise ValueError(
            f"the decoder has read the separator and {capacity - 1} symbols, all that "
            "there is room for; call start with a larger capacity."
        )
