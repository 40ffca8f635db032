"""Whether queries see keys after themselves, as far as that is known beforehand."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.concrete import known_values
from ropejax.masks import Mask
from ropejax.tokens import Tokens

_MOST_PAIRS = 2**22  # looked at one by one, in all
_AT_ONCE = 2**18


class Seen(NamedTuple):
    """A query that sees a key after itself, by their indices."""

    query: int
    key: int


def later_key_seen(mask, query: Tokens, key: Tokens) -> Seen | None:
    """Returns a later key that some query sees, or None if there is or is known none.

    The mask is asked about each query and all keys after it at once; only where its
    rule for blocks cannot tell, pairs are looked at one by one, evenly chosen queries
    if there are too many. Where indices are traced, tokens are taken to be the first
    ones of a sequence, and what a traced stream may mark to be marked. Nothing is known
    of a mask that is a function, and of one query whose place, segment or validity of
    keys is traced: it may be the last token.

    Args:
        mask: a mask or None.
        query: the queries.
        key: the keys.
    """
    if mask is not None and not isinstance(mask, Mask):
        return None
    at, keys = known_values(query.index), known_values(key.index)
    parts = [query.segments, key.segments, key.valid]
    known = [None if part is None else known_values(part) for part in parts]
    if query.length == 1 and (
        at is None
        or keys is None
        or any(a is None for a, b in zip(known, parts, strict=True) if b is not None)
    ):
        return None
    if at is None or keys is None:
        at, keys = (np.arange(side.length)[None] for side in (query, key))
        known = [None] * len(known)
    query_segments, key_segments, valid = known
    # Known now, and on no mesh: inside shard_map too.
    nowhere = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with nowhere, jax.ensure_compile_time_eval():
        may_see = np.asarray(_may_see_later(mask, at, keys, valid))
        asked = np.flatnonzero(may_see.any(axis=0))
        most = max(1, _MOST_PAIRS // (len(may_see) * key.length))
        asked = asked[:: -(-asked.size // most) or 1]
        step = max(1, _AT_ONCE // (len(may_see) * key.length))
        shown = _stripped(key, keys, valid)
        for start in range(0, asked.size, step):
            some = asked[start : start + step]
            later = keys[:, None, :] > at[:, some, None]
            if valid is not None:
                later = later & valid[:, None, :]
            if query_segments is not None and key_segments is not None:
                own = query_segments[:, some, None] == key_segments[:, None, :]
                later = later & own
            seen = later[:, None]
            if mask is not None:
                seen = seen & np.asarray(mask(_stripped(query, at, None, some), shown))
            if seen.any():
                row, _, t, s = np.argwhere(seen)[0]
                return Seen(_of_row(at[:, some], row)[t], _of_row(keys, row)[s])
    return None


def _may_see_later(mask, at, keys, valid):
    """True for queries `[B or 1, T]` that are not certain to see no later key."""
    if valid is not None:
        keys = np.where(valid, keys, np.iinfo(np.int32).min)
    last = keys.max(axis=1, keepdims=True)
    later = last > at
    if mask is None or not later.any():
        return later
    i, last = jnp.asarray(at, jnp.int32), jnp.asarray(last, jnp.int32)
    return later & np.asarray(mask.block_visible(i, i, i + 1, jnp.maximum(last, i + 1)))


def _stripped(where: Tokens, index, valid, some=slice(None)) -> Tokens:
    """Tokens as a mask sees them, with all that is traced taken away."""
    made = np.zeros((1, index.shape[1]), bool) if valid is None else valid
    streams = where.streams
    if streams is not None:
        marked = np.ones((1, where.length), np.int32)
        known = {name: known_values(x) for name, x in streams.items()}
        streams = {
            name: jnp.asarray((marked if x is None else x)[:, some])
            for name, x in known.items()
        }
    positions = known_values(where.positions)
    positions = index if positions is None else positions
    index, positions = (jnp.asarray(x[:, some]) for x in (index, positions))
    # A mask that minds how far tokens reach must not take unknown ones for known.
    valid = jnp.asarray(made[:, some])
    return Tokens(index, positions, valid=valid, streams=streams)


def _of_row(index: np.ndarray, row: int) -> list[int]:
    return index[row if len(index) > 1 else 0].tolist()
