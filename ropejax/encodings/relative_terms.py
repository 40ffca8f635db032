"""What methods of relative positions add: a number, or a vector, for each offset.

Each function has one meaning, and computes it without gathers where tokens are in
order, once for each of T + S - 1 offsets rather than for each of T x S pairs.
"""

from collections.abc import Callable

import jax.numpy as jnp

from ropejax.encodings.relative_shift import (
    in_order,
    offsets_in_order,
    offsets_to_pairs,
    pairs_to_offsets,
)
from ropejax.tokens import Tokens, relative_positions
from ropejax.typing import Array, Float, Int, Logits, Shaped

Rows = Callable[[Shaped[Array, "*P"]], Int[Array, "*P"]]
"""Which row of a table belongs to an offset, key minus query."""


def clipped_rows(limit: int) -> Rows:
    """Returns `offset -> clip(offset, -limit, limit) + limit`, for integer offsets."""

    def rows(offsets):
        if not jnp.issubdtype(offsets.dtype, jnp.integer):
            raise ValueError(
                f"a table of offsets needs integer positions, got {offsets.dtype}; "
                "round them, or use a method that is a function of distance."
            )
        return jnp.clip(offsets, -limit, limit) + limit

    return rows


def relative_bias(
    function: Callable[[Shaped[Array, "#B *P"]], Float[Array, "#B N *P"]],
    query: Tokens,
    key: Tokens,
) -> Float[Array, "B N T S"]:
    """Returns a function of each pair's offset.

    Args:
        function: takes offsets, key minus query, of any shape `[B or 1, *P]`, and
            returns one number a head, `[B or 1, N, *P]`.
        query: the queries.
        key: the keys.
    """
    if not in_order(query, key):
        return function(relative_positions(query, key))
    by_offset = function(offsets_in_order(query, key))[:, :, None]
    batch, heads, _, size = by_offset.shape
    rows = jnp.broadcast_to(by_offset, (batch, heads, query.length, size))
    return offsets_to_pairs(rows, key.length)


def relative_logits(
    q: Float[Array, "B T N H"],
    table: Float[Array, "R H"] | Float[Array, "R N H"],
    rows: Rows,
    query: Tokens,
    key: Tokens,
) -> Logits:
    """Returns each query against the vector of its offset to each key, float32.

    `out[b, n, t, s] = q[b, t, n] . table[rows(offset of s from t)]`, unscaled.

    Args:
        q: queries.
        table: vectors, for all heads or for each.
        rows: which of them belongs to an offset.
        query: the queries.
        key: the keys.
    """
    table = jnp.asarray(table, q.dtype)  # NumPy's has no traced rows
    if in_order(query, key):
        vectors = table[rows(offsets_in_order(query, key))]
        return against_offsets(q, vectors, key.length)
    row = rows(relative_positions(query, key))
    if row.shape[0] == 1 and _windows_pay(q.shape[0], q.shape[2], table):
        return _against_windows(q, table[row[0]])
    spec = "btnh,rh->bntr" if table.ndim == 2 else "btnh,rnh->bntr"
    by_row = jnp.einsum(spec, q, table, preferred_element_type=jnp.float32)
    row = jnp.broadcast_to(row[:, None], (*by_row.shape[:3], key.length))
    return jnp.take_along_axis(by_row, row, axis=-1)


def key_logits(
    k: Float[Array, "B S K H"],
    table: Float[Array, "R H"] | Float[Array, "R N H"],
    rows: Rows,
    query: Tokens,
    key: Tokens,
    num_heads: int,
) -> Logits:
    """Returns each key against the vector of its offset from each query, float32.

    `out[b, n, t, s] = k[b, s, n] . table[rows(offset of s from t)]`: `relative_logits`
    with the two sides exchanged.

    Args:
        k: keys; each serves its group of the N query heads.
        table: vectors, for all heads or for each.
        rows: which of them belongs to an offset, key minus query.
        query: the queries.
        key: the keys.
        num_heads: number of query heads, N.
    """
    distances = key.distances
    logits = relative_logits(
        jnp.repeat(k, num_heads // k.shape[2], axis=2),
        table,
        lambda offsets: rows(-offsets),
        key.replace(distances=None),
        query.replace(distances=distances),
    )
    return jnp.swapaxes(logits, 2, 3)


def against_offsets(
    q: Float[Array, "B T N H"],
    vectors: Float[Array, "#B O H"] | Float[Array, "#B O N H"],
    num_keys: int,
) -> Logits:
    """Returns queries against vectors of offsets, for tokens in order, float32.

    `out[b, n, t, s] = q[b, t, n] . vectors[b, T - 1 + s - t]`, by the cheaper of two
    ways. Either queries meet all offsets and the products are shifted, twice as many
    as are needed; or the vectors are shifted, and each query meets its own window of
    them: T S numbers a channel (and a head, if those differ), fewer than the logits
    if there are more rows than channels.

    Args:
        q: queries.
        vectors: one an offset, lowest first, for all heads or for each; leading axis
            B or 1.
        num_keys: number of keys, S.
    """
    if vectors.shape[0] == 1 and _windows_pay(q.shape[0], q.shape[2], vectors[0]):
        return _against_windows(q, _windows(vectors[0], q.shape[1], num_keys))
    table = "m" + ("nh" if vectors.ndim == 4 else "h")
    if vectors.shape[0] > 1:
        table = "b" + table
    else:
        vectors = vectors[0]
    by_offset = jnp.einsum(
        f"btnh,{table}->bntm", q, vectors, preferred_element_type=jnp.float32
    )
    return offsets_to_pairs(by_offset, num_keys)


def relative_values(
    weights: Float[Array, "B N T S"],
    table: Float[Array, "R H"] | Float[Array, "R N H"],
    rows: Rows,
    query: Tokens,
    key: Tokens,
) -> Float[Array, "B T N H"]:
    """Returns the weighted sum of vectors of offsets, float32; linear in the weights.

    `out[b, t, n] = sum_s weights[b, n, t, s] table[rows(offset of s from t)]`.

    Args:
        weights: attention weights.
        table: vectors, for all heads or for each.
        rows: which of them belongs to an offset.
        query: the queries.
        key: the keys.
    """
    ordered, table = in_order(query, key), jnp.asarray(table)
    row = rows((offsets_in_order if ordered else relative_positions)(query, key))
    batch, num_heads, length, num_keys = weights.shape
    if row.shape[0] == 1 and _windows_pay(batch, num_heads, table):
        vectors = table[row[0]]
        return _over_windows(
            weights, _windows(vectors, length, num_keys) if ordered else vectors
        )
    heads = "nh" if table.ndim == 3 else "h"
    if ordered:
        by_row, vectors = pairs_to_offsets(weights), table[row]
        heads = ("bm" if row.shape[0] > 1 else "m") + heads
        vectors = vectors if row.shape[0] > 1 else vectors[0]
    else:
        by_row, vectors, heads = _summed_by_row(weights, row, table), table, "m" + heads
    return jnp.einsum(
        f"bntm,{heads}->btnh", by_row, vectors, preferred_element_type=jnp.float32
    )


def _summed_by_row(weights, row, table):
    """Returns the weights summed over all keys whose offset has the same row."""
    row = jnp.broadcast_to(row[:, None], weights.shape)
    at = jnp.ix_(*(jnp.arange(size) for size in weights.shape))
    by_row = jnp.zeros((*weights.shape[:3], table.shape[0]), jnp.float32)
    return by_row.at[at[0], at[1], at[2], row].add(weights.astype(jnp.float32))


def _windows_pay(batch, heads, table) -> bool:
    """Returns True if a window of vectors a query is smaller than the logits."""
    rows = batch * heads if table.ndim == 2 else batch
    return rows >= table.shape[-1]


def _windows(vectors, length, num_keys):
    """Returns `out[t, s] = vectors[T - 1 + s - t]`, `[T, S, H]` or `[T, S, N, H]`."""
    last = jnp.moveaxis(vectors, 0, -1)[..., None, :]
    rows = jnp.broadcast_to(last, (*last.shape[:-2], length, last.shape[-1]))
    pairs = offsets_to_pairs(rows, num_keys)
    return jnp.moveaxis(pairs, (-2, -1), (0, 1))


def _against_windows(q, windows) -> Logits:
    """Returns `q[b, t, n] . windows[t, s]`, the batch as rows of each product."""
    if windows.ndim == 4:
        logits = jnp.einsum(
            "ntbh,nths->ntbs",
            jnp.transpose(q, (2, 1, 0, 3)),
            jnp.transpose(windows, (2, 0, 3, 1)),
            preferred_element_type=jnp.float32,
        )
        return jnp.transpose(logits, (2, 0, 1, 3))
    logits = jnp.einsum(
        "tbnh,tsh->tbns",
        jnp.transpose(q, (1, 0, 2, 3)),
        windows,
        preferred_element_type=jnp.float32,
    )
    return jnp.transpose(logits, (1, 2, 0, 3))


def _over_windows(weights, windows) -> Float[Array, "B T N H"]:
    """Returns `sum_s weights[b, n, t, s] windows[t, s]`, the batch as rows."""
    if windows.ndim == 4:
        out = jnp.einsum(
            "ntbs,ntsh->ntbh",
            jnp.transpose(weights, (1, 2, 0, 3)),
            jnp.transpose(windows, (2, 0, 1, 3)),
            preferred_element_type=jnp.float32,
        )
        return jnp.transpose(out, (2, 1, 0, 3))
    out = jnp.einsum(
        "tbns,tsh->tbnh",
        jnp.transpose(weights, (2, 0, 1, 3)),
        windows,
        preferred_element_type=jnp.float32,
    )
    return jnp.transpose(out, (1, 0, 2, 3))
