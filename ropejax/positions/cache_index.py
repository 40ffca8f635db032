"""Cache-index positions for streaming: a token's position is its place in the cache.

A model that streams keeps the first few tokens ("sinks", on which attention rests) and
a window of the latest ones, and forgets what is between. If what it keeps is numbered
by place in the cache, positions never exceed the cache, however long the stream. The
price: a key's position changes as the window rolls, so keys are cached before any
rotation.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.number_types import widened


def streaming_positions(
    query_index: Int[Array, "*B T"],
    key_index: Int[Array, "*#B S"],
    *,
    num_sinks: int,
    window: int,
) -> tuple[Int[Array, "*B T"], Int[Array, "*B T S"], Bool[Array, "*B T S"]]:
    """Returns positions by place in a rolling cache, and which keys are kept.

    When the token of order i attends, the cache holds the tokens 0 .. num_sinks - 1 and
    the last `window` ones, itself included. A sink is at its own order; a token j of
    the window is at `j - (i - query position)`, so the query is last.

    Args:
        query_index: order of the queries in the stream, `[*B, T]`; may be traced.
        key_index: order of the keys, `[*B, S]`.
        num_sinks: how many first tokens are kept, 4 as published.
        window: how many latest tokens are kept beside the sinks, the query's own one
            included.

    Returns:
        Positions of the queries `[*B, T]`, at most `num_sinks + window - 1`; positions
        of the keys as each query sees them, `[*B, T, S]`; and True where a key is in
        the cache, `[*B, T, S]`. Positions of keys that are not kept mean nothing.

    Raises:
        ValueError: if `num_sinks` is negative or `window` below 1, or known indices
            leave int32.

    References:
        Xiao, Tian, Chen, Han, Lewis (2023), "Efficient streaming language models with
        attention sinks", arXiv:2309.17453, section 3.2.

    Departures:
        None.
    """
    if num_sinks < 0 or window < 1:
        raise ValueError(
            f"num_sinks must be at least 0 and window at least 1, got {num_sinks=} and "
            f"{window=}."
        )
    query_index = widened("query_index", query_index)
    key_index = widened("key_index", key_index)
    query = jnp.minimum(query_index, num_sinks + window - 1)
    forgotten = (query_index - query)[..., None]
    key = key_index[..., None, :]
    sink = key < num_sinks
    recent = key > (query_index - window)[..., None]
    kept = (sink | recent) & (key <= query_index[..., None])
    # While nothing is forgotten, the two rules agree.
    position = jnp.where(sink, key, key - forgotten)
    return query, jnp.maximum(position, 0), kept
