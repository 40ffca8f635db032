"""Wall attention against float64, with gates of any strength."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import testing
from ropejax.encodings import Dims, Encoding, Forgetting, Wall, compose
from ropejax.encodings.wall import decayed_product
from ropejax.positions import count_real
from ropejax.tokens import tokens

LENGTH, DIMS = 6, Dims(4, 2, 8, 16, causal=True)
WALL = Wall()
SEEN = np.tril(np.ones((LENGTH, LENGTH), bool))


def exact(q, k, decay):
    """Logits in float64, pair by pair; 0 for later keys."""
    q, k, decay = (np.asarray(part, np.float64) for part in (q, k, decay))
    k = np.repeat(k, q.shape[2] // k.shape[2], 2)
    since = np.maximum(decay[:, :, None] - decay[:, None], 0)
    product = np.einsum("btnh,bsnh,btsnh->bnts", q, k, np.exp(-since))
    return product * np.tril(np.ones(product.shape[-2:]))


# How far channels decay from token to token at most, and over how many tokens.
GATES = {
    "near: one centre": (0.5, 40),
    "far in all: chunks of 128": (0.5, 300),
    "far in 128: chunks of 16": (4.0, 150),
    "far in 16: one by one": (200.0, 40),
}


@pytest.mark.parametrize(("most", "length"), GATES.values(), ids=GATES)
def test_every_way_to_the_product_and_its_gradients_are_exact(most, length):
    rng = np.random.default_rng(0)
    steps = most * rng.random((1, length, 2, 4)) * [1.0, 0.5, 0.01, 0.0]
    decay = 1000 + np.cumsum(steps, 1)  # as after many tokens before
    high = decay.astype(np.float32)
    both = (jnp.asarray(high), jnp.asarray(decay - high, jnp.float32))
    q, k = (rng.normal(size=(1, length, n, 4)).astype(np.float32) for n in (2, 1))
    seen = np.tril(np.ones((length, length), bool))
    weight = rng.normal(size=(1, 2, length, length)) * seen

    def total(q, k, low):
        logits = decayed_product(q, k, (both[0], low), (both[0], low))
        logits = jnp.where(seen, logits, 0.0)
        return (logits * weight.astype(np.float32)).sum(), logits

    run = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))
    (_, logits), grads = run(q, k, both[1])
    np.testing.assert_allclose(logits, exact(q, k, decay), atol=2e-5)
    since = np.maximum(decay[:, :, None] - decay[:, None], 0)
    fading = np.exp(-since) * np.moveaxis(weight, 1, 3)[..., None]
    q, k = np.float64(q), np.repeat(np.float64(k), 2, 2)
    pairs = np.einsum("btnh,bsnh,btsnh->btsnh", q, k, fading)
    wanted = (
        np.einsum("bsnh,btsnh->btnh", k, fading),
        np.einsum("btnh,btsnh->bsh", q, fading)[:, :, None],
        pairs.sum(1) - pairs.sum(2),
    )
    for got, right in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(got, right, atol=1e-5 * np.abs(right).max())


@functools.cache
def inputs():
    """Gates that keep from nearly all to nearly nothing."""
    made = testing.example(WALL, dims=DIMS, length=LENGTH)
    layer = dict(made["layer"])
    layer["b"] = jnp.asarray(np.random.default_rng(0).uniform(-4, 4, (4, 8)), "float32")
    return jax.tree.map(np.asarray, made | {"layer": layer})


def attended(encoding, given, **settings):
    return testing.run(encoding, given, tokens(LENGTH), dims=DIMS, **settings)


def oracle(given, cotangent):
    """The outputs against a cotangent, in float64."""
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), given)
    x, layer = wide["x"], wide["layer"]
    q, k, v = (wide[n] + np.einsum("bld,dnh->blnh", x, wide["w" + n]) for n in "qkv")
    gates = np.einsum("bld,dnh->blnh", x, layer["w"]) + layer["b"]
    decay = np.cumsum(np.log1p(np.exp(-gates)), axis=1)
    logits = np.where(SEEN, exact(q, k, decay) / 8**0.5, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    out = np.einsum("bnts,bsnh->btnh", weights, np.repeat(v, 2, 2))
    return (out * cotangent).sum()


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_outputs_and_gradients_of_the_gates_equal_float64(implementation):
    """Gradients are compared with central differences."""
    given = inputs()
    rng = np.random.default_rng(1)
    cotangent = rng.normal(size=given["q"].shape)
    blocks = {"block_q": 4, "block_k": 2} if implementation == "blockwise" else {}

    def loss(layer):
        moved = given | {"layer": layer}
        out = attended(WALL, moved, implementation=implementation, **blocks)
        return (out * cotangent.astype(np.float32)).sum()

    got, grads = jax.jit(jax.value_and_grad(loss))(given["layer"])
    np.testing.assert_allclose(got, oracle(given, cotangent), rtol=1e-5)
    for name, count in (("w", 40), ("b", 32)):
        weights = given["layer"][name].astype(np.float64)
        places = rng.choice(weights.size, count, replace=False)
        slopes = []
        for place in places:
            ends = []
            for sign in (1, -1):
                one = weights.copy()
                one.flat[place] += sign * 1e-5
                moved = given | {"layer": given["layer"] | {name: one}}
                ends.append(oracle(moved, cotangent))
            slopes.append((ends[0] - ends[1]) / 2e-5)
        found = np.ravel(grads[name])[places]
        np.testing.assert_allclose(found, slopes, atol=2e-5 * np.abs(slopes).max())


def test_open_gates_are_plain_attention_and_equal_ones_no_forget_gate():
    """One gate for all channels scales a logit; the forget gate adds to it."""
    given = inputs()
    layer = {"w": np.zeros((16, 4, 8), np.float32)}
    plain = attended(Encoding(), given | {"layer": {}})
    open_gates = given | {"layer": layer | {"b": np.full((4, 8), 1e9, np.float32)}}
    np.testing.assert_allclose(attended(WALL, open_gates), plain, atol=1e-6)
    half = given | {"layer": layer | {"b": np.zeros((4, 8), np.float32)}}
    fox = given | {
        "layer": {"w": np.zeros((16, 4), np.float32), "b": np.zeros(4, np.float32)}
    }
    difference = attended(WALL, half) - attended(Forgetting(), fox)
    assert np.abs(difference).max() > 0.1


def test_the_layers_scalar_gate_is_a_forget_gate_beside_it():
    """fla adds the sums of log gates to the scaled logits: so does the composition."""
    given = inputs()
    fox = {
        "w": np.random.default_rng(2).normal(size=(16, 4)).astype(np.float32),
        "b": np.full(4, 8.0, np.float32),
    }
    both = compose(wall=WALL, fox=Forgetting())
    layer = {"wall": given["layer"], "fox": fox}
    out = attended(both, given | {"layer": layer, "shared": {"wall": {}, "fox": {}}})
    x = np.float64(given["x"])
    q, k, v = (given[n] + np.einsum("bld,dnh->blnh", x, given["w" + n]) for n in "qkv")
    sums = lambda gates: np.cumsum(np.log1p(np.exp(-gates)), axis=1)
    decay = sums(
        np.einsum("bld,dnh->blnh", x, given["layer"]["w"]) + given["layer"]["b"]
    )
    forgot = np.swapaxes(sums(x @ fox["w"] + fox["b"]), 1, 2)
    logits = exact(q, k, decay) / 8**0.5 - forgot[..., None] + forgot[:, :, None]
    logits = np.where(SEEN, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    wanted = np.einsum("bnts,bsnh->btnh", weights, np.repeat(v, 2, 2))
    np.testing.assert_allclose(out, wanted, atol=1e-5)


def test_padding_neither_forgets_nor_is_counted_and_the_state_goes_on():
    given = inputs()
    valid = jnp.array([[True, True, False, True, True, True]])
    where = tokens(LENGTH, valid=valid, positions=count_real(valid))
    layer, x = given["layer"], given["x"]
    whole, _ = WALL.key_features(layer, x, None, where)
    decay = np.float64(whole[0]) + np.float64(whole[1])
    np.testing.assert_array_equal(decay[:, 1], decay[:, 2])
    first, state = WALL.key_features(layer, x[:, :4], None, where.block(0, 4))
    rest, _ = WALL.key_features(layer, x[:, 4:], None, where.block(4, 2), state)
    for one, two, both in zip(first, rest, whole, strict=True):
        np.testing.assert_allclose(np.concatenate([one, two], 1), both, atol=1e-5)
    np.testing.assert_array_equal(
        WALL.query_features(layer, x[:, 4:], None, where.block(4, 2), state)[0], rest[0]
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_dtypes_do_not_overflow_and_nothing_is_nan_under_vmap(dtype):
    """Under vmap both sides of a condition are worked out: each must be finite."""
    rng = np.random.default_rng(0)
    decay = np.cumsum(30 * rng.random((2, 1, 20, 1, 4)), 2).astype(np.float32)
    q, k = (jnp.asarray(rng.normal(size=(2, 1, 20, 1, 4)), dtype) for _ in "qk")

    def total(q, k, decay):
        both = (decay, jnp.zeros_like(decay))
        logits = decayed_product(q, k, both, both)
        seen = jnp.tril(jnp.ones((20, 20), bool))
        logits = jnp.where(seen, logits, 0.0)
        return logits.sum(), logits

    run = jax.jit(jax.vmap(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)))
    (_, logits), grads = run(q, k, decay)
    assert all(np.isfinite(np.float32(g)).all() for g in grads)
    for row in range(2):
        wanted = exact(*(np.float32(part[row]) for part in (q, k)), decay[row])
        np.testing.assert_allclose(logits[row], wanted, atol=0.05)


def test_starts_out_nearly_open():
    made = WALL.init_layer(jax.random.key(0), DIMS)
    assert {name: part.shape for name, part in made.items()} == {
        "w": (16, 4, 8),
        "b": (4, 8),
    }
    np.testing.assert_array_equal(made["b"], 8.0)
    with pytest.raises(ValueError, match="init_std must be at least 0"):
        Wall(init_std=-1.0)
