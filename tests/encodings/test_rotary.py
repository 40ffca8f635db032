"""RoPE: golden rotations, its identities, learned frequencies, and refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import Dims, Rotary
from ropejax.encodings.angles import rotary_frequencies, rotation_angles
from ropejax.encodings.frequency_map import Chain
from ropejax.encodings.interpolation import NTKAware, PositionInterpolation
from ropejax.encodings.rotation import as_complex, from_complex, rotate
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import (
    golden,
    logits,
    names,
    placed,
    random,
    swapped,
    turned,
)

HALF = [n for n in names("rope_half", "rope_partial25") if "large" not in n]
EXACT = Rotary(max_wavelength=10_000.0)


@pytest.mark.parametrize("name", HALF)
def test_half_split_rotations_match_transformers(name):
    arrays, params, tolerance = golden(name)
    rope = Rotary(rotary_fraction=params.get("partial_rotary_factor", 1.0))
    where = placed(arrays["position_ids"])
    q, _ = turned(rope, swapped(arrays["q"]), where)
    _, k = turned(rope, swapped(arrays["k"]), where)
    np.testing.assert_allclose(swapped(q), arrays["q_rot"], **tolerance)
    np.testing.assert_allclose(swapped(k), arrays["k_rot"], **tolerance)
    if "logits" in arrays:
        product = logits(rope, swapped(arrays["q"]), swapped(arrays["k"]), where)
        np.testing.assert_allclose(product, arrays["logits"], rtol=1e-4, atol=1e-3)


@pytest.mark.fast
@pytest.mark.parametrize("rounded", [False, True])
def test_rotations_at_131071_match_float64(rounded):
    arrays, _, _ = golden("rope_half_llama_large131071")
    rope = Rotary(round_frequencies=rounded)
    where = placed(arrays["position_ids"])
    suffix = "_f64_inv32" if rounded else "_f64"
    for name, side in (("q", 0), ("k", 1)):
        ours = swapped(turned(rope, swapped(arrays[name]), where)[side])
        expected = arrays[f"{name}_rot{suffix}"]
        np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-5)
        other = arrays[f"{name}_rot" + ("_f64" if rounded else "_f64_inv32")]
        assert np.abs(ours - other).max() > 1e-4


@pytest.mark.parametrize("name", names("rope_interleaved_gptj"))
def test_interleaved_rotations_match_gptj(name):
    arrays, params, tolerance = golden(name)
    fraction = params["rotary_dim"] / params["head_dim"]
    rope = Rotary(layout="interleaved", rotary_fraction=fraction)
    where = placed(arrays["position_ids"])
    q, _ = turned(rope, jnp.asarray(arrays["q"]), where)
    np.testing.assert_allclose(q, arrays["q_rot"], **tolerance)
    np.testing.assert_allclose(q, arrays["q_rot_f64"], rtol=0, atol=1e-6)
    product = logits(rope, jnp.asarray(arrays["q"]), jnp.asarray(arrays["k"]), where)
    np.testing.assert_allclose(product, arrays["logits"], **tolerance)


@pytest.mark.parametrize("name", names("rope_interleaved_ret"))
def test_interpolation_and_ntk_chain_like_rotary_embedding_torch(name):
    arrays, params, tolerance = golden(name)
    maps = (
        NTKAware(params["theta_rescale_factor"]),
        PositionInterpolation(params["interpolate_factor"]),
    )
    rope = Rotary(layout="interleaved", frequencies=Chain(maps))
    length = arrays["x"].shape[2]
    where = placed(np.arange(length) + params["offset"])
    ours, _ = turned(rope, swapped(arrays["x"]), where)
    np.testing.assert_allclose(swapped(ours), arrays["x_rot"], **tolerance)
    divided = dataclasses.replace(rope, frequencies=maps[0])
    at = placed(arrays["positions"])
    fractions, _ = turned(divided, swapped(arrays["x"]), at)
    np.testing.assert_allclose(fractions, ours, atol=1e-5)


@pytest.mark.parametrize("name", names("rope_deepmind"))
def test_interleaved_rotations_match_the_randomized_positions_code(name):
    arrays, _, tolerance = golden(name)
    rope = Rotary(layout="interleaved")
    ours, _ = turned(rope, jnp.asarray(arrays["x"]), placed(arrays["positions"]))
    np.testing.assert_allclose(ours, arrays["x_rot"], **tolerance)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_a_rotation_is_a_product_of_complex_numbers(layout):
    x, angles = random(2, 5, 3, 8), random(2, 5, 4, seed=1)
    product = as_complex(x, layout) * jnp.exp(1j * angles)[:, :, None]
    np.testing.assert_allclose(
        from_complex(product, layout), rotate(x, angles, layout=layout), atol=1e-6
    )
    np.testing.assert_array_equal(from_complex(as_complex(x, layout), layout), x)


def test_logits_are_the_real_part_of_the_sum_over_pairs():
    q, k = random(1, 1, 1, 8), random(1, 1, 1, 8, seed=1)
    where, key = placed([7]), placed([3])
    z = np.asarray(as_complex(q) * jnp.conj(as_complex(k)))[0, 0, 0]
    expected = (z * np.exp(4j * rotary_frequencies(8))).sum().real
    rope = Rotary()
    product = logits(rope, q, k, where, key=key)
    np.testing.assert_allclose(product[0, 0, 0, 0], expected, rtol=1e-5)


def test_more_channels_than_angles_pass_through_bit_for_bit():
    x = random(1, 4, 2, 10, dtype=jnp.bfloat16)
    ours, _ = turned(Rotary(rotary_fraction=0.4), x, tokens(4))
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_array_equal(ours[..., 4:], x[..., 4:])
    assert not np.array_equal(ours[:, 1:, :, :4], x[:, 1:, :, :4])


@pytest.mark.parametrize("where", ["layer", "shared"])
def test_learned_frequencies_start_as_rope_and_have_true_gradients(where):
    rope, learned = Rotary(), Rotary(trainable=where)
    dims = Dims(2, 2, 8, 16)
    made = {
        "layer": learned.init_layer(jax.random.key(0), dims),
        "shared": learned.init_shared(jax.random.key(0), dims),
    }
    assert set(made[where]) == {"log_frequencies"}
    assert not made["shared" if where == "layer" else "layer"]
    q, k, at = random(1, 4, 2, 8), random(1, 4, 2, 8, seed=1), tokens(4)
    params = learned.prepare(made["shared"], made["layer"], at, at, dims)
    np.testing.assert_allclose(
        logits(learned, q, k, at, params), logits(rope, q, k, at), atol=1e-5
    )

    def total(log_frequencies):
        params = {"log_frequencies": log_frequencies}
        return (logits(learned, q, k, at, params) ** 2).sum()

    start = params["log_frequencies"]
    gradient = jax.grad(total)(start)
    step = 1e-2 * jnp.eye(4)[1]
    numeric = (total(start + step) - total(start - step)) / 2e-2
    np.testing.assert_allclose(gradient[1], numeric, rtol=2e-2)


@pytest.mark.parametrize("log_frequency", [16.0, 88.0, 100.0, 1e30])
def test_learned_frequencies_stay_finite_whatever_an_optimizer_did(log_frequency):
    rope, at = Rotary(trainable="layer"), tokens(4, offset=2**20)
    q, start = random(1, 4, 1, 8), jnp.full((4,), log_frequency)

    def total(log_frequencies):
        return logits(rope, q, q, at, {"log_frequencies": log_frequencies}).sum()

    value, gradient = jax.value_and_grad(total)(start)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_extensions_act_on_learned_frequencies():
    dims, at = Dims(1, 1, 8, 8), tokens(4)
    learned = Rotary(trainable="layer")
    params = learned.init_layer(jax.random.key(0), dims)
    halved = {"log_frequencies": params["log_frequencies"] - np.log(2)}
    scaled = dataclasses.replace(learned, frequencies=PositionInterpolation(2.0))
    q = random(1, 4, 1, 8)
    np.testing.assert_allclose(
        logits(scaled, q, q, at, params), logits(learned, q, q, at, halved), atol=1e-5
    )


def test_jit_vmap_and_grad_agree_with_eager_calls():
    rope, where = Rotary(), tokens(5)
    q = random(3, 5, 2, 8)
    turn = lambda q: rope.queries({}, q, where)[0]
    np.testing.assert_allclose(jax.jit(turn)(q), turn(q), atol=1e-6)
    looped = jnp.stack([turn(row[None])[0] for row in q])
    np.testing.assert_array_equal(jax.vmap(lambda row: turn(row[None])[0])(q), looped)
    # A rotation keeps lengths, so the gradient of the squared length is 2 q.
    gradient = jax.grad(lambda q: (turn(q) ** 2).sum())(q)
    np.testing.assert_allclose(gradient, 2 * q, atol=1e-5)


def test_several_axes_of_positions_are_refused():
    where = tokens(3, positions=jnp.zeros((1, 3, 2), jnp.int32))
    with pytest.raises(ValueError, match="one axis"):
        Rotary().queries({}, random(1, 3, 1, 8), where)


def test_tables_of_distances_are_refused():
    q, at = random(1, 3, 1, 8), tokens(3, distances=jnp.arange(3)[None])
    with pytest.raises(ValueError, match="distances"):
        attend(q, q, q, encoding=Rotary(), query=at, key=at)


@pytest.mark.parametrize(
    "settings",
    [
        {"layout": "halv"},
        {"trainable": "leyer"},
        {"max_wavelength": 0.0},
        {"rotary_fraction": 0.0},
        {"rotary_fraction": 1.5},
        {"round_frequencies": True, "trainable": "layer"},
    ],
)
def test_settings_out_of_range_are_refused_and_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Rotary(**settings)


def test_titles_name_the_maps_in_use():
    assert EXACT.title == "RoPE"
    assert "NTK" in Rotary(frequencies=NTKAware(2.0)).title
    np.testing.assert_array_equal(
        rotation_angles(jnp.arange(2), rotary_frequencies(4))[0], [0.0, 0.0]
    )
