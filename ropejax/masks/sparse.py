"""Masks that add far keys to near ones: global tokens, sinks, random keys, recipes."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ropejax.concrete import known_values
from ropejax.manual_axes import varying_like
from ropejax.masks.base import (
    Index,
    Mask,
    Recipe,
    Visibility,
    check_are_tokens,
    check_count,
    check_counts,
)
from ropejax.masks.hashing import random_bits
from ropejax.masks.local import Blocks, Causal, Dilated, Full, Window
from ropejax.tokens import Tokens

_ROWS_DRAWN = 8  # blocks of at most so many rows have their random keys looked up


@dataclasses.dataclass(frozen=True)
class Global(Mask):
    """Global tokens see all keys and are seen by all queries.

    Attributes:
        first: the first so many tokens are global.
        at: indices of further global tokens.
    """

    summary: ClassVar[str] = "tokens that see all keys, and that all queries see"

    first: int = 0
    at: tuple[int, ...] = ()

    def __post_init__(self):
        check_count(self, "first", self.first)
        if not isinstance(self.at, tuple):
            raise ValueError(f"Global(at=...) must be a tuple, got {self.at!r}.")
        for index in self.at:
            check_count(self, "at", index)

    @property
    def reach(self) -> int | None:
        """Zero: single tokens, no window."""
        return 0

    def _is_global(self, x: Index):
        return (x < self.first) | _any_equal(x, self.at)

    def pairs(self, i, j):
        """Returns where key indices j are visible from query indices i."""
        return self._is_global(i) | self._is_global(j)

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        q_some, q_all = self._block_is_global(query_lo, query_hi)
        k_some, k_all = self._block_is_global(key_lo, key_hi)
        return Visibility(q_some | k_some, q_all | k_all)

    def _block_is_global(self, lo: Index, hi: Index):
        some, every = lo < self.first, hi < self.first
        for index in self.at:
            some |= (lo <= index) & (index <= hi)
            every |= (lo == index) & (index == hi)
        return some, every


@dataclasses.dataclass(frozen=True)
class Prefix(Mask):
    """Every query sees the first `length` keys; a prefix LM is `Causal() | Prefix(n)`.

    Attributes:
        length: number of keys that all queries see.
    """

    summary: ClassVar[str] = "the first keys; of a prefix LM, Causal() | Prefix(n)"

    length: int

    def __post_init__(self):
        check_count(self, "length", self.length)

    @property
    def reach(self) -> int | None:
        """Zero: single tokens, no window."""
        return 0

    def pairs(self, i, j):
        """Returns where key indices j are visible from query indices i."""
        return (j < self.length) & Full().pairs(i, j)

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        some, every = Full().blocks(query_lo, query_hi, key_lo, key_hi)
        return Visibility(some & (key_lo < self.length), every & (key_hi < self.length))


@dataclasses.dataclass(frozen=True)
class Marked(Mask):
    """Every query sees the keys that a stream of their Tokens marks, row by row.

    `Causal() | Marked("prefix")` is a prefix LM whose prefix differs by row.

    Attributes:
        stream: name in `Tokens.streams`; nonzero marks a key.
    """

    summary: ClassVar[str] = "keys that a stream of positions marks, row by row"

    stream: str

    @property
    def reach(self) -> int | None:
        """Zero: single tokens, no window."""
        return 0

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        check_are_tokens(query, key)
        if key.streams is None or self.stream not in key.streams:
            raise ValueError(
                f"Marked({self.stream!r}) needs that stream in the keys' Tokens, which "
                f"have {sorted(key.streams or {})}."
            )
        marks = key.streams[self.stream][:, None, None, :] != 0
        return jnp.broadcast_to(marks, (*marks.shape[:2], query.length, key.length))


@dataclasses.dataclass(frozen=True)
class Random(Mask):
    """A query sees `count` keys drawn at random, the same ones at every call.

    A uniform draw without replacement (Floyd's algorithm), a function of seed and query
    index only; a query with fewer candidates than `count` sees all of them.

    Attributes:
        count: keys a query.
        seed: another seed, other keys.
        first: keys before this index are not drawn.
        last: keys from this index on are not drawn; None draws from the query's past,
            itself included, whatever the length.
        gap: keys at most so far from the query are not drawn; None excludes none.
    """

    summary: ClassVar[str] = "so many keys at random, the same ones at every call"

    count: int
    seed: int = 0
    first: int = 0
    last: int | None = None
    gap: int | None = None

    def __post_init__(self):
        check_count(self, "count", self.count, 1)
        check_counts(self, seed=0, first=0, last=0, gap=0)
        if self.last is not None and self.last < self.first:
            raise ValueError(
                f"Random(last=...) must be at least first={self.first}, got "
                f"{self.last}: there is no key to draw."
            )

    @property
    def reach(self) -> int | None:
        """Zero: single tokens, no window."""
        return 0

    def drawn(self, i: Index) -> Int[Array, "*N"]:
        """Returns the keys of queries i, a row for each draw, -1 for no key.

        Args:
            i: query indices.
        """
        end = i + 1 if self.last is None else jnp.full_like(i, self.last)
        end = jnp.maximum(end, self.first)
        hole = width = jnp.zeros_like(i)
        if self.gap is not None:
            hole = jnp.clip(i - self.gap, self.first, end)
            width = jnp.clip(i + self.gap + 1, self.first, end) - hole
        candidates = end - self.first - width

        def draw(n, chosen):
            top = candidates - self.count + n  # Floyd: draw from 0..top
            span = jnp.maximum(top + 1, 1).astype(jnp.uint32)
            pick = (random_bits(self.seed, i, n) % span).astype(i.dtype)
            pick = jnp.where((chosen == pick).any(axis=0), top, pick)
            return chosen.at[n].set(jnp.where(top < 0, -1, pick))

        none = jnp.full((self.count, *i.shape), -1, i.dtype)
        chosen = jax.lax.fori_loop(0, self.count, draw, varying_like(none, i))
        placed = jnp.where(chosen < 0, -1, chosen + self.first)
        return jnp.where(placed >= hole, placed + width, placed)

    def pairs(self, i, j):
        """Returns where key indices j are visible from query indices i."""
        ndim = max(jnp.ndim(i), jnp.ndim(j))
        i = jnp.reshape(i, (1,) * (ndim - jnp.ndim(i)) + jnp.shape(i))
        return (self.drawn(i) == j).any(axis=0) & Full().pairs(i, j)

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        past = key_lo <= query_hi if self.last is None else key_lo < self.last
        some = past & (key_hi >= self.first) & (query_lo <= query_hi)
        query_lo, query_hi, key_lo, key_hi = (
            jnp.reshape(x, (1,) * (some.ndim - jnp.ndim(x)) + jnp.shape(x))
            for x in (query_lo, query_hi, key_lo, key_hi)
        )
        rows = jnp.arange(_ROWS_DRAWN, dtype=query_lo.dtype)
        i = rows.reshape(-1, *(1,) * some.ndim) + query_lo
        j = self.drawn(i)
        hit = (i <= query_hi) & (key_lo <= j) & (j <= key_hi)
        hit = hit.any(axis=(0, 1))
        few = query_hi - query_lo < _ROWS_DRAWN
        return Visibility(some & (hit | ~few), jnp.zeros(some.shape, bool))


@dataclasses.dataclass(frozen=True)
class Lambda(Recipe):
    """A query sees the first `sinks` keys and a causal window of `window` keys.

    `j <= i and (j < sinks or i - j < window)`: StreamingLLM (Xiao et al. 2023, arXiv
    2309.17453; 4 sinks) and LM-Infinite (Han et al. 2023, arXiv 2308.16137).

    Attributes:
        sinks: first keys that stay visible.
        window: keys of the window, the query's own included.
    """

    summary: ClassVar[str] = "the first keys and a causal window (StreamingLLM)"

    sinks: int
    window: int

    def __post_init__(self):
        check_count(self, "sinks", self.sinks)
        check_count(self, "window", self.window, 1)

    def rule(self):
        """Returns the combination."""
        return Causal() & (Prefix(self.sinks) | Window.sliding(self.window))


@dataclasses.dataclass(frozen=True)
class Longformer(Recipe):
    """A symmetric, possibly dilated window and global tokens.

    Beltagy et al. 2020, arXiv 2004.05150. The paper's separate projections for global
    tokens are the model's affair, not the mask's.

    Attributes:
        window: `window // 2` keys are visible on each side.
        step: distance between visible keys.
        globals: the first so many tokens are global.
        at: indices of further global tokens.
    """

    summary: ClassVar[str] = "a window, perhaps dilated, and global tokens"

    window: int
    step: int = 1
    globals: int = 1
    at: tuple[int, ...] = ()

    def __post_init__(self):
        for name, least in (("window", 1), ("step", 1), ("globals", 0)):
            check_count(self, name, getattr(self, name), least)
        self.rule()

    def rule(self):
        """Returns the combination."""
        half = self.window // 2
        return Dilated(self.step, half, half) | Global(self.globals, self.at)


@dataclasses.dataclass(frozen=True)
class BigBird(Recipe):
    """Blocks see their neighbours, the first and last blocks, and some at random.

    Zaheer et al. 2020, arXiv 2007.14062. Bidirectional.

    Departures:
        The random blocks of a block are a uniform draw from those that are neither
        neighbours nor global, by a hash of seed and block; the published code draws
        with NumPy and treats the last rows separately.

    Attributes:
        length: tokens of the sequence, which say where the last block is.
        block: tokens a block.
        random: random blocks a block.
        neighbors: blocks visible on each side.
        seed: another seed, other random blocks.

    Raises:
        ValueError: when called, for tokens that are known to lie beyond `length`.
    """

    summary: ClassVar[str] = "neighbouring blocks, the first and last, and random ones"

    length: int
    block: int = 64
    random: int = 3
    neighbors: int = 1
    seed: int = 0

    def __post_init__(self):
        for name, least in (("length", 1), ("block", 1), ("random", 1)):
            check_count(self, name, getattr(self, name), least)
        check_count(self, "neighbors", self.neighbors)
        check_count(self, "seed", self.seed)

    def rule(self):
        """Returns the combination."""
        last = (self.length - 1) // self.block
        near = Window(self.neighbors, self.neighbors)
        far = Random(
            self.random, self.seed, first=1, last=max(last, 1), gap=self.neighbors
        )
        return Blocks(near | Global(at=(0, last)) | far, self.block)

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        check_are_tokens(query, key)
        for name, where in (("query", query), ("key", key)):
            reach = _known_reach(where)
            if reach > self.length:
                raise ValueError(
                    f"BigBird(length={self.length}) is for sequences of so many "
                    f"tokens, but {name} has {reach}; give the length of the "
                    "sequence, which says where the last block is."
                )
        return super().__call__(query, key)


def _known_reach(where: Tokens) -> int:
    """The least length that a sequence of these tokens is known to have."""
    index, valid = known_values(where.index), True
    if where.valid is not None:
        valid = known_values(where.valid)
    if index is not None and valid is not None:
        return int(np.where(valid, index, -1).max(initial=-1)) + 1
    if where.valid is None and where.segments is None:
        return where.length  # indices differ from each other
    return 0


def _any_equal(x: Index, values) -> Array:
    found = jnp.zeros(jnp.shape(x), bool)
    for value in values:
        found = found | (x == value)
    return found
