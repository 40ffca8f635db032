import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import CABLE, Encoding, Forgetting
from ropejax.encodings.sequence_order import accurate_cumsum, add_pairs
from ropejax.masks import Causal
from ropejax.tokens import tokens
from tests.encodings.additive_cases import dims

LENGTH, HEADS = 7, 2


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, LENGTH, 8)).astype(np.float32)
    params = {
        "w": rng.normal(size=(8, HEADS)).astype(np.float32),
        "b": rng.normal(size=HEADS).astype(np.float32),
    }
    return jnp.asarray(x), jax.tree.map(jnp.asarray, params)


@functools.partial(jax.jit, static_argnums=0)
def features(encoding, params, x, where, state=None):
    q = jnp.zeros((*x.shape[:2], HEADS, 4))
    keys, after = encoding.key_features(params, x, q, where, state)
    return (
        where.replace(features=encoding.query_features(params, x, q, where, state)),
        where.replace(features=keys),
        after,
    )


@pytest.mark.parametrize(
    ("encoding", "log_gate"),
    [
        (Forgetting(), lambda z: -np.log1p(np.exp(-z))),
        (CABLE(), lambda z: -np.log1p(np.exp(z))),
    ],
)
def test_bias_sums_log_gates_after_the_key(encoding, log_gate):
    x, params = inputs()
    query, key, _ = features(encoding, params, x, tokens(LENGTH))
    got = encoding.bias(params, query, key, 1.0)
    gates = log_gate(np.asarray(x) @ np.asarray(params["w"]) + np.asarray(params["b"]))
    for i in range(LENGTH):
        for j in range(i + 1):
            wanted = gates[:, j + 1 : i + 1].sum(1)
            np.testing.assert_allclose(got[:, :, i, j], wanted, atol=1e-5)


def test_open_gates_are_plain_attention():
    x, params = inputs()
    params = params | {"b": jnp.full(HEADS, 1e9)}
    q = jnp.asarray(np.random.default_rng(1).normal(size=(2, LENGTH, HEADS, 4)))
    query, key, _ = features(Forgetting(), params, x, tokens(LENGTH))

    def run(encoding):
        return attend(
            q,
            q,
            q,
            encoding=encoding,
            params=params,
            query=query,
            key=key,
            mask=Causal(),
            implementation="dense",
        )

    open_gates, plain = (run(encoding) for encoding in (Forgetting(), Encoding()))
    np.testing.assert_allclose(open_gates, plain, atol=1e-6)


def test_state_carries_the_sum_over_padding_and_parts():
    x, params = inputs()
    encoding = Forgetting()
    whole, _, _ = features(encoding, params, x, tokens(LENGTH))
    valid = jnp.array([[True] * 3 + [False] * 2])
    padded = jnp.concatenate([x[:, :3], 100 * x[:, :2]], axis=1)
    _, first, state = features(encoding, params, padded, tokens(5, valid=valid))
    rest = tokens(LENGTH - 3, offset=3)
    _, second, _ = features(encoding, params, x[:, 3:], rest, state)
    for part, start, end in zip(
        whole.features, first.features, second.features, strict=True
    ):
        np.testing.assert_allclose(start[:, :3], part[:, :3], atol=1e-6)
        np.testing.assert_allclose(end, part[:, 3:], atol=1e-6)


def test_tokens_in_another_storage_order_have_the_same_sums():
    x, params = inputs()
    order = jnp.array([3, 0, 6, 1, 5, 2, 4])
    wanted, _, last = features(Forgetting(), params, x, tokens(LENGTH))
    where = tokens(LENGTH).permuted(order)
    got, _, after = features(Forgetting(), params, x[:, order], where)
    for part, other in zip(got.features, wanted.features, strict=True):
        np.testing.assert_allclose(part, other[:, order], atol=1e-6)
    for part, other in zip(after, last, strict=True):
        np.testing.assert_allclose(part, other, atol=1e-6)


def test_differences_of_long_sums_keep_their_digits():
    gates = np.random.default_rng(0).normal(size=(1, 60_000, 1)).astype(np.float32) - 3
    high, low = jax.jit(accurate_cumsum)(jnp.asarray(gates))
    wanted = np.cumsum(gates.astype(np.float64), axis=1)
    near = np.asarray((high[:, 1:] - high[:, :-1]) + (low[:, 1:] - low[:, :-1]))
    np.testing.assert_allclose(near, wanted[:, 1:] - wanted[:, :-1], atol=1e-6)
    plain = np.asarray(jnp.cumsum(jnp.asarray(gates), axis=1))
    assert np.abs(plain[:, 1:] - plain[:, :-1] - gates[:, 1:]).max() > 1e-3


def test_gradient_of_the_accurate_sum_is_that_of_a_sum():
    x, weights = np.random.default_rng(0).normal(size=(2, 1, 5, 2)).astype(np.float32)

    @jax.jit
    @jax.grad
    def gradient(x):
        return (sum(accurate_cumsum(x)) * weights).sum()

    wanted = np.flip(np.cumsum(np.flip(weights, 1), 1), 1)
    np.testing.assert_allclose(gradient(x), wanted, atol=1e-5)


def test_pairs_of_floats_add_beyond_single_precision():
    one = (jnp.float32(1e8), jnp.float32(0.25))
    got = add_pairs(one, (jnp.float32(1.0), jnp.float32(0.0)))
    assert float(got[0]) - 1e8 + float(got[1]) == 1.25


@pytest.mark.parametrize("method", [Forgetting, CABLE])
def test_constant_gates_start_with_decay_times_on_a_logarithmic_scale(method):
    encoding = method(from_content=False, shortest=2.0, longest=128.0)
    layer = encoding.init_layer(jax.random.key(0), dims(4, 4))
    assert set(layer) == {"b"}
    gates = encoding.log_gates(layer, jnp.zeros((1, 3, 16)))[0, 0]
    np.testing.assert_allclose(-1 / gates, [2, 8, 32, 128], rtol=1e-4)


def test_gates_of_content_start_where_the_bias_says():
    """Half open by default, as in the authors' code; CABLE's sign is the opposite."""
    for encoding, kept in (
        (Forgetting(), 0.5),
        (Forgetting(initial_bias=5.0), 1 / (1 + np.exp(-5))),
        (CABLE(initial_bias=-5.0), 1 / (1 + np.exp(-5))),
    ):
        layer = encoding.init_layer(jax.random.key(0), dims(4, 4))
        gates = encoding.log_gates(layer, jnp.zeros((1, 1, 16)))
        np.testing.assert_allclose(jnp.exp(gates), np.full((1, 1, 4), kept), rtol=1e-6)
    with pytest.raises(ValueError, match=r"initial_bias=5.0 .* set shortest and"):
        Forgetting(from_content=False, initial_bias=5.0)


def test_decay_times_must_be_positive():
    with pytest.raises(ValueError, match="shortest must be positive"):
        Forgetting(from_content=False, shortest=0.0)
