"""Encodings with a carry: keys in any order, masks that hide keys in between."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import Cache, attend, blocks
from ropejax.attention.sequence_parallel import SequenceParallel
from ropejax.encodings import PaTH, Rotary, compose
from ropejax.encodings.cope import CoPE
from ropejax.encodings.grape_additive import GrapeAP
from ropejax.tokens import tokens
from tests.attention import cases, on_mesh

LENGTH = 12
ORDER = np.random.default_rng(0).permutation(LENGTH)
CARRIED = {"cope": CoPE(init_std=1.0), "grape_ap": GrapeAP(), "path": PaTH(rank=0)}
GAPPED = {
    "sinks and a window": masks.Lambda(2, 3),
    "one global token": masks.Causal() & (masks.Window(2) | masks.Global(1)),
    "all but neighbouring blocks": masks.Causal()
    & ~masks.Blocks(masks.Window(1, 1), 2),
}
SMALL = {"implementation": "blockwise", "block_q": 3, "block_k": 2}


def both(encoding, where, mask):
    case = cases.case(encoding, LENGTH, batch=1)
    for settings in (SMALL, {"implementation": "dense"}):
        run = cases.attention(encoding, where, mask, **settings)
        yield cases.value_and_grads(run, case.cotangent)(case.arrays)


@pytest.mark.parametrize("name", CARRIED)
@pytest.mark.parametrize("stored", ["in order", "permuted"])
def test_gaps_and_storage_change_nothing(name, stored):
    where = tokens(LENGTH)
    if stored == "permuted":
        where = where.permuted(ORDER)
    mask = GAPPED["sinks and a window"]
    got, wanted = both(CARRIED[name], where, mask)
    cases.assert_same(got, wanted)


@pytest.mark.parametrize("name", CARRIED)
def test_dense_goes_by_index_itself(name):
    """So that the tests above do not compare two engines that are wrong alike."""
    encoding = CARRIED[name]
    case = cases.case(encoding, LENGTH, batch=1)
    run = cases.attention(encoding, mask=masks.Lambda(2, 3), implementation="dense")
    wanted = run(case.arrays)[:, ORDER]
    moved = {n: case.arrays[n][:, ORDER] for n in ("q", "k", "v", "x")}
    where = tokens(LENGTH).permuted(ORDER)
    run = cases.attention(encoding, where, masks.Lambda(2, 3), implementation="dense")
    np.testing.assert_allclose(run(case.arrays | moved), wanted, atol=2e-6)


@pytest.mark.parametrize("mask", list(GAPPED)[1:])
@pytest.mark.parametrize("encoding", [PaTH(rank=0), compose(Rotary(), PaTH(rank=0))])
def test_what_a_mask_hides_in_between_counts(encoding, mask):
    case = cases.case(encoding, LENGTH, batch=1)
    got, wanted = (
        cases.jit(cases.attention(encoding, mask=GAPPED[mask], **settings))(case.arrays)
        for settings in (SMALL, {"implementation": "dense"})
    )
    np.testing.assert_allclose(got, wanted, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "mask"), [("cope", masks.Causal()), ("path", masks.Lambda(2, 3))]
)
def test_a_rolling_cache_holds_slots_in_any_order(name, mask):
    """Later tokens overwrite earlier ones, so that slots are permuted."""
    encoding = CARRIED[name]
    case = cases.case(encoding, LENGTH, batch=1)
    q, k, v, x = (case.arrays[n] for n in "qkvx")
    where = tokens(LENGTH)
    layer = case.arrays["layer"]
    params = encoding.prepare({}, layer, where, where, cases.DIMS)
    features, _ = encoding.key_features(params, x, k, where)
    cache, capacity = None, 8
    for t in range(LENGTH):
        at = tokens(1, offset=t).replace(
            features=jax.tree.map(lambda f, t=t: f[:, t : t + 1], features)
        )
        one = k[:, t : t + 1], v[:, t : t + 1], at
        if cache is None:
            cache = Cache.empty(*one, capacity=capacity, sinks=2)
        cache = cache.extended(*one)
    assert (jnp.diff(cache.key.index[0]) < 0).any()
    out = [
        attend(
            q[:, -1:],
            cache.k,
            cache.v,
            encoding=encoding,
            params=params,
            query=tokens(1, offset=LENGTH - 1),
            key=cache.key,
            mask=mask,
            **settings,
        )
        for settings in (SMALL | {"block_k": 3}, {"implementation": "dense"})
    ]
    np.testing.assert_allclose(*out, atol=2e-6)


@pytest.mark.parametrize("form", ["all_gather", "ulysses"])
def test_devices_hold_parts_in_any_order(form):
    """Blocks of keys that do not align with the parts."""
    where = tokens(on_mesh.LENGTH).permuted(
        np.random.default_rng(1).permutation(on_mesh.LENGTH)
    )
    encoding = CARRIED["cope"]
    case = cases.case(encoding, on_mesh.LENGTH)
    arrays = case.arrays
    wanted = cases.attention(encoding, where, implementation="dense")(arrays)
    how = SequenceParallel(form)
    run = cases.attention(encoding, where, implementation=how, block_q=5, block_k=3)
    with jax.set_mesh(on_mesh.mesh_of(sequence=2)):
        got = cases.jit(run)(arrays)
    np.testing.assert_allclose(got, wanted, atol=5e-5)  # q . e, e of variance one


def test_blocks_in_between_are_visited_only_where_they_count():
    grid, where = blocks.grid(64, 8), tokens(64)
    count = lambda **kind: blocks.plan(
        where, where, masks.Lambda(2, 3), grid, grid, nearest_first=True, **kind
    ).count.tolist()
    assert count() == [1, 2, 3, 3, 3, 3, 3, 3]
    assert count(skip_between=False) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert CoPE().carry_skips_hidden
    assert not PaTH().carry_skips_hidden
    assert not compose(Rotary(), PaTH()).carry_skips_hidden
    assert compose(Rotary(), GrapeAP()).carry_skips_hidden
    assert not dataclasses.replace(compose(Rotary())).carry_skips_hidden
