import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import ScalarBias, T5Bias
from ropejax.encodings.buckets import deberta_buckets, t5_buckets
from ropejax.tokens import tokens
from tests.encodings.additive_cases import (
    assert_golden,
    by_token,
    causal,
    dims,
    load,
    names,
    params_of,
)


def bucket(relative, both, num_buckets=32, max_distance=128):
    at = np.clip(relative, -max_distance, max_distance) + max_distance
    return t5_buckets(num_buckets, max_distance, both)[at]


def test_buckets_equal_those_of_public_code_exactly():
    golden = load("t5_buckets_main")
    relative = golden["relative_position"]
    for count, far in params_of("t5_buckets_main")["configs"]:
        for direction, both in (("bidir", True), ("causal", False)):
            got = bucket(relative, both, count, far)
            name = f"{direction}_nb{count}_md{far}"
            np.testing.assert_array_equal(got, golden[name])
            np.testing.assert_array_equal(got, golden[f"{name}_exact"])


@pytest.mark.parametrize(
    ("both", "values"),
    [
        (
            False,
            {0: 0, -8: 8, -15: 15, -16: 16, -20: 17, -32: 21, -64: 26, 1: 0, 300: 0},
        ),
        (
            True,
            {0: 0, -1: 1, 1: 17, 5: 21, -7: 7, -8: 8, -11: 8, -12: 9, -15: 9, -16: 10}
            | {-20: 10, 20: 26, -32: 12, 32: 28, -64: 14, 64: 30, -999: 15, 999: 31},
        ),
    ],
)
def test_buckets_of_known_offsets(both, values):
    """Fault B10: an inverted test for the bidirectional split wastes half of them."""
    assert bucket(np.array(list(values)), both).tolist() == list(values.values())


def test_sizes_of_numpys_kind_do_not_overflow_and_far_ones_are_refused():
    """Powers of numpy's integers wrap around; each distance takes a row of memory."""
    for buckets, sizes in ((t5_buckets, (64, 300, True)), (deberta_buckets, (64, 300))):
        ours = buckets.__wrapped__(*map(np.int64, sizes))
        np.testing.assert_array_equal(ours, buckets.__wrapped__(*sizes))
        assert len(set(ours.tolist())) > 50
        with pytest.raises(ValueError, match="max_distance must be at most 4194304"):
            buckets(32, 2**31, *sizes[2:])


def test_first_distance_of_each_wide_bucket():
    distance = np.arange(128)
    got = bucket(-distance, True)
    first = [int(distance[got == b][0]) for b in range(8, 16)]
    assert first == [8, 12, 16, 23, 32, 46, 64, 91]


@pytest.mark.parametrize("case", names("t5_bias"))
def test_bias_and_attention_equal_transformers(case):
    golden, settings = load(case), params_of(case)
    q, k, v = (by_token(golden[name]) for name in "qkv")
    both = settings["bidirectional"]
    encoding, where = T5Bias(), tokens(q.shape[1])
    sizes = dims(*q.shape[2:], is_causal=not both)
    shared = {"table": jnp.asarray(golden["table"])}

    @jax.jit
    def run(q, k, v, shared):
        params = encoding.prepare(shared, {}, where, where, sizes)
        out = attend(
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            query=where,
            key=where,
            mask=None if both else causal,
            scale=1.0,
        )
        placed = tokens(q.shape[1], positions=where.positions)
        return (
            encoding.bias(params, where, where, 1.0),
            encoding.bias(params, placed, placed, 1.0),
            out,
        )

    in_order, given, out = run(q, k, v, shared)
    assert_golden(case, in_order, golden["bias"])
    assert_golden(case, given, golden["bias"])
    np.testing.assert_allclose(out, by_token(golden["out"]), atol=1e-5)


def test_direction_follows_the_model_unless_set():
    where = tokens(3)
    table = {"table": jnp.arange(32.0)[:, None]}

    def upper(encoding, is_causal):
        sizes = dims(1, 4, is_causal=is_causal)
        params = encoding.prepare(table, {}, where, where, sizes)
        return float(encoding.bias(params, where, where, 1.0)[0, 0, 0, 1])

    assert upper(T5Bias(), is_causal=True) == 0
    assert upper(T5Bias(), is_causal=False) == 17
    assert upper(T5Bias(bidirectional=True), is_causal=True) == 17
    assert upper(T5Bias(bidirectional=False), is_causal=False) == 0


def test_table_is_shared_over_layers_unless_asked():
    rng, sizes = jax.random.key(0), dims(4, 64)
    table = T5Bias().init_shared(rng, sizes)["table"]
    assert table.shape == (32, 4)
    np.testing.assert_allclose(table.std(), 256**-0.5, rtol=0.15)
    assert T5Bias().init_layer(rng, sizes) == {}
    own = T5Bias(shared=False)
    assert own.init_shared(rng, sizes) == {}
    assert own.init_layer(rng, sizes)["table"].shape == (32, 4)


def test_scalar_bias_reads_its_table_by_clipped_offset():
    encoding = ScalarBias(clip=2)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 3)).astype(np.float32)
    place = jnp.array([[0, 1, 5, 6]])
    where = tokens(4, positions=place)
    got = encoding.bias({"table": jnp.asarray(table)}, where, where, 1.0)[0]
    for t in range(4):
        for s in range(4):
            row = int(np.clip(place[0, s] - place[0, t], -2, 2)) + 2
            np.testing.assert_allclose(got[:, t, s], table[row])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_buckets": 0}, "num_buckets must be even"),
        ({"num_buckets": 31}, "num_buckets must be even"),
        ({"num_buckets": 2, "bidirectional": True}, "at least 4"),
        ({"max_distance": 8, "bidirectional": True}, "max_distance must exceed the 8"),
    ],
)
def test_impossible_buckets_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        T5Bias(**settings)
