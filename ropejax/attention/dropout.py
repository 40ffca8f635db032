"""Dropout of attention weights that is the same in every engine, block and shard."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt32

from ropejax.masks.hashing import random_bits
from ropejax.tokens import Tokens

MOST_DROPPED = 1 - 2.0**-32
"""The largest rate below 1 that 32 random bits can tell from it."""


def kept_pairs(
    seed: UInt32[Array, "2"],
    rate: float,
    shape: tuple[int, int],
    query: Tokens,
    key: Tokens,
    first: tuple[int | Array, int | Array] = (0, 0),
) -> Bool[Array, "B N T S"]:
    """Returns True with probability `1 - rate`, independently for each weight.

    A function of the seed, row of the batch, head, query index and key index, whatever
    the storage order.

    Args:
        seed: two random words.
        rate: probability of dropping a weight, at most `MOST_DROPPED`.
        shape: batch and heads.
        query: the queries.
        key: the keys.
        first: row and head of the whole batch with which `shape` starts.
    """
    batch, head = (
        jax.lax.broadcasted_iota(jnp.uint32, (*shape, 1, 1), axis)
        + jnp.asarray(first[axis], jnp.uint32)
        for axis in (0, 1)
    )
    i, j = query.index[:, None, :, None], key.index[:, None, None, :]
    bits = random_bits(seed[0], seed[1], batch, head, i, j)
    return bits >= jnp.uint32(round(rate * 2**32))
