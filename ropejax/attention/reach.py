"""Whether a table of distances reaches from every query to every key.

Beyond its end there is no distance. Indices that are known are looked at before
anything is computed; of traced ones (the place of a token in decoding) only the result
can tell, and it must not look like one.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ropejax.concrete import known_values
from ropejax.tokens import Tokens


def check_reach(query: Tokens, key: Tokens) -> None:
    """Raises ValueError if a valid query and key are known to be too far apart.

    Args:
        query: the queries.
        key: the keys, with the table.
    """
    size = key.distances.shape[1]
    reach = key.length
    sides = [[known_values(x) for x in _side(where)] for where in (query, key)]
    if all(x is not None for side in sides for x in side):
        (at, asks), (places, valid) = (
            (index.astype(np.int64), valid) for index, valid in sides
        )
        farthest = _farthest(at, places, valid, np)
        farthest = np.where(asks & valid.any(axis=1, keepdims=True), farthest, 0)
        reach = max(reach, int(farthest.max(initial=0)) + 1)
    if size < reach:
        raise ValueError(
            f"a table of {size} distances is too short for {reach} tokens; draw at "
            "least that many."
        )


def within_reach(
    q: Float[Array, "B T N H"], query: Tokens, key: Tokens
) -> Float[Array, "B T N H"]:
    """Returns queries, NaN where the table does not reach all valid keys of the row.

    Costs nothing where there is no table, or queries and keys are the same tokens in
    order, for which its length says enough.

    Args:
        q: queries.
        query: where they are.
        key: the keys, with the table.
    """
    same = query.index is key.index and query.consecutive_index
    if key.distances is None or same:
        return q
    index, asks = _side(query)
    places, valid = _side(key)
    beyond = _farthest(index, places, valid, jnp) >= key.distances.shape[1]
    beyond = beyond & asks & valid.any(axis=1, keepdims=True)
    return jnp.where(beyond[..., None, None], jnp.nan, q)


def _side(where: Tokens) -> tuple[Array, Bool[Array, "#B #L"]]:
    valid = np.ones((1, 1), bool) if where.valid is None else where.valid
    return where.index, valid


def _farthest(index, places, valid, numpy):
    """Tokens from each query to the valid key farthest from it, `[B or 1, T]`."""
    limits = np.iinfo(np.int32)
    first = numpy.where(valid, places, limits.max).min(axis=1, keepdims=True)
    last = numpy.where(valid, places, limits.min).max(axis=1, keepdims=True)
    return numpy.maximum(index - first, last - index)
