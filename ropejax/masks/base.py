"""What a mask is, and how masks combine.

A mask is a frozen, hashable value without arrays that says, by `Tokens.index`, which
query may attend to which key. It stays symbolic, so an engine can ask it about whole
blocks: `blocks` answers in three values (none of the pairs, all of them, or neither is
certain), and the answers of `&`, `|` and `~` follow from those of their parts.

Padding and segments are properties of the tokens, not masks: attention rules them out
by itself (`ropejax.attention.dense.visible_pairs`).
"""

import dataclasses
import functools
import numbers
import operator
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.settings import Settings
from ropejax.tokens import Tokens

Index = Int[Array, "*S"]


class Visibility(NamedTuple):
    """What is certain about the pairs of blocks of queries and keys.

    Attributes:
        some: False only if no pair is visible.
        all: True only if every pair is visible.
    """

    some: Bool[Array, "*S"]
    all: Bool[Array, "*S"]


@dataclasses.dataclass(frozen=True)
class Mask(Settings):
    """Which query attends to which key; called as `mask(query, key)`.

    A subclass gives `pairs`, and `blocks` where it can tell more than nothing.
    """

    __array_ufunc__ = None
    """Keeps NumPy from combining a mask with each element of an array by itself."""

    def __and__(self, other: "Mask") -> "Mask":
        return And(_parts(And, self) + _parts(And, other))

    def __rand__(self, other: "Mask") -> "Mask":
        return And(_parts(And, other) + _parts(And, self))

    def __or__(self, other: "Mask") -> "Mask":
        return Or(_parts(Or, self) + _parts(Or, other))

    def __ror__(self, other: "Mask") -> "Mask":
        return Or(_parts(Or, other) + _parts(Or, self))

    def __invert__(self) -> "Mask":
        return Not(self)

    def __call__(self, query: Tokens, key: Tokens) -> Bool[Array, "#B #N T S"]:
        """Returns True where a query may attend to a key.

        Args:
            query: the queries, T of them.
            key: the keys, S of them.

        Raises:
            ValueError: if one of them is something else than `Tokens`.
        """
        check_are_tokens(query, key)
        return self.pairs(query.index[:, None, :, None], key.index[:, None, None, :])

    @property
    def reach(self) -> int | None:
        """How far before itself a query's window reaches; None if it has no end.

        Single far tokens (sinks, global, random) do not count. A hint for the size of
        blocks: nothing but speed depends on it.
        """
        return None

    @property
    def shows_itself(self) -> bool:
        """True if every query is certain to see the key of its own index.

        Where queries and keys are the same tokens, no key is then hidden from all.
        """
        return False

    def pairs(self, i: Index, j: Index) -> Bool[Array, "*S"]:
        """Returns where keys are visible from queries, by their order.

        Args:
            i: indices of queries.
            j: indices of keys; both are broadcast against each other.
        """
        raise NotImplementedError(f"{type(self).__name__} must define pairs.")

    def blocks(
        self, query_lo: Index, query_hi: Index, key_lo: Index, key_hi: Index
    ) -> Visibility:
        """Returns what is certain for blocks of queries against blocks of keys.

        Args:
            query_lo: lowest query index of each block.
            query_hi: highest query index of each block, inclusive.
            key_lo: lowest key index of each block.
            key_hi: highest key index of each block, inclusive.

        Returns:
            False for "some" and True for "all" only where that is certain.
        """
        shape = jnp.broadcast_shapes(
            *(jnp.shape(x) for x in (query_lo, query_hi, key_lo, key_hi))
        )
        return Visibility(jnp.ones(shape, bool), jnp.zeros(shape, bool))

    def block_visible(
        self, query_lo: Index, query_hi: Index, key_lo: Index, key_hi: Index
    ) -> Bool[Array, "*S"]:
        """Returns False only where no query lo..hi may attend to a key lo..hi.

        Args:
            query_lo: lowest query index of each block.
            query_hi: highest query index of each block, inclusive.
            key_lo: lowest key index of each block.
            key_hi: highest key index of each block, inclusive.
        """
        return self.blocks(query_lo, query_hi, key_lo, key_hi).some


@dataclasses.dataclass(frozen=True)
class And(Mask):
    """Visible where every part says so; written `a & b`."""

    summary: ClassVar[str] = "where every part says so; written a & b"

    parts: tuple[Mask, ...]

    def __post_init__(self):
        check_masks(self.parts)

    @property
    def reach(self) -> int | None:
        """The shortest of the parts'."""
        ends = [part.reach for part in self.parts if part.reach is not None]
        return min(ends, default=None)

    @property
    def shows_itself(self) -> bool:
        """True if all parts do."""
        return all(part.shows_itself for part in self.parts)

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        return functools.reduce(operator.and_, _shown(self.parts, query, key))

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        known = [p.blocks(query_lo, query_hi, key_lo, key_hi) for p in self.parts]
        some, every = known[0]
        for part in known[1:]:
            some, every = some & part.some, every & part.all
        return Visibility(some, every)


@dataclasses.dataclass(frozen=True)
class Or(Mask):
    """Visible where any part says so; written `a | b`."""

    summary: ClassVar[str] = "where any part says so; written a | b"

    parts: tuple[Mask, ...]

    def __post_init__(self):
        check_masks(self.parts)

    @property
    def reach(self) -> int | None:
        """The longest of the parts'."""
        return longest_reach(self.parts)

    @property
    def shows_itself(self) -> bool:
        """True if any part does."""
        return any(part.shows_itself for part in self.parts)

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        return functools.reduce(operator.or_, _shown(self.parts, query, key))

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        known = [p.blocks(query_lo, query_hi, key_lo, key_hi) for p in self.parts]
        some, every = known[0]
        for part in known[1:]:
            some, every = some | part.some, every | part.all
        return Visibility(some, every)


@dataclasses.dataclass(frozen=True)
class Not(Mask):
    """Visible where its part is not; written `~a`."""

    summary: ClassVar[str] = "where its part does not; written ~a"

    part: Mask

    def __post_init__(self):
        check_masks((self.part,))

    def __invert__(self) -> Mask:
        return self.part

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        return ~self.part(query, key)

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        some, every = self.part.blocks(query_lo, query_hi, key_lo, key_hi)
        return Visibility(~every, ~some)


def _shown(parts: tuple[Mask, ...], query: Tokens, key: Tokens) -> list[Array]:
    """What each part shows, which must be of as many rows and heads, or of 1."""
    shown = [part(query, key) for part in parts]
    for axis, what in ((0, "rows"), (1, "heads")):
        sizes = {
            x.shape[axis]: part
            for part, x in zip(parts, shown, strict=True)
            if x.ndim == 4
        }
        sizes.pop(1, None)
        if len(sizes) > 1:
            (a, one), (b, other), *_ = sizes.items()
            raise ValueError(
                f"masks that combine must be of as many {what}, or of 1: {one} is of "
                f"{a}, and {other} of {b}."
            )
    return shown


def longest_reach(parts: tuple[Mask, ...]) -> int | None:
    """Returns the longest window of any part, None if one has no end."""
    ends = [part.reach for part in parts]
    return None if None in ends else max(ends)


def check_masks(parts: tuple) -> None:
    """Raises ValueError unless `parts` is a non-empty tuple of masks."""
    if not isinstance(parts, tuple) or not parts:
        raise ValueError(f"parts must be a non-empty tuple of masks, got {parts!r}.")
    for part in parts:
        if not isinstance(part, Mask):
            raise ValueError(
                f"masks combine with masks, got {part!r}; padding and segments belong "
                "into Tokens (valid, segments)."
            )


def _parts(kind: type, mask) -> tuple:
    check_masks((mask,))
    return mask.parts if isinstance(mask, kind) else (mask,)


@dataclasses.dataclass(frozen=True)
class Recipe(Mask):
    """A mask with a name of its own that is a combination of others."""

    @property
    def reach(self) -> int | None:
        """That of the combination."""
        return self.rule().reach

    @property
    def shows_itself(self) -> bool:
        """True if the combination does."""
        return self.rule().shows_itself

    def rule(self) -> Mask:
        """Returns the combination."""
        raise NotImplementedError(f"{type(self).__name__} must define rule.")

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        return self.rule()(query, key)

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        return self.rule().blocks(query_lo, query_hi, key_lo, key_hi)


def check_are_tokens(query: Tokens, key: Tokens) -> None:
    """Raises ValueError unless a mask is asked about `Tokens`."""
    for name, where in (("query", query), ("key", key)):
        if not isinstance(where, Tokens):
            raise ValueError(
                f"{name} must say where tokens are, as ropejax.tokens.tokens(length) "
                f"does, got {type(where).__name__}."
            )


MOST = 2**31 - 1
"""The largest number of tokens, since indices are int32."""


def check_count(mask: Mask | type[Mask], name: str, value, least: int = 0) -> None:
    """Raises ValueError unless `value` is an integer of at least `least`, and int32."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if whole and least <= value <= MOST:
        return
    kind = mask if isinstance(mask, type) else type(mask)
    raise ValueError(
        f"{kind.__name__}({name}=...) must be an integer of at least {least} and below "
        f"2**31, got {value!r}."
    )


def check_counts(mask: Mask, **least: int) -> None:
    """Raises ValueError unless attributes of those names are such integers, or None."""
    for name, number in least.items():
        if getattr(mask, name) is not None:
            check_count(mask, name, getattr(mask, name), number)
