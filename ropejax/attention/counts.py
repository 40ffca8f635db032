"""How many keys each query sees, a block of pairs at a time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.attention import blocks
from ropejax.attention.visibility import check_sides, check_size, visible_pairs
from ropejax.manual_axes import varying_like
from ropejax.tokens import Tokens


def visible_counts(
    query: Tokens, key: Tokens, mask=None, *, block: int = 256
) -> Int[Array, "B T N"]:
    """Returns how many keys each query sees, `[B or 1, T, N or 1]`, int32.

    What `log n` scales mean by n: padding, other segments and masked keys do not count.
    Blocks of pairs that a mask of `ropejax.masks` is known to show or to hide are not
    looked at, so that a window costs as much as its width.

    Args:
        query: the queries.
        key: the keys.
        mask: a mask or None.
        block: queries and keys looked at together, so that memory stays linear in
            length.

    Raises:
        ValueError: if block is no positive integer, or as `visible_pairs`.
    """
    check_size("block", block)
    check_sides(query, key)
    if key.length <= block:
        seen = visible_pairs(query, key, mask)
        return jnp.swapaxes(seen.sum(-1, dtype=jnp.int32), 1, 2)
    length, table = query.length, key.distances
    asked = lambda query, key: visible_pairs(query, key, mask)
    batch, heads, *_ = jax.eval_shape(asked, query, key).shape
    grid_q, grid_k = blocks.grid(length, block), blocks.grid(key.length, block)
    query = blocks.padded_tokens(query, grid_q, keys=False)
    key = blocks.padded_tokens(key, grid_k, keys=True).replace(distances=table)
    visits = blocks.plan(query, key, mask, grid_q, grid_k, nearest_first=False)
    declared = lambda x: varying_like(x, (query, key, visits))
    zeros = declared(jnp.zeros((batch, heads, grid_q.size), jnp.int32))

    def one_query_block(i):
        some = query.block(i * grid_q.size, grid_q.size)

        def visit(t, total):
            j = visits.order[i, t]
            keys = key.block(j * grid_k.size, grid_k.size)
            count = lambda: asked(some, keys).sum(-1, dtype=jnp.int32) + zeros
            known = lambda: zeros + grid_k.size
            return total + jax.lax.cond(visits.whole[i, j], known, count)

        return jax.lax.fori_loop(0, visits.count[i], visit, zeros)

    counts = jax.lax.map(one_query_block, jnp.arange(grid_q.count))
    counts = jnp.moveaxis(counts, (1, 0), (0, 1))  # [B, blocks, N, block]
    counts = jnp.swapaxes(counts, 2, 3).reshape(batch, -1, heads)
    return counts[:, :length]
