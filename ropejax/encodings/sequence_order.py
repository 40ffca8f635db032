"""Sums along a sequence, for tokens that may be stored in any order.

Methods that accumulate over tokens go by `Tokens.index`. Where storage is known to
follow it, sorting costs nothing, because it is not done.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.concrete import known_values
from ropejax.tokens import Tokens
from ropejax.typing import Array, Bool, Float, Int, Shaped


def without_padding(x: Float[Array, "B L *F"], where: Tokens) -> Float[Array, "B L *F"]:
    """Returns x with zeros at padding.

    Padding may hold anything. A NaN there would reach parameters even through a
    gradient of zero.

    Args:
        x: with tokens on axis 1.
        where: where the tokens are.
    """
    if where.valid is None:
        return x
    return jnp.where(where.valid.reshape(*where.valid.shape, *[1] * (x.ndim - 2)), x, 0)


def in_sequence(
    x: Shaped[Array, "*F"], where: Tokens, axis: int
) -> Shaped[Array, "*F"]:
    """Returns x with its token axis in order of index."""
    if where.consecutive_index:
        return x
    return _take(x, jnp.argsort(where.index, axis=1), axis)


def in_one_order(
    x: Float[Array, "B L *F"], where: Tokens, title: str
) -> Float[Array, "B L *F"]:
    """Returns x `[B, L, ...]` in order of index, for sums that run through a row.

    An index that starts anew in a row (in each of its segments) mixes tokens of one
    segment with those of others.

    Args:
        x: floating-point, with tokens on axis 1.
        where: where the tokens are.
        title: the method's name, for messages.

    Returns:
        Ordered x; NaN in rows where a traced index repeats.

    Raises:
        ValueError: if the index of two valid tokens of a row is known to be the same.
    """
    if where.consecutive_index:
        return x
    index, valid = (
        None if part is None else known_values(part)
        for part in (where.index, where.valid)
    )
    if index is not None and (valid is None) == (where.valid is None):
        repeated = _repeated(index, valid, np)
        if repeated.any():
            raise ValueError(
                f"{title} sums over the tokens of a row in order of index, which must "
                "not repeat within a row, as it does where it starts anew in each "
                "segment; let index go on through the row, as tokens(...) has it, and "
                "only positions start anew."
            )
        return in_sequence(x, where, axis=1)
    repeated = _repeated(where.index, where.valid, jnp)
    repeated = repeated.reshape(-1, *[1] * (x.ndim - 1))
    return in_sequence(jnp.where(repeated, jnp.nan, x), where, axis=1)


def _repeated(index, valid, numpy) -> Bool[Array, " B"]:
    """Tells the rows in which two valid tokens have one index."""
    none = np.iinfo(np.int32).max
    ordered = numpy.sort(
        index if valid is None else numpy.where(valid, index, none), axis=1
    )
    same = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != none)
    return same.any(axis=1)


def in_storage(x: Shaped[Array, "*F"], where: Tokens, axis: int) -> Shaped[Array, "*F"]:
    """Returns x with its token axis as it was before `in_sequence`."""
    if where.consecutive_index:
        return x
    return _take(x, jnp.argsort(jnp.argsort(where.index, axis=1), axis=1), axis)


def accurate_cumsum(
    x: Float[Array, "B L N"],
) -> tuple[Float[Array, "B L N"], Float[Array, "B L N"]]:
    """Returns the cumulative sum along axis 1 as two float32 numbers, high and low.

    A difference of two sums, `(high_i - high_j) + (low_i - low_j)`, is then as exact as
    if the sums had twice the digits, however long the sequence before them.
    """
    x = x.astype(jnp.float32)
    return jax.lax.associative_scan(add_pairs, (x, jnp.zeros_like(x)), axis=1)


def add_pairs(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Returns the sum of two numbers that are each high plus low, as high plus low."""
    high = a[0] + b[0]
    back = high - a[0]
    lost = (a[0] - (high - back)) + (b[0] - back)
    low = lost + a[1] + b[1]
    total = high + low
    return total, low - (total - high)


def _take(x: Array, order: Int[Array, "b L"], axis: int) -> Array:
    if order.shape[0] == 1:
        return jnp.take(x, order[0], axis=axis)
    x = jnp.broadcast_to(x, (order.shape[0], *x.shape[1:]))
    return jax.vmap(lambda row, at: jnp.take(row, at, axis=axis - 1))(x, order)
