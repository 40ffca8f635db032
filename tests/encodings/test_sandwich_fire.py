import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import FIRE, Sandwich
from ropejax.tokens import tokens
from tests.encodings.additive_cases import assert_golden, dims, load, names, params_of


def sandwich_bias(encoding, query, key, heads=4):
    params = encoding.prepare({}, {}, query, key, dims(heads, 8))
    return encoding.bias(params, query, key, 1.0)[0]


def test_sandwich_equals_nemo_in_every_form():
    case = "sandwich_nemo_H4_L17_d128"
    wanted = load(case)["bias"]
    place = jnp.arange(17)[None]
    table = tokens(17, distances=place)
    for where in (
        tokens(17),
        tokens(17, positions=place),
        table,
        table.replace(consecutive_index=False),
    ):
        got = np.tril(sandwich_bias(Sandwich(), where, where))
        assert_golden(case, got, wanted)


def test_sandwich_is_the_dot_product_of_appended_sinusoids():
    width, far = 16, 2**20
    encoding = Sandwich(width=width)
    place = np.array([0, 1, 5, 700, 701]) + far - 800
    where = tokens(5, positions=jnp.asarray(place)[None])
    waves = 1e4 ** (-2 * np.arange(1, width // 2 + 1) / width)
    angle = place[:, None] * waves
    p = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    scale = 4 / (8 * np.arange(1, 5))[:, None, None]
    wanted = scale * (p @ p.T - width / 2)
    np.testing.assert_allclose(sandwich_bias(encoding, where, where), wanted, atol=1e-4)


@pytest.mark.parametrize("width", [0, 7])
def test_sandwich_needs_pairs(width):
    with pytest.raises(ValueError, match="width must be"):
        Sandwich(width=width)


def fire_layer(golden):
    return {
        "c": jnp.asarray(golden["c"]),
        "multiplier": jnp.asarray(golden["L_multiplier"]),
        "into": {
            "kernel": jnp.asarray(golden["w1"].T),
            "bias": jnp.asarray(golden["b1"]),
        },
        "out": {
            "kernel": jnp.asarray(golden["w2"].T),
            "bias": jnp.asarray(golden["b2"]),
        },
    }


@pytest.mark.parametrize("case", names("fire"))
def test_fire_equals_public_code(case):
    golden = load(case)
    encoding = FIRE(
        hidden=params_of(case)["mlp_width"],
        threshold=float(golden["init_L"]),
        epsilon=float(golden["eps"]),
    )
    length = golden["bias"].shape[2]
    where = tokens(length)
    got = encoding.bias(fire_layer(golden), where, where, 1.0)
    assert_golden(case, got, golden["bias"])
    last = where.block(length - 3, 3)
    part = encoding.bias(fire_layer(golden), last, where, 1.0)
    assert_golden(case, part, golden["bias"][:, :, -3:])


def test_fire_has_finite_gradients_where_its_kinks_are():
    golden = load("fire_H4_L17_thr")
    encoding, where = FIRE(hidden=8), tokens(5)

    @jax.jit
    @jax.grad
    def gradient(layer):
        return encoding.bias(layer, where, where, 1.0).sum()

    layer = fire_layer(golden) | {"c": jnp.array(0.0), "multiplier": jnp.array(0.0)}
    assert all(jnp.isfinite(g).all() for g in jax.tree.leaves(gradient(layer)))


def test_fire_starts_as_the_public_code_does():
    layer = jax.jit(lambda rng: FIRE().init_layer(rng, dims(4, 8)))(jax.random.key(0))
    assert float(layer["c"]) == pytest.approx(0.1)
    assert float(layer["multiplier"]) == 1.0
    assert layer["into"]["kernel"].shape == (1, 32)
    assert layer["out"]["kernel"].shape == (32, 4)
    assert float(jnp.abs(layer["out"]["kernel"]).max()) <= 32**-0.5


def test_fire_shares_parameters_over_layers_only_if_asked():
    rng, sizes = jax.random.key(0), dims(2, 4)
    assert FIRE().init_shared(rng, sizes) == {}
    assert FIRE(shared=True).init_layer(rng, sizes) == {}


def test_fire_refuses_several_axes_and_settings_out_of_range():
    where = tokens(3).replace(positions=jnp.zeros((1, 3, 2)))
    with pytest.raises(ValueError, match="one axis"):
        FIRE().bias({}, where, where, 1.0)
    with pytest.raises(ValueError, match="threshold must be positive"):
        FIRE(threshold=0.0)
