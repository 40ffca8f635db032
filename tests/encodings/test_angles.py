"""Angles are right modulo 2 pi at any position, whoever knows the frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings.angles import pair_angles, rotary_frequencies, rotation_angles

POSITIONS = np.array([[0, 1, 257, 131_071, 2**20, -(2**20), 2**24 + 1]])
FREQUENCIES = np.append(rotary_frequencies(64), [7.3, 100.1])


def off(angles, exact):
    """Greatest distance of two sets of angles on the unit circle."""
    return np.abs(
        np.exp(1j * np.asarray(angles, np.float64)) - np.exp(1j * exact)
    ).max()


@pytest.mark.fast
def test_constant_frequencies_keep_float64_angles_at_great_positions():
    angles = rotation_angles(jnp.asarray(POSITIONS, jnp.int32), FREQUENCIES)
    assert angles.dtype == jnp.float32
    assert off(angles, POSITIONS[..., None] * FREQUENCIES) < 2e-6


def test_a_float32_product_would_not():
    product = np.float32(POSITIONS[..., None]) * np.float32(FREQUENCIES)
    assert off(product, POSITIONS[..., None] * FREQUENCIES) > 1e-2


@pytest.mark.parametrize(("compiled", "sign"), [(False, 1), (True, 1), (True, -1)])
def test_traced_frequencies_lose_only_their_own_rounding(compiled, sign):
    """Negative ones too, as those learned on several axes are."""
    frequencies = sign * FREQUENCIES.astype(np.float32)
    function = jax.jit(rotation_angles) if compiled else rotation_angles
    angles = function(jnp.asarray(POSITIONS, jnp.int32), jnp.asarray(frequencies))
    exact = POSITIONS[..., None] * frequencies.astype(np.float64)
    assert off(angles[:, :-1], exact[:, :-1]) < 2e-6
    assert off(angles, exact) < 2e-5


@pytest.mark.parametrize("traced", [False, True])
def test_positions_may_be_fractions_of_either_sign(traced):
    positions = np.array([[0.25, -7.3, 1000.25, 2**19 + 0.75]], np.float32)
    frequencies = FREQUENCIES.astype(np.float32)
    exact = positions.astype(np.float64)[..., None] * frequencies.astype(np.float64)
    given = jnp.asarray(frequencies) if traced else frequencies
    assert off(rotation_angles(jnp.asarray(positions), given), exact) < 2e-5


@pytest.mark.parametrize("traced", [False, True])
def test_scale_and_offset_are_exact_too(traced):
    positions = POSITIONS[:, :-1]
    frequencies = rotary_frequencies(16).astype(np.float32)
    given = jnp.asarray(frequencies) if traced else frequencies
    angles = rotation_angles(
        jnp.asarray(positions, jnp.int32), given, scale=0.5, offset=3.25
    )
    exact = (positions[..., None] * 0.5 + 3.25) * frequencies.astype(np.float64)
    assert off(angles, exact) < 5e-6


@pytest.mark.parametrize("offset", [100_000.25, -1_000_000.3])
def test_great_offsets_of_traced_frequencies_are_wound_too(offset):
    """A window of 100000 tokens: the plain product would be off by 4e-3."""
    frequencies = rotary_frequencies(16).astype(np.float32)
    positions = jnp.array([[7, 131_071]])

    @jax.jit
    def run(frequencies):
        angles = lambda f: rotation_angles(positions, f, offset=offset)
        return angles(frequencies), jax.grad(lambda f: angles(f).sum())(frequencies)

    angles, gradient = run(jnp.asarray(frequencies))
    exact = np.asarray(positions, np.float64) + offset
    assert off(angles, exact[..., None] * frequencies.astype(np.float64)) < 5e-6
    np.testing.assert_allclose(gradient, np.full(8, exact.sum()), rtol=1e-6)


def test_a_third_of_a_position_is_exact_though_float32_thirds_are_not():
    positions = np.array([[2**20 - 1]])
    angles = rotation_angles(
        jnp.asarray(positions, jnp.int32), rotary_frequencies(16), scale=1 / 3
    )
    assert off(angles, positions[..., None] / 3 * rotary_frequencies(16)) < 2e-6


def test_gradients_are_frequencies_and_positions():
    positions = jnp.array([[0.5, 1000.25]])
    frequencies = jnp.asarray(rotary_frequencies(8), jnp.float32)
    by_position, by_frequency = jax.grad(
        lambda p, f: rotation_angles(p, f).sum(), argnums=(0, 1)
    )(positions, frequencies)
    np.testing.assert_allclose(by_position, np.full((1, 2), frequencies.sum()), 1e-6)
    np.testing.assert_allclose(by_frequency, np.full(4, 1000.75), 1e-6)
    constant = jax.grad(lambda p: rotation_angles(p, rotary_frequencies(8)).sum())
    np.testing.assert_allclose(constant(positions), by_position, 1e-6)


def test_vmap_is_a_loop():
    positions = jnp.arange(6).reshape(2, 1, 3) * 1000
    frequencies = jnp.asarray(rotary_frequencies(8), jnp.float32)
    looped = jnp.stack([rotation_angles(p, frequencies) for p in positions])
    mapped = jax.vmap(lambda p: rotation_angles(p, frequencies))(positions)
    np.testing.assert_array_equal(mapped, looped)


def test_each_pair_may_have_a_position_of_its_own():
    frequencies = rotary_frequencies(4)
    angles = pair_angles(jnp.array([[[3, 500]]]), frequencies)
    assert off(angles[0, 0], np.array([3.0, 5.0])) < 1e-6


@pytest.mark.parametrize(("width", "base"), [(5, 1e4), (0, 1e4), (8, 0.0), (8, -1.0)])
def test_frequencies_refuse_what_has_no_pairs(width, base):
    with pytest.raises(ValueError, match="must be"):
        rotary_frequencies(width, base)
