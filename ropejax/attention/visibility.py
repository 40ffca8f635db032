"""Which pairs of queries and keys are visible, and how many keys a query sees."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.tokens import Tokens

NEGATIVE = -1e30
"""Stands for minus infinity in masked logits; finite, so that no row turns into NaN."""


def visible_pairs(query: Tokens, key: Tokens, mask=None) -> Bool[Array, "B N T S"]:
    """Returns True where a query may attend to a key, `[B or 1, N or 1, T, S]`.

    Padding keys and other segments are never visible; `mask` rules out more.

    Args:
        query: the queries.
        key: the keys.
        mask: a `ropejax.masks` mask, a function of (query, key), or None.
    """
    visible = jnp.ones((1, 1, query.length, key.length), bool)
    if mask is not None:
        visible &= mask(query, key)
    if key.valid is not None:
        visible &= key.valid[:, None, None, :]
    if query.segments is not None and key.segments is not None:
        visible &= query.segments[:, None, :, None] == key.segments[:, None, None, :]
    return visible


def visible_counts(
    query: Tokens, key: Tokens, mask=None, *, block: int = 256
) -> Int[Array, "B T N"]:
    """Returns how many keys each query sees, `[B or 1, T, N or 1]`, int32.

    What `log n` scales mean by n: padding, other segments and masked keys do not count.

    Args:
        query: the queries.
        key: the keys.
        mask: a mask or None.
        block: keys looked at together, so that memory stays linear in length.
    """

    def count(start: int | Int[Array, ""], size: int):
        seen = visible_pairs(query, key.block(start, size), mask)
        return seen.sum(-1, dtype=jnp.int32)

    whole, rest = divmod(key.length, block)
    total = count(whole * block, rest)
    if whole:
        total = total + count(0, block)
        total = jax.lax.fori_loop(
            1, whole, lambda b, total: total + count(b * block, block), total
        )
    return jnp.swapaxes(total, 1, 2)
