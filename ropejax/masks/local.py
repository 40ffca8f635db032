"""Masks that go by how far apart two tokens are, or by the chunk they lie in."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from ropejax.masks.base import (
    MOST,
    Index,
    Mask,
    Recipe,
    Visibility,
    check_are_tokens,
    check_count,
    check_counts,
    check_masks,
)


@dataclasses.dataclass(frozen=True)
class Full(Mask):
    """Every key is visible: what `mask=None` means, for use inside `PerHead`."""

    summary: ClassVar[str] = "every key"

    shows_itself: ClassVar[bool] = True

    def pairs(self, i, j):
        """Returns where key indices j are visible from query indices i."""
        return jnp.ones(jnp.broadcast_shapes(i.shape, j.shape), bool)

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        some, _ = super().blocks(query_lo, query_hi, key_lo, key_hi)
        return Visibility(some, some)


@dataclasses.dataclass(frozen=True)
class Causal(Mask):
    """A query sees itself and the past: `j <= i`.

    By index, so fewer queries than keys align by where they are, not by array corner.
    """

    summary: ClassVar[str] = "a query's own key and the past"

    shows_itself: ClassVar[bool] = True

    def pairs(self, i, j):
        """Returns where key indices j are visible from query indices i."""
        return j <= i

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        return Visibility(key_lo <= query_hi, key_hi <= query_lo)


@dataclasses.dataclass(frozen=True)
class Window(Mask):
    """A query sees `before` keys before itself, itself, and `after` keys after it.

    `i - before <= j <= i + after`; None leaves a side open.

    Attributes:
        before: keys visible before the query, or None for all.
        after: keys visible after the query, or None for all.
    """

    summary: ClassVar[str] = "some keys before a query, its own, and some after it"

    before: int | None
    after: int | None = 0

    def __post_init__(self):
        check_counts(self, before=0, after=0)

    @classmethod
    def sliding(cls, width: int) -> "Window":
        """Returns the causal window of `width` keys, the query's own included.

        `0 <= i - j < width`, as Mistral counts (arXiv 2310.06825).

        Args:
            width: keys that a query sees, its own included.

        Raises:
            ValueError: if the width is no positive integer.
        """
        check_count(cls, "width", width, 1)
        return cls(width - 1, 0)

    @classmethod
    def symmetric(cls, width: int) -> "Window":
        """Returns the window `|i - j| <= width // 2`: an even width sees width + 1.

        Args:
            width: both sides together.

        Raises:
            ValueError: if the width is no positive integer.
        """
        check_count(cls, "width", width, 1)
        return cls(width // 2, width // 2)

    @property
    def reach(self) -> int | None:
        """The keys before the query, or None."""
        return self.before

    shows_itself: ClassVar[bool] = True

    def pairs(self, i, j):
        """Returns where key indices j are visible from query indices i."""
        visible = jnp.ones(jnp.broadcast_shapes(i.shape, j.shape), bool)
        if self.before is not None:
            visible &= i - j <= self.before
        if self.after is not None:
            visible &= j - i <= self.after
        return visible

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        some, every = Full().blocks(query_lo, query_hi, key_lo, key_hi)
        if self.before is not None:
            some &= query_lo - key_hi <= self.before
            every &= query_hi - key_lo <= self.before
        if self.after is not None:
            some &= key_lo - query_hi <= self.after
            every &= key_hi - query_lo <= self.after
        return Visibility(some, every)


@dataclasses.dataclass(frozen=True)
class Dilated(Mask):
    """A query sees every `step`-th key of a window, itself included.

    `before` and `after` count visible keys, so the window reaches `step` times as far.

    Attributes:
        step: distance between visible keys.
        before: keys visible before the query, or None for all.
        after: keys visible after the query, or None for all.
    """

    summary: ClassVar[str] = "every step-th key of a window"

    step: int
    before: int | None
    after: int | None = 0

    def __post_init__(self):
        check_counts(self, before=0, after=0)
        check_count(self, "step", self.step, 1)
        far = max(n or 0 for n in (self.before, self.after)) * self.step
        if far > MOST:
            raise ValueError(
                f"Dilated(step=...) times the keys on a side must be below 2**31, got "
                f"{far}; None leaves a side open."
            )

    @property
    def reach(self) -> int | None:
        """That of its window, or None."""
        return self._window().before

    shows_itself: ClassVar[bool] = True

    def _window(self) -> Window:
        return Window(
            *(None if n is None else n * self.step for n in (self.before, self.after))
        )

    def pairs(self, i, j):
        """Returns where key indices j are visible from query indices i."""
        return self._window().pairs(i, j) & ((i - j) % self.step == 0)

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        some, every = self._window().blocks(query_lo, query_hi, key_lo, key_hi)
        if self.step == 1:
            return Visibility(some, every)
        single = (query_lo == query_hi) & (key_lo == key_hi)
        hit = (query_lo - key_lo) % self.step == 0
        return Visibility(some & (~single | hit), every & single & hit)


@dataclasses.dataclass(frozen=True)
class Blocks(Mask):
    """Another mask, applied to blocks of `size` tokens instead of tokens.

    Attributes:
        mask: which block sees which: its i and j are `index // size`.
        size: tokens a block.
    """

    summary: ClassVar[str] = "another mask, on blocks of tokens instead of tokens"

    mask: Mask
    size: int

    def __post_init__(self):
        check_count(self, "size", self.size, 1)
        check_masks((self.mask,))

    @property
    def reach(self) -> int | None:
        """That of its mask, in tokens, or None."""
        blocks = self.mask.reach
        return None if blocks is None else (blocks + 1) * self.size - 1

    @property
    def shows_itself(self) -> bool:
        """True if a block sees itself."""
        return self.mask.shows_itself

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        check_are_tokens(query, key)
        coarse = (t.replace(index=t.index // self.size) for t in (query, key))
        return self.mask(*coarse)

    def blocks(self, query_lo: Index, query_hi: Index, key_lo: Index, key_hi: Index):
        """Returns what is certain for blocks of queries against blocks of keys."""
        ends = (x // self.size for x in (query_lo, query_hi, key_lo, key_hi))
        return self.mask.blocks(*ends)


@dataclasses.dataclass(frozen=True)
class Chunked(Recipe):
    """A query sees the past within its own chunk: `i // size == j // size, j <= i`.

    Attributes:
        size: tokens a chunk (Llama 4: 8,192).
    """

    summary: ClassVar[str] = "the past within a query's own chunk (Llama 4)"

    size: int

    def __post_init__(self):
        check_count(self, "size", self.size, 1)

    def rule(self):
        """Returns the combination."""
        return Blocks(Window(0, 0), self.size) & Causal()


@dataclasses.dataclass(frozen=True)
class BlockwiseCausal(Recipe):
    """A query sees the past within its own block and the block before.

    At inference the block is half the trained length, so that no distance exceeds it
    (Sun et al. 2022, "A Length-Extrapolatable Transformer", arXiv 2212.10554).

    Attributes:
        size: tokens a block.
    """

    summary: ClassVar[str] = "the past within a query's own block and the one before"

    size: int

    def __post_init__(self):
        check_count(self, "size", self.size, 1)

    def rule(self):
        """Returns the combination."""
        return Blocks(Window(1, 0), self.size) & Causal()
