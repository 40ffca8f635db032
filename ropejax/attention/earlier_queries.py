"""Which rows lack the queries before them: for methods whose rows build on others.

By order, not by storage. What is known is refused before anything is compiled; what is
traced cannot be, and its rows become NaN, so that it cannot pass unseen.
"""

from jaxtyping import Array, Bool

from ropejax.attention.normalizers import Normalizer
from ropejax.concrete import known_values
from ropejax.tokens import Tokens


def check_earlier_queries(normalizer: Normalizer, query: Tokens, key: Tokens) -> None:
    """Raises ValueError if rows are known to lack queries that they build on.

    Args:
        normalizer: what turns logits into weights.
        query: the queries.
        key: the keys.
    """
    if not normalizer.needs_earlier_queries or query.index is key.index:
        return
    given = [None if x is None else known_values(x) for x in _parts(query, key)]
    unknown = [x is None for x in given] != [x is None for x in _parts(query, key)]
    if unknown or not _lacking(*given).any():
        return
    raise ValueError(
        f"{type(normalizer).__name__} needs the queries of all earlier tokens beside "
        f"each query, but query has the indices {given[0].min()} .. {given[0].max()} "
        f"and key has {given[1].min()} .. {given[1].max()}; attend from the first "
        "token on, in one call (a cache cannot serve it)."
    )


def lacks_earlier_queries(query: Tokens, key: Tokens) -> Bool[Array, "#B T"] | None:
    """Returns True for queries that some earlier key has no query beside.

    Args:
        query: the queries.
        key: the keys.

    Returns:
        Rows `[B or 1, T]`; None if both sides are the same tokens.
    """
    return None if query.index is key.index else _lacking(*_parts(query, key))


def _parts(query: Tokens, key: Tokens) -> tuple:
    return query.index, key.index, key.valid, query.segments, key.segments


def _lacking(query_index, key_index, valid, query_segments, key_segments):
    """The same for arrays of NumPy and of JAX."""
    i, j = query_index[:, :, None], key_index[:, None, :]
    same, earlier = j == i, j < i
    if query_segments is not None and key_segments is not None:
        together = query_segments[:, :, None] == key_segments[:, None, :]
        same, earlier = same & together, earlier & together
    unread = ~same.any(1)
    if valid is not None:
        unread = unread & valid
    return (earlier & unread[:, None, :]).any(2)
