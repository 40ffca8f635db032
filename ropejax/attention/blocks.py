"""Cutting sequences into blocks, and finding out which blocks a mask rules out.

Arrays `[B or 1, L, ...]` stay as they are and blocks are sliced out of them, so that
nothing is copied. A length that the block's size does not divide is padded by repeating
the last token; the repeated keys are marked invalid.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.masks import Mask
from ropejax.masks.base import Visibility
from ropejax.tokens import Tokens


class Grid(NamedTuple):
    """How a sequence is cut: `count` blocks of `size`, the last one padded by `pad`."""

    count: int
    size: int
    pad: int


def grid(length: int, at_most: int) -> Grid:
    """Returns the fewest blocks of at most `at_most` tokens, as equal as can be."""
    count = -(-length // at_most)
    size = -(-length // count)
    return Grid(count, size, count * size - length)


def padded(tree: Any, shape: Grid) -> Any:
    """Returns every leaf `[B, L, ...]` with the last token repeated `pad` times."""
    if not shape.pad:
        return tree

    def one(x):
        end = jnp.repeat(x[:, -1:], shape.pad, axis=1)
        return jnp.concatenate([x, end], axis=1)

    return jax.tree.map(one, tree)


def padded_tokens(where: Tokens, shape: Grid, *, keys: bool) -> Tokens:
    """Returns padded Tokens, without a table of distances.

    Promises about consecutive index and positions are kept: past the end both go on.

    Args:
        where: tokens of a whole side.
        shape: how to cut.
        keys: mark repeated tokens as invalid (queries are dropped at the end instead).
    """
    arrays = padded(where.per_token(), shape)
    if shape.pad:
        past = jnp.arange(shape.count * shape.size)[None] - (where.length - 1)
        past = jnp.maximum(past, 0)
        for name, goes_on in (
            ("index", where.consecutive_index),
            ("positions", where.consecutive_positions),
        ):
            if goes_on:
                arrays[name] = arrays[name] + past.astype(arrays[name].dtype)
        if keys:
            valid = arrays["valid"]
            arrays["valid"] = (past == 0) if valid is None else valid & (past == 0)
    return where.replace(**arrays, distances=None)


def sliced(tree: Any, i: int | Int[Array, ""], size: int) -> Any:
    """Returns block i of every leaf `[B, L, ...]`."""
    return jax.tree.map(
        lambda x: jax.lax.dynamic_slice_in_dim(x, i * size, size, axis=1), tree
    )


class Plan(NamedTuple):
    """Which key blocks each query block visits.

    Attributes:
        order: key blocks in the order of the visit, visible ones first.
        count: how many of them are visible.
        whole: True for two blocks of which every pair is visible: no need to mask.
    """

    order: Int[Array, "q k"]
    count: Int[Array, " q"]
    whole: Bool[Array, "q k"]


def plan(
    query: Tokens,
    key: Tokens,
    mask,
    q: Grid,
    k: Grid,
    *,
    nearest_first: bool,
    skip_between: bool = True,
) -> Plan:
    """Plans the visits from values of index, segments and validity, traced or not.

    Args:
        query: the queries, padded.
        key: the keys, padded.
        mask: a mask or None.
        q: how the queries are cut.
        k: how the keys are cut.
        nearest_first: visit key blocks from the last to the first instead of in storage
            order. Keys are then in order of index.
        skip_between: leave out blocks without a visible pair even if they lie between a
            query and a block that has one. False needs `nearest_first`.
    """
    seen, whole = known_blocks(query, key, mask, q, k)
    rank = jnp.arange(k.count)
    if nearest_first:
        rank = rank[::-1]
    if not skip_between:
        # From the farthest visible block on, all that start before the last query.
        _, last = _as_rows(*_range(query.index, q))
        first, _ = _as_columns(*_range(key.index, k))
        seen = jnp.cumsum(seen, axis=1) > 0
        seen &= (first <= last).any(axis=0)
    order = jnp.argsort(jnp.where(seen, rank, k.count + rank), axis=1)
    return Plan(order.astype(jnp.int32), seen.sum(1, dtype=jnp.int32), whole)


def known_blocks(query: Tokens, key: Tokens, mask, q: Grid, k: Grid) -> Visibility:
    """Returns what is certain about each block of queries and each block of keys.

    Of a mask that is not one of `ropejax.masks` nothing is.

    Args:
        query: the queries, padded.
        key: the keys, padded.
        mask: a mask or None.
        q: how the queries are cut.
        k: how the keys are cut.
    """
    seen = jnp.ones((1, q.count, k.count), bool)
    whole = seen
    if isinstance(mask, Mask):
        rows, columns = _range(query.index, q), _range(key.index, k)
        seen, whole = mask.blocks(*_as_rows(*rows), *_as_columns(*columns))
    elif mask is not None:
        whole = ~whole
    if key.valid is not None:
        valid = key.valid.reshape(-1, 1, k.count, k.size)
        seen, whole = seen & valid.any(axis=3), whole & valid.all(axis=3)
    if query.segments is not None and key.segments is not None:
        q_lo, q_hi = _as_rows(*_range(query.segments, q))
        k_lo, k_hi = _as_columns(*_range(key.segments, k))
        seen = seen & (q_lo <= k_hi) & (k_lo <= q_hi)
        whole = whole & (q_lo == k_hi) & (k_lo == q_hi)
    return Visibility(seen.any(axis=0), whole.all(axis=0))


def _range(x: Int[Array, "B L"], shape: Grid) -> tuple[Array, Array]:
    x = x.reshape(x.shape[0], shape.count, shape.size)
    return x.min(axis=2), x.max(axis=2)


def _as_rows(lo: Int[Array, "B q"], hi: Int[Array, "B q"]) -> tuple[Array, Array]:
    return lo[:, :, None], hi[:, :, None]


def _as_columns(lo: Int[Array, "B k"], hi: Int[Array, "B k"]) -> tuple[Array, Array]:
    return lo[:, None, :], hi[:, None, :]
