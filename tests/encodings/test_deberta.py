import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import DeBERTa
from ropejax.encodings.buckets import deberta_buckets
from ropejax.tokens import tokens
from tests.encodings.additive_cases import (
    assert_golden,
    dims,
    load,
    logits_of,
    names,
    params_of,
)


def test_buckets_equal_transformers_exactly():
    golden = load("deberta_log_buckets")
    behind = golden["relative_position"]
    for count, far in params_of("deberta_log_buckets")["configs"]:
        wanted = golden[f"bucket{count}_max{far}"]
        got = deberta_buckets(count, far)[np.minimum(np.abs(behind), far)]
        got = got * np.sign(behind)
        limit = count - 1
        np.testing.assert_array_equal(
            np.clip(got, -count, limit), np.clip(wanted, -count, limit)
        )
        near = np.abs(behind) < far
        np.testing.assert_array_equal(got[near], wanted[near])


@pytest.mark.parametrize(
    "case", [name for name in names("deberta") if name != "deberta_log_buckets"]
)
def test_logits_equal_transformers(case):
    golden, settings = load(case), params_of(case)
    heads, width = settings["heads"], settings["head_dim"]
    length = golden["x"].shape[1]

    def projected(name):
        weight = jnp.asarray(golden[f"param_{name}_proj.weight"].T)
        bias = jnp.asarray(golden[f"param_{name}_proj.bias"])
        return weight.reshape(-1, heads, width), bias.reshape(heads, width)

    def apply(name):
        weight, bias = projected(name)
        return jnp.einsum("bld,dnh->blnh", golden["x"], weight) + bias

    shares, terms = settings["share_att_key"], settings["pos_att_type"]
    buckets = settings["position_buckets"]
    encoding = DeBERTa(
        num_buckets=buckets if buckets > 0 else None,
        max_distance=settings["max_relative_positions"],
        content_to_position="c2p" in terms,
        position_to_content="p2c" in terms,
        share_projections=shares,
    )
    sides = {
        "k": "key" if shares else "pos_key",
        "q": "query" if shares else "pos_query",
    }
    if "p2c" not in terms:
        del sides["q"]
    layer = {}
    for side, name in sides.items():
        layer["w" + side], layer["b" + side] = projected(name)
    shared = {"table": jnp.asarray(golden["rel_embeddings"])}
    where = tokens(length)
    placed = tokens(length, positions=where.positions)

    @jax.jit
    def run(q, k, shared, layer):
        every = []
        for at in (where, placed):
            params = encoding.prepare(shared, layer, at, at, dims(heads, width))
            every.append(logits_of(encoding, params, q, k, at, at, width**-0.5))
        return every

    for got in run(apply("query"), apply("key"), shared, layer):
        assert_golden(case, got, golden["logits"])


def test_shared_projections_must_come_with_the_layer():
    encoding, where, sizes = DeBERTa(share_projections=True), tokens(3), dims(2, 4)
    shared = encoding.init_shared(jax.random.key(0), sizes)
    layer = encoding.init_layer(jax.random.key(0), sizes)
    assert layer == {}
    with pytest.raises(ValueError, match="'bk', 'bq', 'wk', 'wq'"):
        encoding.prepare(shared, layer, where, where, sizes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"content_to_position": False, "position_to_content": False}, "'none'"),
        ({"num_buckets": 2}, "num_buckets must be at least 4"),
        ({"num_buckets": 64, "max_distance": 32}, "max_distance must exceed"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DeBERTa(**settings)
