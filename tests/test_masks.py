"""Masks against plain-Python rules; what they say of blocks against their pairs."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks, testing
from ropejax.tokens import tokens

LENGTH = 37
GOLDEN = pathlib.Path(__file__).parent / "golden"


def visible(mask, queries=LENGTH, keys=LENGTH, offset=0):
    """Returns `[N, T, S]` as a NumPy array."""
    return np.asarray(mask(tokens(queries, offset=offset), tokens(keys))[0])


def by_rule(rule, length=LENGTH):
    return np.array([[bool(rule(i, j)) for j in range(length)] for i in range(length)])


RULES = {
    "full": (masks.Full(), lambda i, j: True),
    "causal": (masks.Causal(), lambda i, j: j <= i),
    "sliding": (masks.Window.sliding(5), lambda i, j: 0 <= i - j < 5),
    "symmetric even": (masks.Window.symmetric(6), lambda i, j: abs(i - j) <= 3),
    "symmetric odd": (masks.Window.symmetric(7), lambda i, j: abs(i - j) <= 3),
    "uneven": (masks.Window(2, 4), lambda i, j: -4 <= i - j <= 2),
    "future": (masks.Window(0, None), lambda i, j: j >= i),
    "dilated": (
        masks.Dilated(3, before=2, after=1),
        lambda i, j: i - j in {-3, 0, 3, 6},
    ),
    "global": (
        masks.Global(2, at=(20,)),
        lambda i, j: i < 2 or j < 2 or 20 in {i, j},
    ),
    "prefix": (masks.Causal() | masks.Prefix(9), lambda i, j: j <= i or j < 9),
    "lambda": (masks.Lambda(3, 5), lambda i, j: j <= i and (j < 3 or i - j < 5)),
    "chunked": (masks.Chunked(8), lambda i, j: j <= i and i // 8 == j // 8),
    "blockwise causal": (
        masks.BlockwiseCausal(8),
        lambda i, j: j <= i and i // 8 - j // 8 in {0, 1},
    ),
    "longformer": (
        masks.Longformer(4, step=2, at=(30,)),
        lambda i, j: i - j in {-4, -2, 0, 2, 4} or 0 in {i, j} or 30 in {i, j},
    ),
    "not": (~masks.Chunked(8), lambda i, j: not (j <= i and i // 8 == j // 8)),
    "strictly past": (
        masks.Causal() & ~masks.Window(0, 0),
        lambda i, j: j < i,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_pairs_follow_the_rule(name):
    mask, rule = RULES[name]
    got = visible(mask)
    assert got.shape == (1, LENGTH, LENGTH)
    np.testing.assert_array_equal(got[0], by_rule(rule))


def test_queries_align_by_index_not_by_corner():
    mask = masks.Causal()
    np.testing.assert_array_equal(
        visible(mask, queries=2, keys=5, offset=2)[0],
        [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]],
    )


MORE = {
    "random past": masks.Random(3, seed=1),
    "random span": masks.Random(3, first=5, last=30, gap=2),
    "bigbird": masks.BigBird(LENGTH, block=4, random=2),
    "heads": masks.PerHead((masks.Window(0), masks.Causal(), masks.Chunked(5))),
    "not random": ~masks.Random(4) & masks.Causal(),
}
# Where parts of a combination are each possible, both together may still not be.
ONLY_CONSERVATIVE = {"dilated", "longformer", "not", "strictly past", "lambda", *MORE}


@pytest.mark.fast
def test_the_program_of_random_keys_does_not_grow_with_their_number():
    """Compared with each other in a loop, not each in operations of its own."""
    x = jnp.arange(4)

    def size(count):
        mask = masks.Random(count)
        rules = (lambda i: mask.pairs(i, i), lambda i: mask.blocks(i, i, i, i))
        return [str(jax.make_jaxpr(rule)(x)).count(" = ") for rule in rules]

    assert size(64) == size(3)


def test_random_keys_are_drawn_for_blocks_of_queries_not_for_pairs_of_blocks():
    grid = jnp.arange(128)
    ends = grid[None, :, None], grid[None, :, None] + 7, 8 * grid[None, None], 8 * grid
    drawn = jax.jit(masks.Random(32).blocks).lower(*ends).compile()
    assert drawn.memory_analysis().temp_size_in_bytes < 32 * 8 * 128 * 4 * 4


@pytest.mark.parametrize("name", [*RULES, *MORE])
def test_masks_keep_the_contract(name):
    mask = RULES[name][0] if name in RULES else MORE[name]
    testing.check_mask(mask, tokens(LENGTH))
    hides = name in {"global", "not", "strictly past"} or "random" in name
    assert mask.shows_itself != hides


@dataclasses.dataclass(frozen=True)
class Near(masks.Mask):
    """A window of four, from which the faulty ones below derive."""

    def pairs(self, i, j):
        return (j <= i) & (j > i - 4)


class HidesSome(Near):
    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        return masks.Visibility(key_hi > query_lo - 3, key_lo < key_lo)


class ShowsTooMuch(Near):
    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        return masks.Visibility(key_lo == key_lo, key_hi <= query_hi)


class ByArray(Near):
    def __call__(self, query, key):
        near = jnp.arange(query.length)[:, None] >= jnp.arange(key.length)
        return near[None, None]


class Blind(Near):
    shows_itself = True

    def pairs(self, i, j):
        return j < i


class Numbers(Near):
    def pairs(self, i, j):
        return jnp.where(j <= i, 1.0, 0.0)


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        (HidesSome(), "blocks says that no pair of queries"),
        (ShowsTooMuch(), "blocks says that all pairs of queries"),
        (ByArray(), "goes by where tokens are stored"),
        (Blind(), "shows_itself, but hides"),
        (Numbers(), "returns float32, not booleans"),
    ],
)
def test_a_faulty_mask_is_told_what_it_breaks(faulty, message):
    testing.check_mask(Near())
    with pytest.raises(AssertionError, match=message):
        testing.check_mask(faulty)


@pytest.mark.parametrize("name", [*RULES, *MORE])
@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (5, 9), (12, 3)])
def test_blocks_never_hide_a_visible_pair(name, sizes):
    mask = RULES[name][0] if name in RULES else MORE[name]
    pairs = visible(mask)
    q_lo, k_lo = (np.arange(0, LENGTH, size) for size in sizes)
    q_hi, k_hi = (
        np.minimum(lo + size, LENGTH) - 1
        for lo, size in zip((q_lo, k_lo), sizes, strict=True)
    )
    some, every = mask.blocks(
        *(jnp.asarray(x) for x in (q_lo[:, None], q_hi[:, None], k_lo, k_hi))
    )
    some, every = (np.broadcast_to(x, (len(q_lo), len(k_lo))) for x in (some, every))
    for a in range(len(q_lo)):
        for b in range(len(k_lo)):
            block = pairs[:, q_lo[a] : q_hi[a] + 1, k_lo[b] : k_hi[b] + 1]
            assert some[a, b] or not block.any(), (a, b)
            assert block.all() or not every[a, b], (a, b)
            if name not in ONLY_CONSERVATIVE:
                assert some[a, b] == block.any(), (a, b)


@pytest.mark.parametrize(
    ("mask", "at_most"),
    [
        (masks.Window.sliding(16), 3),
        (masks.Lambda(4, 16), 4),
        (masks.BigBird(1024, block=16, random=2), 7),
        (masks.Chunked(64), 4),
    ],
    ids=str,
)
def test_sparse_masks_leave_few_blocks(mask, at_most):
    lo = jnp.arange(0, 1024, 16)
    seen = mask.block_visible(lo[:, None], lo[:, None] + 15, lo, lo + 15)
    assert int(np.asarray(seen)[1:-1].sum(1).max()) <= at_most


def test_random_draws_without_replacement_and_uniformly():
    mask = masks.Random(3, seed=5, last=20)
    drawn = np.stack([np.asarray(d) for d in mask.drawn(jnp.arange(6000))])
    assert all(len(set(row)) == 3 for row in drawn.T)
    counts = np.bincount(drawn.ravel(), minlength=20)
    assert counts.shape == (20,)
    chi2 = ((counts - 900) ** 2 / 900).sum()
    assert chi2 < 43.8  # 0.1% point of chi-squared with 19 degrees of freedom
    other = np.stack(
        [
            np.asarray(d)
            for d in masks.Random(3, seed=6, last=20).drawn(jnp.arange(6000))
        ]
    )
    assert (other == drawn).mean() < 0.1


def test_random_keeps_to_its_candidates():
    past = visible(masks.Random(4))[0]
    np.testing.assert_array_equal(past.sum(1), np.minimum(np.arange(LENGTH) + 1, 4))
    assert not np.triu(past, 1).any()
    apart = visible(masks.Random(3, first=5, last=30, gap=2))[0]
    i, j = np.nonzero(apart)
    assert j.min() >= 5
    assert j.max() < 30
    assert np.abs(i - j).min() > 2
    np.testing.assert_array_equal(apart.sum(1), 3)


def test_bigbird_sees_neighbours_ends_and_random_blocks():
    pairs = visible(masks.BigBird(64, block=4, random=2), 64, 64)[0]
    blocks = pairs.reshape(16, 4, 16, 4)
    assert (blocks.any((1, 3)) == blocks.all((1, 3))).all()
    blocks = blocks.any((1, 3))
    assert blocks[0].all()
    assert blocks[-1].all()
    for row in range(2, 14):
        assert blocks[row, [0, 15, row - 1, row, row + 1]].all()
        assert blocks[row].sum() == len({0, 15, row - 1, row, row + 1}) + 2


def test_against_transformers_masks():
    golden = np.load(GOLDEN / "mask_mistral_sliding_L17_w4.npz")
    real = golden["attention_mask"][:, None, None, :] == 1
    for name, mask in {
        "allowed_sliding": masks.Window.sliding(4),
        "allowed_causal": masks.Causal(),
    }.items():
        got = np.asarray(mask(tokens(17), tokens(17))) & real
        np.testing.assert_array_equal(got, golden[name])
    chunked = np.asarray(masks.Chunked(4)(tokens(17), tokens(17)))
    np.testing.assert_array_equal(chunked[0, 0], golden["allowed_chunked"][0, 0])


def test_per_head_masks_differ_by_head():
    hard_alibi = masks.PerHead((masks.Window(0), masks.Window(1), masks.Causal()))
    got = visible(hard_alibi, 6, 6)
    for head, reach in enumerate((0, 1, 6)):
        rule = by_rule(lambda i, j, reach=reach: 0 <= i - j <= reach, 6)
        np.testing.assert_array_equal(got[head], rule)


def test_marked_prefix_differs_by_row():
    mark = jnp.array([[1, 1, 0, 0], [0, 0, 0, 0]])
    mask = masks.Causal() | masks.Marked("prefix")
    got = mask(tokens(4), tokens(4, streams={"prefix": mark}))
    assert np.asarray(got)[:, 0, 0].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]
    with pytest.raises(ValueError, match="prefix"):
        mask(tokens(4), tokens(4))


def test_masks_are_values():
    a, b = masks.Causal() & masks.Window(3), masks.Causal() & masks.Window(3)
    assert a == b
    assert hash(a) == hash(b)
    assert a != masks.Causal() & masks.Window(4)
    assert ~~a == a
    both = jax.jit(lambda q, k: a(q, k))(tokens(6), tokens(6))
    np.testing.assert_array_equal(both[0, 0], by_rule(lambda i, j: 0 <= i - j <= 3, 6))


@pytest.mark.parametrize(
    ("mask", "reach"),
    [
        (masks.Causal(), None),
        (masks.Window.sliding(256), 255),
        (masks.Causal() & masks.Window(9, None), 9),
        (masks.Lambda(4, 100), 99),
        (masks.Chunked(64), 63),
        (masks.BlockwiseCausal(64), 127),
        (masks.Dilated(3, 5), 15),
        (masks.Longformer(8), 4),
        (masks.BigBird(512, block=16), 31),
        (masks.PerHead((masks.Window(3), masks.Window(7))), 7),
        (masks.PerHead((masks.Window(3), masks.Causal())), None),
        (~masks.Window(3), None),
    ],
    ids=str,
)
def test_reach_is_that_of_the_window(mask, reach):
    assert mask.reach == reach


@pytest.mark.parametrize(
    "build",
    [
        lambda: masks.Window(-1),
        lambda: masks.Window(2.5),
        lambda: masks.Window(2**31),
        lambda: masks.Window.sliding(0),
        lambda: masks.Window.sliding(True),
        lambda: masks.Window.symmetric(2.0),
        lambda: masks.Dilated(0, 2),
        lambda: masks.Chunked(0),
        lambda: masks.Blocks(masks.Causal(), 0),
        lambda: masks.BlockwiseCausal(-3),
        lambda: masks.Lambda(4, 0),
        lambda: masks.Random(0),
        lambda: masks.Random(2, seed=2**32),
        lambda: masks.BigBird(0),
        lambda: masks.Global(-1),
        lambda: masks.Global(at=(3, -1)),
        lambda: masks.Marked(3),
        lambda: masks.PerHead(()),
        lambda: masks.Causal() & None,
        lambda: masks.Causal() | np.ones((3, 3), bool),
        lambda: np.ones((3, 3), bool) & masks.Causal(),
        lambda: (lambda query, key: True) | masks.Causal(),
        lambda: masks.Causal()(tokens(3), jnp.arange(3)),
    ],
)
def test_bad_settings_are_refused(build):
    with pytest.raises(ValueError, match=r"must be|must say|masks combine"):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: masks.Dilated(3, -1), r"Dilated\(before=...\) .* got -1"),
        (lambda: masks.Dilated(2**20, 2**20), r"below 2\*\*31, got 1099511627776"),
        (lambda: masks.Longformer(4, globals=-2), r"Longformer\(globals=...\) .* -2"),
        (lambda: masks.Longformer(4, step=0), r"Longformer\(step=...\) .* got 0"),
        (lambda: masks.Window.sliding(0), r"Window\(width=...\) .* got 0"),
        (lambda: masks.Random(2, first=9, last=4), "at least first=9, got 4"),
    ],
)
def test_the_name_and_the_value_that_were_given_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_bigbird_is_for_sequences_of_its_length():
    """Else their last block would be an ordinary one, and one in the middle global."""
    mask, where = masks.BigBird(8, block=2), tokens(9)
    for call in (mask, jax.jit(mask), ~mask):
        with pytest.raises(ValueError, match=r"length=8\) .* but query has 9"):
            call(where, where)
    with pytest.raises(ValueError, match="but key has 10"):
        mask(tokens(8), tokens(2, offset=8))
    padded = tokens(9, valid=jnp.arange(9)[None] < 8)
    np.testing.assert_array_equal(
        mask(padded, padded)[..., :8, :8], mask(tokens(8), tokens(8))
    )
