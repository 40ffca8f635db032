"""How long the sequence of each token is, where a row packs several of them.

What follows the length of a sequence must then count within the token's own segment, or
a packed sequence would not be treated as it is alone. Index tells the order of tokens,
and may go on through a row or start anew in each segment: only differences count.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ropejax.tokens import Tokens
from ropejax.typing import Array, Int, Params


class Counts(NamedTuple):
    """What a token's own segment holds, `[B, L]` each, int32.

    Attributes:
        length: the last less the first index of its valid keys, plus one; 0 if none.
        before: place of the token in it, from 1 at the first valid key: what a causal
            mask lets it see; 0 if it stands before that, or there is none.
        valid: number of valid keys.
    """

    length: Int[Array, "B L"]
    before: Int[Array, "B L"]
    valid: Int[Array, "B L"]


def segment_keys(key: Tokens) -> Params:
    """Returns what `own_counts` must know of all keys: a part of prepared parameters.

    Args:
        key: the keys, all of them, with segments; the first token of each segment must
            be among them.
    """
    valid = jnp.ones((1, 1), bool) if key.valid is None else key.valid
    known = key.index, key.segments, valid
    shape = (max(x.shape[0] for x in known), key.length)
    index, segment, valid = (jnp.broadcast_to(x, shape) for x in known)
    # Segment by segment, valid keys first, by index: what is asked of a segment stands
    # in a run, so that no pairs of tokens are compared.
    order = jnp.lexsort((index, ~valid, segment), axis=-1)
    index, segment, valid = (
        jnp.take_along_axis(x, order, axis=-1) for x in (index, segment, valid)
    )
    valid = jnp.cumsum(valid, axis=-1, dtype=jnp.int32)
    return {"index": index, "segment": segment, "valid_so_far": valid}


def own_counts(keys: Params, where: Tokens) -> Counts:
    """Returns the counts of each token's own segment.

    Args:
        keys: what `segment_keys` returned.
        where: tokens, queries or keys, any of them, in any order.

    Raises:
        ValueError: if the tokens have no segments.
    """
    if where.segments is None:
        raise ValueError(
            "the keys that prepare was given have segments, but these tokens have "
            "none; give both, or neither."
        )
    rows = max(keys["index"].shape[0], where.segments.shape[0])
    keys = {name: jnp.broadcast_to(x, (rows, x.shape[1])) for name, x in keys.items()}
    wanted = jnp.broadcast_to(where.segments, (rows, where.length))
    begin, end = (_places(keys["segment"], wanted, side) for side in ("left", "right"))
    so_far = jnp.pad(keys["valid_so_far"], ((0, 0), (1, 0)))
    at = lambda x, place: jnp.take_along_axis(x, place, axis=-1, mode="clip")
    valid = at(so_far, end) - at(so_far, begin)
    first = at(keys["index"], begin)
    last = at(keys["index"], begin + jnp.maximum(valid, 1) - 1)
    there = valid > 0
    length = jnp.where(there, last - first + 1, 0)
    before = jnp.where(there & (where.index >= first), where.index - first + 1, 0)
    return Counts(length, before, valid)


def _places(rows: Int[Array, "B S"], wanted: Int[Array, "B L"], side: str) -> Array:
    """Where values belong in rows that are sorted."""
    search = jax.vmap(lambda row, values: jnp.searchsorted(row, values, side=side))
    return search(rows, wanted).astype(jnp.int32)
