"""Sums along a sequence, for tokens that may be stored in any order.

Methods that accumulate over tokens go by `Tokens.index`. Where storage is known to
follow it, sorting costs nothing, because it is not done.
"""

import jax
import jax.numpy as jnp

from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Int, Shaped


def in_sequence(
    x: Shaped[Array, "*F"], where: Tokens, axis: int
) -> Shaped[Array, "*F"]:
    """Returns x with its token axis in order of index."""
    if where.consecutive_index:
        return x
    return _take(x, jnp.argsort(where.index, axis=1), axis)


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
