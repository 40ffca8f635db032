"""Combinations that nobody thought of: what holds for every request of attention.

A test that fails says its request; `check(seed, gradients=True)` makes it again.
"""

import re

import jax
import numpy as np
import pytest

from ropejax.tokens import tokens
from tests.attention import cases, drawn


def check(seed: int, *, gradients: bool) -> None:
    """Raises AssertionError, with the request, if it breaks what holds for all.

    Blocks give what the whole matrix does, or refuse what it does; neither the order in
    which tokens are stored nor what padding holds matters.
    """
    of = drawn.request(seed)
    whole, blocks = (
        _program(of, gradients, **settings)
        for settings in (
            {"implementation": "dense"},
            {
                "implementation": "blockwise",
                "block_q": of.blocks[0],
                "block_k": of.blocks[1],
            },
        )
    )
    content, where = drawn.arrays(of, seed)
    rng = np.random.default_rng([seed, 2])
    length = of.num_tokens
    queries = rng.permutation(length)[: of.num_queries].astype(np.int32)
    if of.normalizer.needs_earlier_queries:
        queries = np.arange(length, dtype=np.int32)
    in_order = np.arange(length, dtype=np.int32)
    named = f"seed {seed}: {of}"
    try:
        wanted = whole(content, where, queries, in_order)
    except ValueError as refused:  # such as fractions that are to be rows of a table
        with pytest.raises(ValueError, match=re.escape(str(refused))):
            blocks(content, where, queries, in_order)
        return
    if of.normalizer.blockwise or of.normalizer.has_threshold:
        _assert_same(blocks(content, where, queries, in_order), wanted, named)
    stored = rng.permutation(length).astype(np.int32)
    moved = whole(content, where, queries, stored)
    _assert_same(moved, wanted, f"stored in another order, {named}")
    valid = np.broadcast_to(where.valid, (2, length))
    dirty = content | {
        name: np.where(valid.reshape(2, length, *[1] * (x.ndim - 2)), x, np.nan)
        for name, x in content.items()
        if name in "qkvx"
    }
    asks = valid[:, queries][..., None, None]
    got = whole(dirty, where, queries, in_order)
    clean, out = (np.where(asks, x["out"], 0) for x in (wanted, got))
    np.testing.assert_allclose(
        out, clean, atol=1e-5, err_msg=f"NaN in padding, {named}"
    )


def _program(of, gradients: bool, **settings):
    def run(content, *others):
        return drawn.run(of, content, *others, **settings)

    def loss(content, *others):
        out = run(content, *others)
        return (out * jax.numpy.cos(jax.numpy.arange(out.shape[-1]))).sum(), out

    def both(content, *others):
        if not gradients:
            return {"out": run(content, *others)}
        grads, out = jax.grad(loss, has_aux=True)(content, *others)
        return {"out": out, "grads": grads}

    compiled = cases.jit(both)
    return lambda *arguments: jax.device_get(compiled(*arguments))


def _assert_same(got, wanted, message: str) -> None:
    named = jax.tree_util.tree_leaves_with_path(wanted)
    for (path, b), a in zip(named, jax.tree.leaves(got), strict=True):
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        where = f"{jax.tree_util.keystr(path)}, {message}"
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * scale, err_msg=where)


@pytest.mark.parametrize("seed", [17, 21])
def test_what_holds_for_every_request(seed):
    check(seed, gradients=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_what_holds_for_every_request_gradients_too(seed):
    check(seed, gradients=seed % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_blocks_of_combined_masks_hide_no_visible_pair(seed):
    rng = np.random.default_rng(seed)
    mask = drawn.mask(rng, 24, 4, depth=3)
    marks = rng.integers(0, 2, (1, 24), np.int32)
    where = tokens(24, streams={drawn.MARKS: marks})
    pairs = np.broadcast_to(mask(where, where), (1, 4, 24, 24))
    (q_lo, q_hi), (k_lo, k_hi) = np.sort(rng.integers(0, 24, (2, 2, 16)), axis=1)
    ends = (q_lo[:, None], q_hi[:, None], k_lo[None], k_hi[None])
    some, every = mask.blocks(*(jax.numpy.asarray(x, np.int32) for x in ends))
    for a, b in np.ndindex(16, 16):
        block = pairs[..., q_lo[a] : q_hi[a] + 1, k_lo[b] : k_hi[b] + 1]
        named = f"seed {seed}: {mask} at {[int(x) for x in (q_lo[a], q_hi[a])]}"
        assert np.broadcast_to(some, (16, 16))[a, b] or not block.any(), named
        assert block.all() or not np.broadcast_to(every, (16, 16))[a, b], named
