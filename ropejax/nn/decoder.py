"""Passes of a decoder-only Transformer that keep what earlier tokens left behind.

Keys and values of tokens that were read stay in a cache for each layer (and each loop
of a looped model), so that a further token costs one column of attention. Positions of
the whole row are given from the start: `places` say which of its tokens are read.

The methods are for `ropejax.nn.Transformer`, which has them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.attention import Cache, attend
from ropejax.nn.looped import walk_layers
from ropejax.nn.parameters import as_arrays
from ropejax.nn.whole_pass import compiled_once
from ropejax.positions.base import Placement
from ropejax.tokens import Tokens
from ropejax.typing import Params
from ropejax.whole_numbers import whole_number


class Memory(NamedTuple):
    """What decoding keeps.

    Attributes:
        placement: where all tokens of the rows are, those to come included.
        caches: one a kind of layers, arrays with leading axes of loops and repetitions.
    """

    placement: Placement
    caches: list[Cache]


class _State(NamedTuple):
    """A cache's state: what a layer hands on beside keys and values.

    Attributes:
        encoding: what `Encoding.key_features` returned.
        token_shift: what `Unshifted.shifted` returned. It passes padding over.
    """

    encoding: Any
    token_shift: Any


class CachedPasses:
    """Reading a prompt, and then one token after the other, with caches."""

    @property
    def can_cache(self) -> bool:
        """False if an encoding needs the total length, which changes as tokens come.

        Or if the normalizer needs the queries before. Then repeated full passes over
        rows of known length do.
        """
        kinds, settings = self.spec.pattern, self.spec.settings
        if settings.normalizer.needs_earlier_queries:
            return False
        return self.spec.dims.causal and not any(
            kind.encoding.length_dependent for kind in kinds
        )

    def has_state(self, placement: Placement) -> bool:
        """True if an encoding hands a state on from token to token.

        Such a prompt cannot be read at once with padding behind it.
        """
        own, common = placement.layers()
        rows = [array.shape[1] for array in jax.tree.leaves(own)]
        rows = max([array.shape[0] for array in jax.tree.leaves(common)] + rows + [1])
        one = jnp.zeros((1, 1), jnp.int32)
        tokens = jnp.zeros((rows, 1), jnp.int32)
        read = lambda placement: self._read(tokens, one, one == 0, placement, None, 1)
        memory = jax.eval_shape(read, placement)[1]
        return bool(jax.tree.leaves([c.state.encoding for c in memory.caches]))

    def start(
        self,
        tokens: Int[Array, "B S"],
        placement: Placement,
        prompts: Int[Array, ""] | Int[Array, " B"],
        *,
        capacity: int,
    ) -> tuple[Float[Array, "B V"], Memory]:
        """Reads prompts.

        Args:
            tokens: symbols from the rows' start on, `[B, S]`; those behind a row's
                prompt are not looked at.
            placement: where the tokens of the whole rows are.
            prompts: number of tokens of the prompts, 1 .. S, of all rows or of each.
            capacity: most tokens that will be read, S included.

        Returns:
            Logits `[B, V]` at the prompts' last tokens, and what to go on with.

        Raises:
            ValueError: if prompts differ in length and an encoding has a state, or
                `capacity` exceeds the tokens that have a place.
        """
        capacity = whole_number("capacity", capacity, least=1)
        check_places(placement, capacity)
        prompts = jnp.asarray(prompts, jnp.int32)
        size = tokens.shape[1]
        places = jnp.arange(size, dtype=jnp.int32)[None]
        if self.has_state(placement):
            if prompts.ndim:
                raise ValueError(
                    "an encoding with a state reads prompts token by token, so they "
                    "must be of one length; give prompts as a scalar, or decode by "
                    "full passes."
                )
            return self._start_token_by_token(tokens, placement, prompts, capacity)
        if prompts.ndim:
            places = jnp.broadcast_to(places, tokens.shape)
        valid = places < prompts.reshape(-1, 1)
        states, memory = self._read(tokens, places, valid, placement, None, capacity)
        last = jnp.broadcast_to(prompts.reshape(-1) - 1, tokens.shape[:1])
        states = jnp.take_along_axis(states, last[:, None, None], axis=1)
        return self.read_out(states)[:, 0], memory

    def step(
        self,
        memory: Memory,
        tokens: Int[Array, " B"],
        places: Int[Array, ""] | Int[Array, " B"],
    ) -> tuple[Float[Array, "B V"], Memory]:
        """Reads one more token of each row.

        Args:
            memory: what earlier reading left.
            tokens: the symbols, `[B]`.
            places: the tokens' places in their rows, one for all or one each, as
                `prompts` of `start` were.

        Returns:
            Logits `[B, V]` at the tokens, and what to go on with; NaN where places are
            traced and beyond the capacity.

        Raises:
            ValueError: if places are known, and beyond the capacity or the tokens that
                have a place.
        """
        places = jnp.asarray(places, jnp.int32).reshape(-1, 1)
        if (read := known_read(memory.placement, places)) is not None:
            _check_room(memory.caches, read)
        states, memory = self._read(
            tokens[:, None],
            places,
            jnp.ones_like(places, bool),
            memory.placement,
            memory.caches,
            0,
        )
        return self.read_out(states)[:, 0], memory

    def _start_token_by_token(self, tokens, placement, prompt, capacity):
        zero = jnp.zeros((1, 1), jnp.int32)
        states, memory = self._read(
            tokens[:, :1], zero, zero == 0, placement, None, capacity
        )
        logits = self.read_out(states)[:, 0]

        def further(place, carry):
            token = jax.lax.dynamic_index_in_dim(tokens, place, 1, keepdims=False)
            return self.step(carry[1], token, place)

        return jax.lax.fori_loop(1, prompt, further, (logits, memory))

    def _read(self, tokens, places, valid, placement, caches, capacity):
        """Last hidden states of tokens at places `[b, T]`, and all memory after."""
        own, common = placement.layers()
        first = jax.tree.map(lambda array: array[0], own)
        x = self.embed_tokens(tokens, tokens_at(first | common, places, valid))
        x, caches = self._read_layers(x, places, valid, placement, caches, capacity)
        return x, Memory(placement, caches)

    @compiled_once
    def _read_layers(self, x, places, valid, placement, caches, capacity):
        own, common = placement.layers()
        shared = list(as_arrays(self.shared).values())

        def visit(at, block, x, own, cache, rng):
            where = tokens_at(own | common, places, valid)

            def attend_cached(h):
                nonlocal cache
                out, cache = cached_attention(
                    block.attention,
                    h,
                    where,
                    cache,
                    shared=shared[at],
                    mask=self.spec.pattern[at].mask,
                    capacity=capacity,
                )
                return out

            x = block.around(x, attend_cached)
            return x, cache

        return walk_layers(
            list(self.layers.values()),
            x,
            visit,
            own=own,
            kept=caches,
            loops=self.spec.loops,
            injection=self.spec.input_injection,
        )


def check_places(placement: Placement, tokens: int) -> None:
    """Raises ValueError if so many tokens of a row would run out of places."""
    if placement.num_places is not None and tokens > placement.num_places:
        raise ValueError(
            f"{tokens} tokens cannot be read where {placement.num_places} are placed; "
            "place the whole rows, those to come included, or lower capacity."
        )


def known_read(placement: Placement, places: Int[Array, "B 1"]) -> int | None:
    """Returns how many tokens are read once those at these places are; None if traced.

    Raises:
        ValueError: if the places are known, and some have no token.
    """
    if isinstance(places, jax.core.Tracer):
        return None
    if (first := int(places.min())) < 0:
        raise ValueError(f"places of tokens are counted from 0, got {first}.")
    read = int(places.max()) + 1
    check_places(placement, read)
    return read


def _check_room(caches: list[Cache], tokens: int) -> None:
    """Raises ValueError if so many tokens of a row do not fit into its caches."""
    capacity = caches[0].k.shape[-3]
    if tokens > capacity:
        raise ValueError(
            f"{tokens} tokens cannot be read into caches of capacity={capacity}; call "
            "start with a larger capacity."
        )


def cached_attention(
    attention: Any,
    x: Float[Array, "B T D"],
    where: Tokens,
    cache: Cache | None,
    *,
    shared: Params,
    mask: Any,
    capacity: int,
) -> tuple[Float[Array, "B T D"], Cache]:
    """Self-attention of further tokens, to those in the cache and to themselves.

    Args:
        attention: a `SelfAttention`, such as `MultiHeadAttention`.
        x: the tokens' hidden states, `[B, T, D]`.
        where: where they are.
        cache: earlier tokens; None if there are none.
        shared: the encoding's parameters that all layers share.
        mask: a mask of `ropejax.masks`, or None.
        capacity: size of a new cache.

    Returns:
        Hidden states `[B, T, D]`, and the cache with these tokens.
    """
    encoding, dims = attention.encoding, attention.dims
    own = as_arrays(attention.encoding_params)
    # A table of distances is the rows' own, and no token's: it stays out of the cache.
    table, stored = where.distances, where.replace(distances=None)
    read = lambda cache: cache.key.replace(distances=table)
    known = where if cache is None else read(cache)
    state = _State(None, None) if cache is None else cache.state
    params = encoding.prepare(shared, own, where, known, dims)
    (q, k, v), shift = attention.projected(x, where, state.token_shift)
    query = where.replace(
        features=encoding.query_features(params, x, q, where, state.encoding)
    )
    features, after = encoding.key_features(params, x, k, where, state.encoding)
    key = stored.replace(features=features)
    if cache is None:
        cache = Cache.empty(k, v, key, capacity=capacity)
    cache = cache.extended(k, v, key, _State(after, shift))
    out = attend(
        q,
        cache.k,
        cache.v,
        encoding=encoding,
        params=encoding.prepare(shared, own, query, read(cache), dims),
        query=query,
        key=read(cache),
        mask=mask,
        **attention.how(x, where, read(cache), mask),
    )
    return attention.output(x, out), cache


def tokens_at(
    arrays: dict[str, Any], places: Int[Array, "b T"], valid: Array
) -> Tokens:
    """Returns the `Tokens` at places of rows whose positions are given in whole.

    Args:
        arrays: `positions`, `distances` and `streams` of one layer, as far as given.
        places: places in the rows, `[B or 1, T]`.
        valid: False where a place holds padding, `[B or 1, T]`.
    """

    def take(array):
        array = jnp.asarray(array)  # NumPy's has no entries at traced places
        if places.shape[0] == 1:
            return array[:, places[0]]
        array = jnp.broadcast_to(array, (places.shape[0], *array.shape[1:]))
        return jax.vmap(lambda row, at: row[at])(array, places)

    along = {name: arrays[name] for name in ("positions", "streams") if name in arrays}
    along = {"positions": places} | jax.tree.map(take, along)
    return Tokens(index=places, valid=valid, distances=arrays.get("distances"), **along)
