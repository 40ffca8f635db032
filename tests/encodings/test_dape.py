import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    DAPE,
    FIRE,
    ALiBi,
    Forgetting,
    Kerple,
    Rotary,
    T5Bias,
    WeightedKerple,
    compose,
)
from ropejax.tokens import tokens
from tests.encodings.additive_cases import dims


def linear(rng, fan_in, fan_out):
    return {
        "kernel": jnp.asarray(rng.normal(size=(fan_in, fan_out)), jnp.float32),
        "bias": jnp.asarray(rng.normal(size=fan_out), jnp.float32),
    }


def test_logits_equal_a_network_spelled_out_pair_by_pair():
    rng, heads, where = np.random.default_rng(0), 3, tokens(5)
    encoding = DAPE(inner=ALiBi(), hidden=4)
    layer = {
        "inner": {},
        "into": linear(rng, 2 * heads, 4),
        "out": linear(rng, 4, heads),
    }
    params = encoding.prepare({"inner": {}}, layer, where, where, dims(heads, 8))
    logits = rng.normal(size=(2, heads, 5, 5)).astype(np.float32)
    got = encoding.logits(params, jnp.asarray(logits), where, where)
    bias = ALiBi().bias(params["inner"], where, where, 1.0)[0]
    into, out = (jax.tree.map(np.asarray, layer[name]) for name in ("into", "out"))
    for b in range(2):
        for t in range(5):
            for s in range(5):
                a, add = logits[b, :, t, s], np.asarray(bias)[:, t, s]
                z = np.concatenate([a, add]) @ into["kernel"] + into["bias"]
                z = np.where(z > 0, z, 0.01 * z) @ out["kernel"] + out["bias"]
                np.testing.assert_allclose(got[b, :, t, s], a + add + z, atol=1e-4)


def test_without_a_correction_it_is_the_inner_bias():
    where, heads = tokens(4), 2
    encoding = DAPE(inner=Kerple(), hidden=3)
    inner = {"a": jnp.array([0.3, 0.7]), "p": jnp.array([1.0, 0.5])}
    zeros = {
        "into": {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)},
        "out": {"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)},
    }
    layer = zeros | {"inner": inner}
    params = encoding.prepare({"inner": {}}, layer, where, where, dims(heads, 8))
    logits = jax.random.normal(jax.random.key(0), (1, heads, 4, 4))
    wanted = logits + Kerple().bias(params["inner"], where, where, 1.0)
    np.testing.assert_allclose(
        encoding.logits(params, logits, where, where), wanted, atol=1e-6
    )


def test_parameters_of_the_inner_encoding_are_kept_apart():
    sizes = dims(2, 4)
    encoding = DAPE(inner=T5Bias(num_buckets=4, max_distance=8), hidden=2)
    shared = encoding.init_shared(jax.random.key(0), sizes)
    layer = encoding.init_layer(jax.random.key(0), sizes)
    assert shared["inner"]["table"].shape == (4, 2)
    assert layer["inner"] == {}
    assert layer["into"]["kernel"].shape == (4, 2)
    assert layer["out"]["kernel"].shape == (2, 2)


def test_promises_are_those_of_the_inner_encoding():
    assert DAPE(inner=ALiBi()).shift_invariant
    assert DAPE(inner=ALiBi()).by_distance
    assert not DAPE(inner=FIRE()).shift_invariant
    assert not DAPE(inner=FIRE()).by_distance
    assert not DAPE(inner=ALiBi()).causal_only
    assert DAPE(inner=Forgetting()).causal_only


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (Rotary(), "inner must add a bias"),
        (compose(ALiBi(), WeightedKerple()), "also has logits"),
        (compose(ALiBi(), Rotary()), r"ALiBi \+ RoPE also has queries, keys"),
    ],
)
def test_an_inner_encoding_that_does_more_is_refused(inner, message):
    with pytest.raises(ValueError, match=message):
        DAPE(inner=inner)


def test_biases_composed_are_one_bias():
    where, logits = tokens(4), jax.random.normal(jax.random.key(0), (1, 2, 4, 4))
    twice = ALiBi(slopes=(0.5, 0.25)), ALiBi(slopes=(1.0, 0.5))
    one, both = DAPE(twice[1]), DAPE(compose(a=twice[0], b=twice[0]))
    network = one.init_layer(jax.random.key(0), dims(2, 8))

    def corrected(encoding):
        inner = encoding.init_layer(jax.random.key(0), dims(2, 8))["inner"]
        shared = encoding.init_shared(jax.random.key(0), dims(2, 8))
        layer = network | {"inner": inner}
        params = encoding.prepare(shared, layer, where, where, dims(2, 8))
        return encoding.logits(params, logits, where, where)

    np.testing.assert_allclose(corrected(both), corrected(one), atol=1e-5)
