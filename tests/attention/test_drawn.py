"""Combinations that nobody thought of: what holds for every request of attention.

A test that fails says its request; `check(seed, gradients=True)` makes it again.
"""

import dataclasses
import re

import jax
import numpy as np
import pytest

from ropejax.attention import SequenceParallel
from ropejax.tokens import tokens
from tests.attention import cases, drawn
from tests.attention.on_mesh import mesh_of


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


LENGTHS = (1, 2, 7, 16, 33)


def check_exact(seed: int) -> str:
    """Raises AssertionError, with the request, where a result is less exact than told.

    Against the whole matrix in float64: blocks, parts on a mesh, and rows under vmap
    are as exact as the whole matrix is in float32, or nearly, gradients too; so is what
    is not compiled; and bfloat16 is near, without NaN.

    Returns:
        What was refused of it; "" if nothing was.
    """
    of = dataclasses.replace(drawn.request(seed, LENGTHS), dropout_rate=0.0)
    rng = np.random.default_rng([seed, 3])
    content, where = drawn.arrays(of, seed)
    for name in ("valid", "segments"):
        if rng.random() < 0.3:
            where = where.replace(**{name: None})
    at = np.arange(of.num_tokens, dtype=np.int32)
    given, named = (content, where, at, at), f"seed {seed}: {of}"
    try:
        with cases.float64():
            wide = _program(of, True, implementation="dense")
            wanted = wide(cases.widened(content), *given[1:])
    except ValueError as refused:
        return str(refused)
    assert _finite(wanted), named
    dense = _program(of, True, implementation="dense")(*given)
    allowed = [max(4 * off, 1e-5) for off, _ in _errors(dense, wanted)]

    def assert_exact(got, what):
        for (off, path), most in zip(_errors(got, wanted), allowed, strict=True):
            assert off <= most, f"{what}{path} is off by {off:.2g}, {named}"

    blocks = {"block_q": of.blocks[0], "block_k": of.blocks[1]}
    cut = of.normalizer.blockwise or of.normalizer.has_threshold
    cut = {"implementation": "blockwise"} if cut else {"implementation": "dense"}
    if of.encoding.needs_whole_rows:
        cut = {"implementation": "dense"}
    assert_exact(_program(of, True, **cut, **blocks)(*given), "blockwise")
    out, of_rows = _mapped(of, *given, **cut, **blocks)
    assert_exact({"out": out, "grads": dense["grads"] | of_rows}, "vmap")
    eager = drawn.run(of, *given, implementation="dense")
    assert_exact({"out": eager, "grads": dense["grads"]}, "not compiled")
    half = content | {name: content[name].astype("bfloat16") for name in "qkvx"}
    low = _program(of, True, **cut, **blocks)(half, *given[1:])
    assert _finite(low), f"bfloat16, {named}"
    assert _errors(low, wanted)[-1][0] < 0.5, f"bfloat16, {named}"
    how = _spread(of, rng)
    if how is None:
        return ""
    try:
        spread = _program(of, True, implementation=how, **blocks)(*given)
    except ValueError as refused:
        return str(refused)
    assert_exact(spread, "on a mesh")
    return ""


def _finite(tree) -> bool:
    return all(
        np.isfinite(np.asarray(x, np.float32)).all() for x in jax.tree.leaves(tree)
    )


def _errors(got, wanted) -> list[tuple[float, str]]:
    """Largest errors, relative to the largest number and at least to 1, with paths."""
    found = []
    named = jax.tree_util.tree_leaves_with_path(wanted)
    for (path, b), a in zip(named, jax.tree.leaves(got), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        off = np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(b).max(initial=0.0))
        off = np.inf if np.isnan(off) else off
        found.append((float(off), jax.tree_util.keystr(path)))
    return found


def _mapped(of, content, where, *others, **settings):
    """Outputs and gradients of rows, each as a batch of its own.

    Not of parameters: those that are held in a range (`ropejax.encodings.held`) have a
    gradient by the sign of all rows' sum, which is no sum of each row's.
    """
    row = lambda x: np.broadcast_to(x, (2, *x.shape[1:]))[:, None]
    rows = {name: content[name][:, None] for name in "qkvx"}
    own = where.per_token() | {"distances": where.distances}

    def loss(rows, own):
        out = drawn.run(of, content | rows, where.replace(**own), *others, **settings)
        return (out * jax.numpy.cos(jax.numpy.arange(out.shape[-1]))).sum(), out

    run = cases.jit(jax.vmap(jax.grad(loss, has_aux=True)))
    grads, out = run(rows, jax.tree.map(row, own))
    return out[:, 0], {name: x[:, 0] for name, x in grads.items()}


def _spread(of, rng) -> SequenceParallel | None:
    """A form of sequence parallelism, rows or heads spread too; None if nothing is."""
    form = str(rng.choice(["ring", "all_gather", "ulysses"]))
    cut = of.dims.num_kv_heads if form == "ulysses" else 4
    parts = [n for n in (2, 4) if of.num_tokens % n == cut % n == 0]
    if not parts:
        return None
    sizes = {"sequence": int(rng.choice(parts))}
    if rng.random() < 0.4:
        sizes["data"] = 2
    elif form != "ulysses" and of.dims.num_kv_heads % 2 == 0 and rng.random() < 0.5:
        sizes["tensor"] = 2
    return SequenceParallel(
        form,
        batch_axes=("data",) if "data" in sizes else (),
        head_axis="tensor" if "tensor" in sizes else None,
        mesh=mesh_of(**sizes),
    )


@pytest.mark.parametrize("seed", [17, 21])
def test_what_holds_for_every_request(seed):
    check(seed, gradients=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_what_holds_for_every_request_gradients_too(seed):
    check(seed, gradients=seed % 2 == 0)


@pytest.mark.parametrize("seed", [6])
def test_every_engine_is_as_exact_as_told(seed):
    check_exact(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 22))
def test_every_engine_is_as_exact_as_told_whatever_it_is_asked(seed):
    check_exact(seed)


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
