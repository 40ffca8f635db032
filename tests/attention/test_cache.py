"""Decoding with a cache: one token at a time, in chunks and at once agree."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import Cache, attend
from ropejax.encodings import ENCODINGS, Encoding, Rotary
from ropejax.tokens import tokens
from tests.attention import cases

LENGTH = 12
FAST = {"none", "rope", "rerope", "xpos", "shaw", "t5", "alibi", "cope", "fox", "path"}


def decoded(encoding, arrays, chunks, dims=cases.DIMS):
    """Returns outputs of the tokens, fed in chunks of the given sizes."""
    shared, layer = arrays["shared"], arrays["layer"]

    def features(cache, x, q, k, here):
        """What the encoding computes for a chunk, from the state so far."""
        state = None if cache is None else cache.state
        known = here if cache is None else cache.key
        params = encoding.prepare(shared, layer, here, known, dims)
        at_query = encoding.query_features(params, x, q, here, state)
        at_key, state = encoding.key_features(params, x, k, here, state)
        return here.replace(features=at_query), here.replace(features=at_key), state

    def step(cache, chunk, start):
        q, k, v, x = chunk
        query, key, state = features(cache, x, q, k, tokens(q.shape[1], offset=start))
        if cache is None:
            cache = Cache.empty(k, v, key, capacity=LENGTH + 3)
        cache = cache.extended(k, v, key, state)
        out = attend(
            q,
            cache.k,
            cache.v,
            encoding=encoding,
            params=encoding.prepare(shared, layer, query, cache.key, dims),
            query=query,
            key=cache.key,
            mask=masks.Causal(),
        )
        return cache, out

    step = cases.jit(step)
    cache, start, outs = None, 0, []
    for size in chunks:
        chunk = [arrays[name][:, start : start + size] for name in "qkvx"]
        cache, out = step(cache, chunk, jnp.int32(start))
        outs.append(out)
        start += size
    return jnp.concatenate(outs, axis=1)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FAST else pytest.mark.slow)
        for name, encoding in ENCODINGS.items()
        if not encoding.length_dependent
    ],
)
def test_decoding_equals_the_full_pass(name):
    encoding = ENCODINGS[name]()
    arrays = cases.case(encoding, LENGTH).arrays
    full = cases.jit(cases.attention(encoding))(arrays)
    got = decoded(encoding, arrays, [5, *[1] * (LENGTH - 5)])
    np.testing.assert_allclose(got, full, atol=1e-5)


def test_chunks_of_any_size_agree():
    arrays = cases.case(Rotary(), LENGTH).arrays
    full = cases.attention(Rotary())(arrays)
    for chunks in ([1] * LENGTH, [4, 3, 5], [LENGTH]):
        got = decoded(Rotary(), arrays, chunks)
        np.testing.assert_allclose(got, full, atol=1e-5)


def chunk(size, start=0, seed=0):
    rng = np.random.default_rng(seed)
    k, v = (cases.normal(rng, 1, size, 2, 8) for _ in "kv")
    return k, v, tokens(size, offset=start)


def test_overflow_is_refused_and_never_silent():
    cache = Cache.empty(*chunk(3), capacity=4).extended(*chunk(3))
    with pytest.raises(ValueError, match="overflows: it got 5 more"):
        jax.eval_shape(lambda cache: cache.extended(*chunk(5)), cache)
    with pytest.raises(ValueError, match="capacity 4 overflows: it holds 3 tokens"):
        cache.extended(*chunk(2, 3))
    with pytest.raises(ValueError, match="overflows"):
        jax.jit(lambda c: c.extended(*chunk(5)))(cache)
    traced = jax.jit(lambda c: c.extended(*chunk(2, 3)))(cache)
    assert np.isnan(traced.k).any()
    assert not np.isnan(cache.extended(*chunk(1, 3)).k).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": 0}, "capacity must be positive, got 0"),
        ({"capacity": 2.5}, "capacity must be positive, got 2.5; an integer"),
        ({"capacity": True}, "capacity must be positive, got True"),
        ({"capacity": 4, "sinks": 4}, "sinks must be in 0 .. capacity - 1 = 3, got 4"),
        ({"capacity": 4, "sinks": 1.0}, "capacity - 1 = 3, got 1.0; an integer"),
    ],
)
def test_bad_sizes_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Cache.empty(*chunk(1), **settings)


K, V, KEY = chunk(2)
SEGMENTS = jnp.zeros((1, 2), jnp.int32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": K[:, :, :1], "v": V[:, :, :1]}, r"k must be \[1, length, 2, 8\]"),
        ({"k": K[..., :4]}, r"k must be \[1, length, 2, 8\] as in the cache, got "),
        ({"v": jnp.ones((1, 2, 2, 9))}, r"v must be \[1, length, 2, 8\]"),
        ({"k": jnp.tile(K, (2, 1, 1, 1))}, "k and v must agree but for width"),
        ({"v": V[:, :1]}, "k and v must agree but for width"),
        ({"key": tokens(3)}, "k holds 2 tokens, but its Tokens 3"),
        (
            {"k": K.astype(jnp.bfloat16)},
            "k is float32 in the cache, got bfloat16; cast",
        ),
        ({"k": K.astype(jnp.int32)}, "k must be floating-point, got int32"),
        ({"k": K[0]}, r"k must be \[batch, length, heads, width\]"),
        ({"k": K.tolist()}, "k must be an array .* got list"),
        ({"key": 3}, "key must say where the keys are, .* got int"),
        ({"key": tokens(2, segments=SEGMENTS)}, "with segments, which .* before lack"),
        ({"key": KEY.replace(features={"a": K})}, "with features, which .* lack"),
        ({"key": KEY.replace(streams={"a": SEGMENTS})}, "with streams, which .* lack"),
        (
            {"key": tokens(2, positions=jnp.zeros((1, 2, 3), jnp.int32))},
            r"positions must be \[1, length\] as in the cache, got \(1, 2, 3\)",
        ),
        (
            {"key": tokens(2, positions=jnp.array([[0.5, 1.5]]))},
            "positions is int32 in the cache, got float32",
        ),
        (
            {"key": KEY.replace(positions=jnp.array([[0.0, jnp.nan]]))},
            "positions of key must be finite, got nan",
        ),
        (
            {"key": KEY.replace(positions=jnp.arange(3)[None])},
            r"positions of key must be \[B or 1, 2\], got int32 \[1, 3\]",
        ),
        ({"key": tokens(2, distances=jnp.arange(5)[None])}, "no.* table of distances"),
        ({"key": tokens(2, valid=jnp.ones((3, 2), bool))}, "valid .* 1 or 1 rows"),
    ],
    ids=str,
)
def test_chunks_that_do_not_fit_are_refused(changes, message):
    """They would leave zeros among the keys, or be cast to something else."""
    cache = Cache.empty(K, V, KEY, capacity=8)
    given = {"k": K, "v": V, "key": KEY} | changes
    with pytest.raises(ValueError, match=message):
        cache.extended(**given)
    if "array" in message or "key must say" in message or "finite" in message:
        return  # nothing that can be traced, or values that are not known then
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(cache.extended, *given.values())


def test_rows_that_part_later_are_told_to_do_so_from_the_start():
    k = jnp.ones((2, 2, 2, 8))
    cache = Cache.empty(k, k, tokens(2), capacity=8).extended(k, k, tokens(2))
    here = tokens(1).replace(index=jnp.array([[1], [2]]))
    with pytest.raises(ValueError, match="give Cache.empty 2 rows of index, by jnp.br"):
        cache.extended(k[:, :1], k[:, :1], here)


def test_rows_are_chosen_as_if_they_had_been_there_from_the_start():
    rng = np.random.default_rng(0)
    k, v, state = (cases.normal(rng, 3, 4, 2, 8) for _ in range(3))
    index = jnp.arange(12).reshape(3, 4)
    where = tokens(4).replace(index=index, features={"gate": k[..., 0]})

    def filled(rows):
        one = lambda x: x[jnp.asarray(rows)]
        key = where.replace(index=one(index), features={"gate": one(k[..., 0])})
        cache = Cache.empty(one(k), one(v), key, capacity=6)
        return cache.extended(one(k), one(v), key, one(state[:, 0]))

    got = filled([0, 1, 2]).of_rows(jnp.array([2, 0, 2, 1]))
    jax.tree.map(np.testing.assert_array_equal, got, filled([2, 0, 2, 1]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (jnp.array([0, 2]), r"rows must be in 0 \.\. 1, the rows .* got 0 \.\. 2"),
        (jnp.array([-1]), "got -1 .. -1"),
        (jnp.array([0.0]), r"array of integers on one axis, got float32 \[1\]"),
        ([0, 1], r"array of integers on one axis, got \[0, 1\]"),
        (jnp.int32(0), r"array of integers on one axis, got int32 \[\]"),
    ],
    ids=str,
)
def test_rows_that_are_not_there_are_refused(rows, message):
    k = jnp.ones((2, 2, 2, 8))
    with pytest.raises(ValueError, match=message):
        Cache.empty(k, k, tokens(2), capacity=8).of_rows(rows)


def test_what_the_first_chunk_had_must_come_with_every_other():
    packed = tokens(2, segments=SEGMENTS)
    cache = Cache.empty(K, V, packed, capacity=8).extended(K, V, packed)
    with pytest.raises(ValueError, match="without segments, which .* before have"):
        cache.extended(K, V, tokens(2, offset=2))
    with pytest.raises(ValueError, match="k and v must agree"):
        Cache.empty(K, V[:, :, :1], KEY, capacity=8)
    with pytest.raises(ValueError, match="valid of key must have 1 or 1 rows"):
        Cache.empty(K, V, tokens(2, valid=jnp.ones((3, 2), bool)), capacity=8)


def test_a_state_does_not_break_off():
    cache = Cache.empty(K, V, KEY, capacity=8).extended(K, V, KEY, {"sum": K[:, -1]})
    later = tokens(2, offset=2)
    for state in (None, {"sum": K}, {"other": K[:, -1]}):
        with pytest.raises(ValueError, match="state must be what key_features"):
            cache.extended(K, V, later, state)
    cache = Cache.empty(K, V, KEY, capacity=8).extended(K, V, KEY)
    with pytest.raises(ValueError, match=r"shape None .* got \(1, 2, 2, 8\)"):
        cache.extended(K, V, later, K)


def test_tokens_that_are_there_already_are_refused():
    """Someone has forgotten the offset; queries would see two tokens of one order."""
    cache = Cache.empty(K, V, KEY, capacity=8).extended(K, V, KEY)
    with pytest.raises(
        ValueError, match="index 0 is in the cache .* offset=cache.count"
    ):
        cache.extended(K, V, KEY)
    with pytest.raises(ValueError, match="index 1 is in the cache already"):
        cache.extended(K, V, tokens(2, offset=1))
    padding = tokens(2, offset=1, valid=jnp.array([[True, False]]))
    cache = Cache.empty(K, V, KEY, capacity=8).extended(K, V, padding)
    assert int(cache.extended(K, V, tokens(2, offset=2)).count) == 4
    packed = KEY.replace(segments=SEGMENTS)
    cache = Cache.empty(K, V, packed, capacity=8).extended(K, V, packed)
    anew = KEY.replace(segments=SEGMENTS + 1)
    assert int(cache.extended(K, V, anew).count) == 4


def test_padding_has_no_rank():
    """Of rows that are padded on the left or right, the newest token is the last."""
    k, v = (jnp.tile(x, (3, 2, 1, 1)) for x in (K, V))
    left = tokens(
        4, valid=jnp.arange(4) >= jnp.array([[1], [0], [0]]), left_padded=True
    )
    right = jnp.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]], bool)
    key = left.replace(valid=left.valid & right)
    cache = Cache.empty(k, v, key, capacity=6).extended(k, v, key)
    ranked, newest = cache.by_rank()
    assert newest[:, 0].tolist() == [2, 3, 1]
    held = np.asarray(cache.key.valid)
    ranks = [
        row[there].tolist() for row, there in zip(ranked.positions, held, strict=True)
    ]
    assert ranks == [[0, 1, 2], [0, 1, 2, 3], [0, 1]]
    rolling = Cache.empty(k[:, :1], v[:, :1], key.block(0, 1), capacity=4, sinks=1)
    with pytest.raises(ValueError, match="counts every token, padding too"):
        rolling.extended(k[:, :1], v[:, :1], key.block(0, 1))


def test_rolling_keeps_sinks_and_the_latest_at_constant_memory():
    cache = Cache.empty(*chunk(1), capacity=6, sinks=2)
    extend = jax.jit(lambda cache, *new: cache.extended(*new))
    ks = []
    for n in range(20):
        k, v, key = chunk(1, n, seed=n)
        cache = extend(cache, k, v, key)
        ks.append(k)
        kept = [*range(min(n + 1, 2)), *range(max(2, n - 3), n + 1)]
        held = np.asarray(cache.key.valid)[0]
        index = np.asarray(cache.key.index)[0]
        assert sorted(index[held]) == kept
        for slot in np.nonzero(held)[0]:
            np.testing.assert_array_equal(cache.k[0, slot], ks[index[slot]][0, 0])
        at_rank, newest = cache.by_rank()
        ranks = np.asarray(at_rank.positions)[0]
        assert [int(ranks[index == j][-1]) for j in kept] == list(range(len(kept)))
        assert int(newest[0, 0]) == len(kept) - 1
    assert cache.k.shape == (1, 6, 2, 8)
    with pytest.raises(
        ValueError, match="one token at a time once it is full: it got 2"
    ):
        cache.extended(*chunk(2, 20))


def test_a_rolling_cache_takes_a_prompt_for_which_it_has_room():
    empty = Cache.empty(*chunk(1), capacity=6, sinks=2)
    k, v, key = chunk(5)
    at_once, one_by_one = empty.extended(k, v, key), empty
    for n in range(5):
        one = k[:, n : n + 1], v[:, n : n + 1], key.block(n, 1)
        one_by_one = one_by_one.extended(*one)
    for n in range(5, 9):
        at_once, one_by_one = (c.extended(*chunk(1, n)) for c in (at_once, one_by_one))
    chex.assert_trees_all_equal(at_once, one_by_one)
    with pytest.raises(ValueError, match="one token at a time once it is full"):
        empty.extended(*chunk(7))
    beyond = jax.jit(lambda cache, *new: cache.extended(*new))(at_once, *chunk(2, 9))
    assert jnp.isnan(beyond.k).any()


def test_streaming_equals_the_lambda_mask_without_positions():
    rng = np.random.default_rng(0)
    q, k, v = (cases.normal(rng, 1, 20, 2, 8) for _ in "qkv")
    where = tokens(20)
    settings = {"encoding": Encoding(), "mask": masks.Lambda(2, 4)}
    full = attend(q, k, v, query=where, key=where, **settings)
    cache = Cache.empty(k[:, :1], v[:, :1], tokens(1), capacity=6, sinks=2)

    @jax.jit
    def step(cache, q, k, v, n):
        cache = cache.extended(k, v, tokens(1, offset=n))
        query = tokens(1, offset=n)
        return cache, attend(
            q, cache.k, cache.v, query=query, key=cache.key, encoding=Encoding()
        )

    for n in range(20):
        one = [x[:, n : n + 1] for x in (q, k, v)]
        cache, out = step(cache, *one, jnp.int32(n))
        np.testing.assert_allclose(out[:, 0], full[:, n], atol=1e-6)
