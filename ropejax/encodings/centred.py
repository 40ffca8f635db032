"""Products with fading that each side carries its part of, about a common centre.

Where a logit has a factor `exp(-(t_i - t_j))`, with t growing from token to token, the
query can carry `exp(-(t_i - c))` and the key `exp(t_j - c)`: one matrix product does
for all pairs, and c cancels. But each part overflows far from c. So c is the middle of
the queries at hand, the keys before them have parts below one, and where the queries
themselves spread too far, they are taken in chunks, and at worst one by one.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ropejax.filling import last_repeated
from ropejax.typing import Array, Bool, Logits

Rows = Any
"""A pytree of arrays of queries, with a token axis of equal length T at 1."""


def exponent_limit(dtype: DTypeLike) -> float:
    """Returns how large an exponent may be so that the parts of both sides fit."""
    return 0.45 * math.log(float(jnp.finfo(dtype).max))


def about_centres(
    rows: Rows,
    narrow: Callable[[Rows], Bool[Array, ""]],
    at_once: Callable[[Rows], Logits],
    one: Callable[[Rows], Array],
    *,
    chunks: Sequence[int] = (128,),
) -> Logits:
    """Returns the logits of all queries, those that are near each other at once.

    Args:
        rows: what is known of the queries.
        narrow: whether some queries are near enough for one centre.
        at_once: logits `[B, N, T, S]` of queries that are; must be finite, if
            meaningless, for others.
        one: logits `[B, N, S]` of a single query, whose arrays lack the token axis.
        chunks: sizes of the chunks that queries which spread too far are cut into, each
            in turn; then come single ones.

    Returns:
        Logits `[B, N, T, S]`.
    """

    def one_by_one(rows: Rows) -> Logits:
        # Computed again in the backward pass: else each row would keep all faded keys.
        single = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), rows)
        return jnp.moveaxis(jax.lax.map(jax.checkpoint(one), single), 0, 2)

    def of(rows: Rows, length: int) -> Logits:
        size = next((size for size in chunks if size < length), None)
        wide = one_by_one
        if size is not None:
            wide = functools.partial(cut, length=length, size=size)
        return jax.lax.cond(narrow(rows), at_once, wide, rows)

    def cut(rows: Rows, length: int, size: int) -> Logits:
        parts = jax.tree.map(lambda x: _parts(x, size), rows)
        logits = jnp.moveaxis(jax.lax.map(lambda part: of(part, size), parts), 0, 2)
        joined = logits.reshape(*logits.shape[:2], -1, logits.shape[-1])
        return joined[:, :, :length]

    return of(rows, jax.tree.leaves(rows)[0].shape[1])


def _parts(x: Array, size: int) -> Array:
    """Cuts the token axis, the last query repeated to fill a part."""
    x = last_repeated(x, -x.shape[1] % size, axis=1)
    split = x.reshape(x.shape[0], -1, size, *x.shape[2:])
    return jnp.moveaxis(split, 1, 0)
