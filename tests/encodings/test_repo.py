"""RePo (arXiv:2512.14391) against float64, and what its positions can be."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import testing
from ropejax.encodings import Dims, Encoding, RePo, Rotary
from ropejax.encodings.angles import rotary_frequencies
from ropejax.tokens import tokens

LENGTH, DIMS = 6, Dims(4, 2, 8, 16, causal=True)
REPO = RePo()
MAPS = ("gate", "content", "position")


@functools.cache
def inputs():
    """Weights of the size of one, so that positions are some tokens apart."""
    made = testing.example(REPO, dims=DIMS, length=LENGTH)
    layer = jax.tree.map(lambda w: 3 * w, made["layer"])
    return jax.tree.map(np.asarray, made | {"layer": layer})


def attended(encoding, given, **settings):
    return testing.run(encoding, given, tokens(LENGTH), dims=DIMS, **settings)


def oracle(given, cotangent):
    """The outputs against a cotangent, in float64, pair by pair."""
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), given)
    x, w = wide["x"], wide["layer"]
    q, k, v = (wide[n] + np.einsum("bld,dnh->blnh", x, wide["w" + n]) for n in "qkv")
    gate = x @ w["gate"]
    at = (gate / (1 + np.exp(-gate)) * (x @ w["content"])) @ w["position"]
    at, k, v = (np.repeat(part, 2, 2) for part in (at, k, v))
    as_complex = lambda y: y[..., :4] + 1j * y[..., 4:]
    offset = at[:, :, None] - at[:, None]
    turn = np.exp(1j * offset[..., None] * rotary_frequencies(8))
    pairs = as_complex(q)[:, :, None] * as_complex(k).conj()[:, None] * turn
    logits = np.moveaxis(pairs.real.sum(-1), 3, 1) / 8**0.5
    logits = np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return (np.einsum("bnts,bsnh->btnh", weights, v) * cotangent).sum(), at


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_outputs_and_gradients_equal_float64(implementation):
    """Gradients of the three maps are compared with central differences."""
    given = inputs()
    cotangent = np.random.default_rng(1).normal(size=given["q"].shape)

    def loss(layer):
        how = {"block_q": 4, "block_k": 2} if implementation == "blockwise" else {}
        out = attended(
            REPO, given | {"layer": layer}, implementation=implementation, **how
        )
        return (out * cotangent.astype(np.float32)).sum()

    got, grads = jax.jit(jax.value_and_grad(loss))(given["layer"])
    wanted, at = oracle(given, cotangent)
    assert np.ptp(at) > 10  # some turns of the fastest pair
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    for name in MAPS:
        weights = given["layer"][name].astype(np.float64)
        slope = np.zeros_like(weights)
        for place in np.ndindex(*weights.shape):
            step = np.zeros_like(weights)
            step[place] = 1e-5
            up, down = (
                oracle(
                    given | {"layer": given["layer"] | {name: weights + sign * step}},
                    cotangent,
                )[0]
                for sign in (1, -1)
            )
            slope[place] = (up - down) / 2e-5
        scale = np.abs(slope).max()
        np.testing.assert_allclose(grads[name] / scale, slope / scale, atol=3e-5)


def test_it_is_rope_where_the_network_counts_and_nothing_where_it_is_silent():
    """silu(40) is 40, so a content of t / 40 and a weight of one give position t."""
    given = inputs()
    x = given["x"].copy()
    x[..., 0], x[..., 1] = 40.0, np.arange(LENGTH) / 40
    layer = {name: np.zeros_like(given["layer"][name]) for name in MAPS}
    given = given | {"x": x, "layer": layer}
    none = attended(Encoding(), given | {"layer": {}})
    np.testing.assert_array_equal(attended(REPO, given), none)
    layer["gate"][0], layer["content"][1], layer["position"][0] = 1.0, 1.0, 1.0
    rope = attended(Rotary(), given | {"layer": {}})
    np.testing.assert_allclose(attended(REPO, given), rope, atol=2e-5)
    assert np.abs(rope - none).max() > 0.1


def test_each_key_head_has_a_position_of_its_own():
    given = inputs()
    other = given["layer"]["position"].copy()
    other[:, 1] += 1.0
    moved = given | {"layer": given["layer"] | {"position": other}}
    change = np.abs(attended(REPO, given) - attended(REPO, moved)).max((0, 1, 3))
    np.testing.assert_array_equal(change[:2], 0)
    assert (change[2:] > 1e-3).all()


def test_its_maps_are_an_eighth_wide_or_as_wide_as_asked():
    shapes = lambda repo: {
        name: w.shape for name, w in repo.init_layer(jax.random.key(0), DIMS).items()
    }
    assert shapes(REPO) == {"gate": (16, 2), "content": (16, 2), "position": (2, 2)}
    assert shapes(RePo(width=5))["position"] == (5, 2)
    drawn = RePo(width=64).init_layer(jax.random.key(0), Dims(8, 8, 8, 64))
    every = np.concatenate([np.ravel(w) for w in drawn.values()])
    assert np.abs(every).max() <= 0.06
    np.testing.assert_allclose(every.std(), 0.02 * 0.9866, rtol=0.03)
    with pytest.raises(ValueError, match="width must be at least 0, got -1"):
        RePo(width=-1)
    positions = REPO.learned_positions(
        {n: jnp.ones(s) for n, s in shapes(REPO).items()},
        jnp.ones((1, 1, 16), "bfloat16"),
    )
    assert positions.dtype == jnp.float32
