"""A key/value cache for decoding, for any encoding.

It keeps raw keys and values, where their tokens are, and what the encoding computed for
each of them; `keys` and `values` run on reading. So methods whose rotation depends on
the query, or on the length so far, need no special case. Memory is allocated once.

    cache = Cache.empty(k, v, key, capacity=256)       # shapes of a first chunk
    cache = cache.extended(k, v, key)
    out = attend(q, cache.k, cache.v, query=query, key=cache.key, ...)

A rolling cache keeps the first `sinks` tokens and the latest others (StreamingLLM).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.attention.cache_checks import (
    check_alike,
    check_chunk,
    check_new_order,
    check_rows,
    check_sizes,
    check_state,
)
from ropejax.positions.cache_index import streaming_positions
from ropejax.tokens import Tokens


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values so far.

    Attributes:
        k: keys before `Encoding.keys`, `[B, C, K, H]`, C the capacity.
        v: values before `Encoding.values`, `[B, C, K, Hv]`.
        key: where they are, with features; `valid` is False at slots not yet filled.
        state: what `Encoding.key_features` returned after the last token.
        count: tokens seen so far.
        sinks: static; a rolling cache's first tokens, which stay; None if it does not
            roll.
    """

    k: Float[Array, "B C K H"]
    v: Float[Array, "B C K H"]
    key: Tokens
    state: Any
    count: Int[Array, ""]
    sinks: int | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def empty(
        cls,
        k: Float[Array, "B S K H"],
        v: Float[Array, "B S K H"],
        key: Tokens,
        *,
        capacity: int,
        sinks: int | None = None,
    ) -> "Cache":
        """Returns a cache without tokens, for chunks that look like this one.

        Args:
            k: keys of any chunk; only shape and dtype count.
            v: values of any chunk.
            key: Tokens of any chunk, with the encoding's features.
            capacity: most tokens that it can hold.
            sinks: roll over when full, keeping this many first tokens; None refuses to
                take more than `capacity`.

        Raises:
            ValueError: if capacity is no positive integer, sinks leave no room to roll,
                or `key` does not go with keys of this shape.
        """
        check_sizes(capacity, sinks)
        check_chunk(k, v, key, together=False)

        def room(x):
            return jnp.zeros((x.shape[0], capacity, *x.shape[2:]), x.dtype)

        arrays = jax.tree.map(room, _with_valid(key).per_token())
        key = key.replace(
            **arrays, consecutive_index=False, consecutive_positions=False
        )
        return cls(room(k), room(v), key, None, jnp.zeros((), jnp.int32), sinks)

    @property
    def capacity(self) -> int:
        """Most tokens that it can hold (static)."""
        return self.k.shape[1]

    def extended(
        self,
        k: Float[Array, "B S K H"],
        v: Float[Array, "B S K H"],
        key: Tokens,
        state: Any = None,
    ) -> "Cache":
        """Returns the cache with S further tokens.

        Where the number of tokens is traced, overflow cannot raise; the new keys and
        values are NaN then, so that it cannot pass unseen. A rolling cache takes
        several tokens at once, such as a prompt, as long as it has room for them.

        Args:
            k: their keys, `[B, S, K, H]`.
            v: their values.
            key: where they are, with features.
            state: what `Encoding.key_features` returned along with them.

        Raises:
            ValueError: if they do not fit, differ from the chunk of `empty` in anything
                but the number of tokens (heads, widths, dtypes, which of segments,
                streams and features there are), are known to be in the cache already,
                lack the state, or do not all fit into a rolling cache that gets more
                than one.
        """
        check_chunk(k, v, key, together=True)
        arrays = {"k": k, "v": v} | _with_valid(key).per_token()
        check_alike({"k": self.k, "v": self.v} | self.key.per_token(), arrays)
        check_state(self.state, state, self.count)
        check_new_order(self.key, key, self.sinks is not None)
        size = key.length
        slot, overflow = self.count, jnp.array(False)
        if self.sinks is None or size > 1:
            overflow = self.count + size > self.capacity
            if size > self.capacity or _is_true(overflow):
                raise ValueError(self._overflows(size))
        else:
            rolled = (self.count - self.sinks) % (self.capacity - self.sinks)
            slot = jnp.where(
                self.count < self.capacity, self.count, self.sinks + rolled
            )

        def put(old, new):
            new = jnp.broadcast_to(new, (old.shape[0], *new.shape[1:]))
            return jax.lax.dynamic_update_slice_in_dim(old, new, slot, axis=1)

        k, v = (jnp.where(overflow, jnp.nan, arrays.pop(name)) for name in "kv")
        arrays = jax.tree.map(put, self.key.per_token(), arrays)
        return dataclasses.replace(
            self,
            k=put(self.k, k),
            v=put(self.v, v),
            key=self.key.replace(**arrays),
            state=state,
            count=self.count + size,
        )

    def _overflows(self, size: int) -> str:
        known = not isinstance(self.count, jax.core.Tracer)
        if self.sinks is None:
            holds = f"holds {self.count} tokens and " if known else ""
            return (
                f"a cache of capacity {self.capacity} overflows: it {holds}got {size} "
                "more."
            )
        held = f"{self.count} of " if known else ""
        return (
            f"a rolling cache takes one token at a time once it is full: it got {size} "
            f"more than {held}{self.capacity}, and queries of a chunk would miss keys "
            "that its later tokens replace; attend to a longer prompt at once, under "
            "Lambda(sinks, window), and give the cache its tokens one by one."
        )

    def of_rows(self, rows: Int[Array, " R"]) -> "Cache":
        """Returns the cache whose row i is this one's row `rows[i]`: for beam search.

        Args:
            rows: rows of the batch, each any number of times; one that is traced and
                not of the batch gives NaN.

        Raises:
            ValueError: if they are no integers on one axis, or one is known to be none
                of the batch's.
        """
        batch = self.k.shape[0]
        check_rows(rows, batch)

        def chosen(x):
            return jnp.take(x, rows, axis=0) if x.shape[:1] == (batch,) else x

        state, arrays = jax.tree.map(chosen, (self.state, self.key.per_token()))
        return dataclasses.replace(
            self,
            k=chosen(self.k),
            v=chosen(self.v),
            key=self.key.replace(**arrays),
            state=state,
        )

    def by_rank(self) -> tuple[Tokens, Int[Array, "#B 1"]]:
        """Returns keys at positions `0 .. held - 1` by rank, and the newest position.

        The newest token is that of the highest index, whatever padding there is.

        StreamingLLM's positions: those within the cache rather than within the text, so
        that none exceeds the capacity. The query that goes with the newest key takes
        the position returned.

        References:
            Xiao et al. 2023, arXiv 2309.17453, section 3.2.
        """
        sinks = self.sinks or 0
        held = jnp.where(self.key.valid, self.key.index, -1)
        newest = held.max(axis=1, keepdims=True)
        query, key, _ = streaming_positions(
            newest, self.key.index, num_sinks=sinks, window=self.capacity - sinks
        )
        return self.key.replace(positions=key[:, 0]), query


def _with_valid(key: Tokens) -> Tokens:
    if key.valid is not None:
        return key
    return key.replace(valid=jnp.ones((1, key.length), bool))


def _is_true(x: Array) -> bool:
    return not isinstance(x, jax.core.Tracer) and bool(x)
