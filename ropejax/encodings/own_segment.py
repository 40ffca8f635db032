"""How long the sequence of each token is, where a row packs several of them.

What follows the length of a sequence must then count within the token's own segment, or
a packed sequence would not be treated as it is alone. Index tells the order of tokens,
and may go on through a row or start anew in each segment: only differences count.
"""

from typing import NamedTuple

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
    batch = max(key.index.shape[0], key.segments.shape[0])
    if key.valid is not None:
        batch = max(batch, key.valid.shape[0])
    known = {
        "index": key.index,
        "segment": key.segments,
        "valid": jnp.ones((1, 1), bool) if key.valid is None else key.valid,
    }
    shape = (batch, key.length)
    return {
        name: jnp.broadcast_to(x, shape).astype(jnp.int32) for name, x in known.items()
    }


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
    same = where.segments[:, :, None] == keys["segment"][:, None, :]
    same &= keys["valid"][:, None, :] > 0
    index, ends = keys["index"][:, None, :], jnp.iinfo(jnp.int32)
    first = jnp.where(same, index, ends.max).min(-1)
    last = jnp.where(same, index, ends.min).max(-1)
    valid = same.sum(-1, dtype=jnp.int32)
    length = jnp.where(valid > 0, last - first + 1, 0)
    before = jnp.where(where.index < first, 0, where.index - first + 1)
    return Counts(length, before, valid)
