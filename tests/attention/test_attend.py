"""What `attend` means, chooses and refuses; faults that users met elsewhere."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import (
    Entmax,
    Sigmoid,
    SinkSoftmax,
    Softmax,
    attend,
    choose,
    visible_counts,
)
from ropejax.attention.choice import block_sizes
from ropejax.encodings import ALiBi, Dims, Encoding
from ropejax.tokens import tokens

ENGINES = ("dense", "blockwise")


def zeros_attend(values, queries, keys, offset, mask=None, **settings):
    """Attends with equal logits to given value rows `[S, Hv]`."""
    q = jnp.zeros((1, queries, 1, 4))
    k = jnp.zeros((1, keys, 1, 4))
    v = jnp.asarray(values, jnp.float32)[None, :, None]
    return attend(
        q,
        k,
        v,
        encoding=Encoding(),
        query=tokens(queries, offset=offset),
        key=tokens(keys),
        mask=masks.Causal() if mask is None else mask,
        **settings,
    )[0, :, 0]


@pytest.mark.parametrize("implementation", ENGINES)
def test_fault_b06_queries_align_with_the_end_of_the_keys(implementation):
    settings = {"implementation": implementation, "block_q": 1, "block_k": 2}
    values = np.arange(5.0)[:, None]
    steps = [
        float(zeros_attend(values[: n + 1], 1, n + 1, n, **settings)[0, 0])
        for n in range(5)
    ]
    np.testing.assert_allclose(steps, [0, 0.5, 1, 1.5, 2], atol=1e-6)
    rows = np.arange(12.0).reshape(3, 4)
    got = zeros_attend(rows, 2, 3, 1, **settings)
    np.testing.assert_allclose(got, [[2, 3, 4, 5], [4, 5, 6, 7]], atol=1e-6)


@pytest.mark.parametrize("implementation", ENGINES)
def test_an_array_is_a_mask_by_way_of_the_function_that_its_refusal_names(
    implementation,
):
    values = np.arange(5.0)[:, None]
    array = np.tril(np.ones((5, 5), bool))
    with pytest.raises(ValueError, match="of booleans is") as refused:
        zeros_attend(values, 5, 5, 0, array)
    told = str(refused.value).partition(" of booleans is ")[2].rstrip(".")
    mask = eval(told, {"array": array, "jnp": jnp})
    settings = {"implementation": implementation, "block_q": 2, "block_k": 2}
    got = zeros_attend(values, 5, 5, 0, mask, **settings)
    np.testing.assert_allclose(got[:, 0], [0, 0.5, 1, 1.5, 2], atol=1e-6)


@pytest.mark.parametrize("implementation", ENGINES)
def test_fault_b05_alibi_holds_for_one_query_at_the_end(implementation):
    q, k = jnp.zeros((1, 1, 4, 8)), jnp.zeros((1, 5, 4, 8))
    v = jnp.broadcast_to(jnp.eye(5)[None, :, None], (1, 5, 4, 5))
    encoding = ALiBi()
    query, key = tokens(1, offset=4), tokens(5)
    dims = Dims(4, 4, 8, 32, causal=True)
    shared = encoding.init_shared(jax.random.key(0), dims)
    layer = encoding.init_layer(jax.random.key(0), dims)
    got = attend(
        q,
        k,
        v,
        encoding=encoding,
        params=encoding.prepare(shared, layer, query, key, dims),
        query=query,
        key=key,
        mask=masks.Causal(),
        implementation=implementation,
        block_k=2,
    )
    wanted = [0.114050724, 0.146444028, 0.188037854, 0.241445384, 0.310022010]
    np.testing.assert_allclose(got[0, 0, 0], wanted, atol=1e-6)


@pytest.mark.parametrize("implementation", ENGINES)
def test_fault_b16_a_row_without_keys_is_zero_and_depends_on_none(implementation):
    def mask(query, key):
        return jnp.array([[1, 1, 0], [0, 0, 0]], bool)[None, None]

    values = jnp.arange(12.0).reshape(3, 4)
    settings = {"implementation": implementation, "mask": mask}
    got = zeros_attend(values, 2, 3, 0, **settings)
    np.testing.assert_allclose(got, [[2, 3, 4, 5], [0, 0, 0, 0]], atol=1e-6)
    row = jax.grad(lambda v: zeros_attend(v, 2, 3, 0, **settings)[1].sum())(values)
    assert not np.asarray(row).any()


def inputs(seed=0, length=24, batch=2):
    keys = jax.random.split(jax.random.key(seed), 3)
    return [jax.random.normal(key, (batch, length, 4, 8)) for key in keys]


def plain(q, k, v, **settings):
    where = tokens(q.shape[1])
    settings = {"mask": masks.Causal(), "encoding": Encoding()} | settings
    return attend(q, k, v, **({"query": where, "key": where} | settings))


def test_dropout_is_the_same_in_every_engine_and_order():
    q, k, v = inputs(length=64)
    settings = {"dropout_rate": 0.25, "rng": jax.random.key(3)}
    dense = plain(q, k, v, implementation="dense", **settings)
    block = {"implementation": "blockwise", "block_q": 9, "block_k": 17}
    np.testing.assert_allclose(plain(q, k, v, **block, **settings), dense, atol=2e-6)
    order = jnp.asarray(np.random.default_rng(0).permutation(64))
    where = tokens(64).permuted(order)
    moved = plain(
        *(x[:, order] for x in (q, k, v)), query=where, key=where, **block, **settings
    )
    np.testing.assert_allclose(moved, dense[:, order], atol=2e-6)

    def loss(v, engine):
        return (plain(q, k, v, **engine, **settings) ** 2).sum()

    a, b = (jax.grad(loss)(v, s) for s in (block, {"implementation": "dense"}))
    np.testing.assert_allclose(a, b, atol=2e-5)


def test_dropout_drops_the_stated_share_and_keeps_the_mean():
    length = 64
    v = jnp.broadcast_to(jnp.eye(length)[None, :, None], (4, length, 2, length))
    q = k = jnp.zeros((4, length, 2, 4))
    weights = (
        plain(q, k, v, mask=None, dropout_rate=0.3, rng=jax.random.key(0)) * length
    )
    weights = np.asarray(weights)
    kept = weights > 0
    np.testing.assert_allclose(weights[kept], 1 / 0.7, rtol=1e-5)
    deviation = np.sqrt(0.3 * 0.7 / kept.size)
    assert abs(kept.mean() - 0.7) < 4 * deviation
    for axis in range(4):  # batch, query, head, key: no structure along any axis
        others = tuple(a for a in range(4) if a != axis)
        share = kept.mean(axis=others)
        bound = 5 * np.sqrt(0.21 * len(share) / kept.size)
        assert np.abs(share - 0.7).max() < bound
    assert not np.array_equal(kept[0], kept[1])
    unchanged = plain(q, k, v, mask=None, dropout_rate=0.3)
    np.testing.assert_allclose(unchanged * length, 1, rtol=1e-5)


def test_counts_of_visible_keys():
    where = tokens(
        10,
        positions=jnp.arange(10)[None],
        segments=jnp.array([[0] * 4 + [1] * 6]),
        valid=jnp.arange(10)[None] != 5,
    )
    counts = visible_counts(where, where, masks.Window(2), block=4)
    assert counts.shape == (1, 10, 1)
    assert counts[0, :, 0].tolist() == [1, 2, 3, 3, 1, 1, 2, 2, 3, 3]
    causal = jax.jit(lambda where: visible_counts(where, where, masks.Causal()))
    where = tokens(4100)
    assert (causal(where)[0, :, 0] == jnp.arange(1, 4101)).all()
    memory = causal.lower(where).compile().memory_analysis().temp_size_in_bytes
    assert memory < 4100 * 256  # not even a byte for each query and a block of keys


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block": 0}, "block must be a positive integer, got 0"),
        ({"block": 2.5}, "block must be a positive integer, got 2.5"),
        ({"key": jnp.arange(4)}, "key must say where tokens are"),
        ({"key": tokens(4).replace(valid=jnp.ones((1, 5), bool))}, "valid of key's"),
        (
            {"key": tokens(4, segments=jnp.zeros((1, 4), int))},
            "queries have no segments",
        ),
        ({"mask": lambda q, k: jnp.ones((4, 4), bool)}, "must return booleans"),
        ({"mask": lambda q, k: jnp.ones((1, 1, 3, 4), bool)}, "3 queries, but .* 4"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_counts_refuse_bad_input(changes, message):
    given = {"query": tokens(4), "key": tokens(4), "mask": masks.Causal()} | changes
    with pytest.raises(ValueError, match=message):
        visible_counts(**given)


@pytest.mark.parametrize("implementation", ENGINES)
def test_row_scale_multiplies_final_logits(implementation):
    q, k, v = inputs(batch=1)
    scale = jnp.linspace(0.5, 2, 24 * 4).reshape(1, 24, 4)
    dims = Dims(4, 4, 8, 32, causal=True)
    where = tokens(24)
    params = ALiBi().prepare(
        ALiBi().init_shared(jax.random.key(0), dims),
        ALiBi().init_layer(jax.random.key(0), dims),
        where,
        where,
        dims,
    )
    settings = {"encoding": ALiBi(), "params": params, "return_lse": True}
    got, lse = plain(
        q,
        k,
        v,
        row_scale=scale,
        implementation=implementation,
        block_q=7,
        block_k=5,
        **settings,
    )
    logits = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(8)
    slopes = 2.0 ** -np.array([2, 4, 6, 8])
    apart = np.arange(24)[None, :] - np.arange(24)[:, None]
    logits = (logits + slopes[:, None, None] * apart) * np.moveaxis(scale, 1, 2)[
        ..., None
    ]
    weights = np.where(apart <= 0, np.exp(logits), 0)
    np.testing.assert_allclose(lse, np.log(weights.sum(-1)), atol=1e-5)
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(got, np.einsum("bnts,bsnh->btnh", weights, v), atol=1e-5)


def choice(implementation, length, normalizer=None, **settings):
    return choose(
        implementation,
        num_keys=length,
        **{"num_queries": length, "num_rows": 1} | settings,
        encoding=Encoding(),
        normalizer=Softmax() if normalizer is None else normalizer,
    )


def test_auto_chooses_by_length_and_says_why(caplog):
    assert choice("auto", 1023) == (
        "dense",
        "1023 queries x 1023 keys are fewer than 1024 x 1024",
    )
    assert choice("auto", 1024) == (
        "blockwise",
        "1024 queries x 1024 keys are at least 1024 x 1024",
    )
    assert choice("auto", 256, num_rows=64) == (
        "blockwise",
        "256 queries x 256 keys of 64 rows and heads leave a CPU's caches",
    )
    decoding = choice("auto", 4096, num_rows=8, num_queries=1)
    assert decoding.implementation == "blockwise"
    assert "1 queries x 4096 keys read more keys than logits" in decoding.why
    few = {"length": 256, "num_rows": 16}, {"length": 127, "num_rows": 9999}
    few += ({"length": 1023, "num_rows": 99, "num_queries": 1},)
    others = {"length": 256, "num_rows": 64, "platform": "gpu"}
    whole = {"length": 256, "num_rows": 64, "normalizer": Entmax(3.0)}
    for short in (*few, others, whole):
        assert choice("auto", **short).implementation == "dense"
    assert choice("dense", 9999).why == "asked for by name"
    with pytest.warns(UserWarning, match="Entmax needs whole rows"):
        assert choice("auto", 4096, Entmax(3.0)).implementation == "dense"
    with caplog.at_level("DEBUG", logger="ropejax.attention.api"):
        plain(*inputs())
    assert "dense attention: 24 queries x 24 keys are fewer" in caplog.text


def test_blocks_are_smaller_for_narrow_windows_unless_given():
    assert block_sizes(masks.Causal(), None, None) == (256, 128)
    assert block_sizes(None, None, None) == (256, 128)
    assert block_sizes(masks.Lambda(4, 256), None, None) == (128, 128)
    assert block_sizes(masks.Lambda(4, 256), 64, 32) == (64, 32)
    # On a CPU the logits of a block stay in a cache, down to 64 tokens a side.
    for rows, sizes in {1: (256, 128), 16: (128, 128), 64: (64, 64)}.items():
        assert block_sizes(None, None, None, rows) == sizes
    assert block_sizes(None, None, 128, 9999) == (64, 128)
    assert block_sizes(None, None, None, 64, num_queries=1) == (64, 128)


Q = jnp.zeros((2, 6, 4, 8))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"q": Q[0]}, r"q must be \[batch"),
        ({"q": Q[:, :0]}, r"none of them 0"),
        ({"q": Q.tolist()}, "q must be an array .* got list; jnp.asarray"),
        ({"k": Q.astype(jnp.int32)}, "k must be floating-point, got int32"),
        ({"k": Q.astype(jnp.bfloat16)}, "one dtype, .* got float32, bfloat16 and floa"),
        ({"v": Q[:, :5]}, "k and v must agree"),
        ({"k": Q[..., :4], "v": Q}, "q and k must agree in batch and width"),
        ({"k": Q[:1], "v": Q[:1]}, "q and k must agree in batch and width"),
        ({"k": Q[:, :, :3], "v": Q[:, :, :3]}, "multiple of key heads: 4 and 3"),
        ({"query": tokens(5)}, "q holds 6 tokens, but its Tokens 5"),
        (
            {"key": tokens(6, valid=jnp.ones((3, 6), bool))},
            r"valid of k's Tokens must have 1 or 2 rows",
        ),
        (
            {"key": tokens(6).replace(distances=jnp.arange(4)[None])},
            "too short for 6 tokens",
        ),
        ({"mask": jnp.ones((6, 6), bool)}, "mask must be a mask of ropejax.masks"),
        ({"mask": masks.PerHead((masks.Causal(),) * 3)}, "3 query heads, but .* 4"),
        (
            {"mask": masks.Causal() & ~masks.PerHead((masks.Window(3),) * 8)},
            "8 query heads, but there are 4",
        ),
        ({"mask": lambda q, k: Q[0, 0] > 0}, r"booleans .* got bool \[4, 8\]"),
        ({"mask": lambda q, k: jnp.ones((1, 1, 6, 6))}, "booleans .* got float32"),
        ({"mask": lambda q, k: True}, "must return booleans"),
        (
            {"mask": lambda q, k: jnp.ones((1, 1, 6, 5), bool)},
            r"of 5 keys, but there are 6: it must return \[2 or 1, 4 or 1, 6 or 1, 6",
        ),
        ({"mask": lambda q, k: jnp.ones((3, 1, 6, 6), bool)}, "of 3 rows, but there "),
        ({"mask": masks.BigBird(5)}, r"BigBird\(length=5\) .* but query has 6"),
        ({"key": tokens(6, valid=jnp.ones((1, 6), int))}, "valid of key's .* bool"),
        ({"key": tokens(6).replace(index=jnp.arange(6))}, "index of key's Tokens must"),
        (
            {
                "query": tokens(6, valid=jnp.ones((2, 6), bool)),
                "key": tokens(6).replace(index=jnp.zeros((3, 6), int)),
            },
            "as many rows, or 1, got arrays of 2 and 3 rows",
        ),
        (
            {"query": tokens(6).replace(positions=jnp.zeros((1, 5), int))},
            r"positions of q's Tokens must be \[B or 1, 6\], got int32 \[1, 5\]",
        ),
        ({"query": tokens(6).replace(positions="ab")}, "positions of q's .* got 'ab'"),
        (
            {"key": tokens(6).replace(valid=jnp.ones((1, 7), bool))},
            "valid of key's Tok",
        ),
        ({"return_lse": "yes"}, "return_lse must be True or False, got 'yes'"),
        ({"implementation": "blockwize"}, "did you mean 'blockwise'"),
        ({"implementation": "cudnn"}, "must be one of auto, dense, blockwise"),
        (
            {"implementation": "ring"},
            r"mesh axis, .* SequenceParallel\('ring'\)",
        ),
        ({"implementation": "alltoall"}, "got 'alltoall'.$"),
        (
            {
                "mask": masks.Window(3) & masks.PerHead((masks.Full(),) * 2)
                | masks.PerHead((masks.Causal(),) * 4)
            },
            r"masks that combine must be of as many heads, or of 1: And.* of 2, and "
            r"PerHead.* of 4",
        ),
        ({"block_q": 0}, "block_q must be a positive integer, got 0"),
        ({"block_k": 1.5}, "block_k must be a positive integer, got 1.5"),
        ({"dropout_rate": 1.0}, r"dropout_rate must be in \[0, 1\), got 1.0"),
        ({"dropout_rate": 1 - 1e-11}, r"at most 1 - 2\*\*-32, .* got 0.99999999999"),
        ({"dropout_rate": "x"}, r"dropout_rate must be in \[0, 1\), got 'x'"),
        ({"dropout_rate": 0.1, "rng": 3}, "rng must be one PRNG key, .* got 3"),
        (
            {"dropout_rate": 0.1, "rng": jax.random.split(jax.random.key(0))},
            "rng must be one PRNG key",
        ),
        ({"scale": "x"}, "scale must be a number or an array, got 'x'"),
        ({"scale": True}, "scale must be of real numbers, got True"),
        ({"scale": np.complex64(1j)}, "scale must be of real numbers, got .*1j"),
        ({"scale": 1j}, "scale must be a number or an array, got 1j"),
        ({"row_scale": jnp.ones((2, 6, 4)) * 1j}, "row_scale must be of real numbers"),
        ({"first_row": "a"}, "first_row must be an integer, .* got 'a'"),
        ({"first_row": 0.5}, "first_row must be an integer, .* got 0.5"),
        ({"row_scale": "x"}, "row_scale must be a number or an array, got 'x'"),
        ({"scale": jnp.ones((6,))}, r"got shape \(6,\)"),
        ({"row_scale": jnp.ones((2, 5, 4))}, r"got \(2, 5, 4\)"),
        ({"normalizer": "softmax"}, "normalizer must be one of"),
        ({"normalizer": Sigmoid(), "return_lse": True}, "no log-sum-exp"),
        ({"normalizer_params": {"sink": 0.0}}, "Softmax has no parameters"),
        (
            {
                "normalizer": SinkSoftmax(),
                "normalizer_params": {"sink": jnp.zeros(3)},
            },
            r'SinkSoftmax takes {"sink": \[4\]}',
        ),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_input_is_refused(settings, message):
    arrays = {name: settings.get(name, Q) for name in "qkv"}
    rest = {name: x for name, x in settings.items() if name not in arrays}
    where = tokens(6)
    defaults = {"encoding": Encoding(), "query": where, "key": where}
    with pytest.raises(ValueError, match=message):
        attend(**arrays, **(defaults | rest))


class OnlyCausal(Encoding):
    causal_only = True


def test_causal_encodings_refuse_masks_that_show_the_future():
    q, k, v = inputs()
    for mask in (None, masks.Window(3, 1), masks.Longformer(4)):
        with pytest.raises(ValueError, match="undefined for keys after the query"):
            plain(q, k, v, encoding=OnlyCausal(), mask=mask)
    for mask in (masks.Causal(), masks.Lambda(2, 4), masks.Chunked(8)):
        plain(q, k, v, encoding=OnlyCausal(), mask=mask)


@pytest.mark.fast
def test_numbers_of_other_kinds_are_the_same_numbers():
    """A fraction as a scale, float64 of NumPy's, the largest rate of dropout."""
    q, k, v = inputs()
    wanted = plain(q, k, v, scale=0.25)
    np.testing.assert_array_equal(plain(q, k, v, scale=Fraction(1, 4)), wanted)
    wide = [np.asarray(x, np.float64) for x in (q, k, v)]
    for implementation in ("dense", "blockwise"):
        out = plain(*wide, scale=0.25, implementation=implementation)
        assert out.dtype == jnp.float32
        np.testing.assert_allclose(out, wanted, atol=2e-6)
    rate, rng = 1 - 2.0**-32, jax.random.key(0)
    assert not plain(q, k, v, dropout_rate=rate, rng=rng).any()
