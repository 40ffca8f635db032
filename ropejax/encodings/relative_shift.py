"""From one number an offset to one number a pair: the relative shift.

With tokens in order, query t and key s of a block are `first + s - t` apart, so a row
of `T + S - 1` numbers, one an offset, holds all that the T x S pairs need. A slice and
a reshape move them into place: no gather, and no scatter in the backward pass.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from ropejax.tokens import Tokens, signed_offsets
from ropejax.typing import Array, Int, Shaped


def in_order(query: Tokens, key: Tokens) -> bool:
    """Returns True if the offset of a pair is known to depend on `s - t` only."""
    if key.distances is not None:
        return query.consecutive_index and key.consecutive_index
    return query.consecutive_positions and key.consecutive_positions


def first_offset(query: Tokens, key: Tokens) -> Int[Array, " B"]:
    """Returns how far the first key is from the first query, `[B or 1]`.

    Counted in indices under a table of distances, in positions otherwise.
    """
    if key.distances is not None:
        return key.index[:, 0] - query.index[:, 0]
    return key.positions[:, 0] - query.positions[:, 0]


def offsets_in_order(query: Tokens, key: Tokens) -> Shaped[Array, "B O"]:
    """Returns the offsets, key minus query, of a block in order, lowest first.

    Entry m belongs to the pairs with `s - t = m - (T - 1)`; there are T + S - 1.
    """
    size = query.length + key.length - 1
    lowest = first_offset(query, key) + 1 - query.length
    if key.distances is None:
        return lowest[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
    zero = key.distances.shape[1] - 1
    table = signed_offsets(key.distances)
    return rows_from(table, lowest + zero, size, outside="unknown")


def offsets_to_pairs(
    by_offset: Shaped[Array, "*B T O"], num_keys: int
) -> Shaped[Array, "*B T S"]:
    """Returns `out[t, s] = by_offset[t, T - 1 + s - t]`.

    Args:
        by_offset: one number an offset, O = T + S - 1 of them, for each query.
        num_keys: number of keys, S.

    Returns:
        One number a pair, `[*B, T, S]`.

    Raises:
        ValueError: if the last axis is not T + S - 1 long.
    """
    *batch, length, num_offsets = by_offset.shape
    if num_offsets != length + num_keys - 1:
        raise ValueError(
            f"{length} queries and {num_keys} keys have {length + num_keys - 1} "
            f"offsets, got {num_offsets}."
        )
    if length == 1:
        return by_offset
    stride = num_offsets - 1
    flat = by_offset.reshape(*batch, length * num_offsets)
    flat = flat[..., length - 1 : length - 1 + length * stride]
    return flat.reshape(*batch, length, stride)[..., :num_keys]


def pairs_to_offsets(by_pair: Shaped[Array, "*B T S"]) -> Shaped[Array, "*B T O"]:
    """Returns `out[t, m] = by_pair[t, m - (T - 1) + t]`, zero where there is no key.

    The transpose of `offsets_to_pairs`.

    Args:
        by_pair: one number a pair.

    Returns:
        One number an offset for each query, `[*B, T, T + S - 1]`.
    """
    *batch, length, num_keys = by_pair.shape
    if length == 1:
        return by_pair
    stride = length + num_keys - 2
    still = [(0, 0)] * len(batch)
    rows = jnp.pad(by_pair, [*still, (0, 0), (0, stride - num_keys)])
    flat = rows.reshape(*batch, length * stride)
    flat = jnp.pad(flat, [*still, (length - 1, 1)])
    return flat.reshape(*batch, length, stride + 1)


def rows_from(
    table: Shaped[Array, "B M *F"],
    start: Int[Array, " b"],
    size: int,
    *,
    outside: Literal["zeros", "edges", "unknown"] = "zeros",
) -> Shaped[Array, "n m *F"]:
    """Returns `size` rows of each table from `start` on, as if it went on for ever.

    Rows inside the table stay where they are (`dynamic_slice` alone would move all of
    them, if some lie outside).

    Args:
        table: rows on axis 1, leading axis B or 1.
        start: first row, `[B or 1]`; may be traced, and may lie outside.
        size: how many (static).
        outside: what rows outside the table are: zeros; the table's first and last
            row, as for a table of all offsets up to a clamp; or unknown, that is NaN,
            or the lowest number of an integer type, as `relative_positions` has it.
    """
    pad = [(0, 0)] * table.ndim
    pad[1] = (size, size)
    if outside == "edges":
        padded = jnp.pad(table, pad, mode="edge")
    else:
        fill = 0 if outside == "zeros" else _unknown(table.dtype)
        padded = jnp.pad(table, pad, constant_values=fill)
    start = jnp.clip(start + size, 0, table.shape[1] + size)
    if start.shape[0] == 1:
        return jax.lax.dynamic_slice_in_dim(padded, start[0], size, axis=1)
    batch = start.shape[0]
    padded = jnp.broadcast_to(padded, (batch, *padded.shape[1:]))
    return jax.vmap(lambda row, at: jax.lax.dynamic_slice_in_dim(row, at, size))(
        padded, start
    )


def _unknown(dtype) -> float | int:
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.nan
    return int(jnp.iinfo(dtype).min)
