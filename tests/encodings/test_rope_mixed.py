"""RoPE-Mixed against complex numbers in float64, and against RoPE by one axis."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import AxialRotary, Dims, MixedRotary, Rotary
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import logits, placed, random, turned

DIMS = Dims(num_heads=4, num_kv_heads=2, head_dim=8, embed_dim=32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def layer(encoding, dims=DIMS):
    return encoding.init_layer(jax.random.key(0), dims)


def test_pairs_turn_by_the_sum_over_axes_of_position_times_frequency():
    """Grouped heads share frequencies; far positions and fractions stay exact."""
    encoding = MixedRotary(layout="interleaved")
    params = layer(encoding)
    q, k = random(1, 3, 4, 8), random(1, 3, 2, 8, seed=1)
    at = np.array([[[3, -7], [100_000, 99_999], [0, 131_071]]])
    halves = np.float32(at[:, :, ::-1] / 2)
    frequencies = np.asarray(params["frequencies"], np.float64)

    @jax.jit
    def both(params, q, k, query, key):
        views = encoding.queries(params, q, query), encoding.keys(params, k, key)
        return views[0][0], views[1][0]

    got = both(params, q, k, placed(at), placed(halves))
    for x, out, positions in zip((q, k), got, (at, halves), strict=True):
        angles = np.einsum("bla,akr->blkr", positions.astype(np.float64), frequencies)
        angles = np.repeat(angles, x.shape[2] // 2, axis=2)
        x = np.asarray(x, np.float64)
        z = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        np.testing.assert_allclose(out[..., ::2], z.real, atol=2e-5)
        np.testing.assert_allclose(out[..., 1::2], z.imag, atol=2e-5)


def test_frequencies_of_one_axis_only_are_rope_by_that_axis():
    q, k = random(1, 5, 4, 8), random(1, 5, 4, 8, seed=1)
    at = np.random.default_rng(2).integers(0, 900, (1, 5, 2))
    rope = Rotary(max_wavelength=30.0)
    frequencies = jnp.float32(rope.frequencies_of_pairs({}, 8))
    none = jnp.zeros_like(frequencies)
    for axis in range(2):
        own = [none, none]
        own[axis] = frequencies
        params = {"frequencies": jnp.stack(own)[:, None]}
        mixed = logits(MixedRotary(), q, k, placed(at), params)
        alone = logits(rope, q, k, placed(at[..., axis]))
        np.testing.assert_allclose(mixed, alone, atol=2e-5)


def test_along_the_axes_it_starts_as_axial_rope_in_blocks():
    encoding = MixedRotary(directions="axes", max_wavelength=100.0)
    x, at = random(1, 6, 2, 8), np.random.default_rng(0).integers(0, 90, (1, 6, 2))
    at = placed(at)
    params = layer(encoding)
    axial, _ = turned(AxialRotary(max_wavelength=100.0), x, at)
    mixed = jax.jit(encoding.queries)(params, x, at)[0]
    np.testing.assert_allclose(mixed, axial, atol=2e-5)


@pytest.mark.parametrize(("axes", "width"), [(1, 8), (2, 8), (3, 10)])
def test_directions_start_at_right_angles_and_at_random(axes, width):
    """As in the authors' code: lengths of waves are fixed, one turn of all a head."""
    heads = 600
    encoding = MixedRotary(axes=axes)
    dims = Dims(heads, heads, width, width)
    waves = np.asarray(layer(encoding, dims)["frequencies"], np.float64)
    block = np.arange(width // 2) * axes // (width // 2)
    for own in range(axes):
        size = 2 * np.sum(block == own)
        speeds = 10.0 ** (-np.arange(0, size, 2) / size)
        lengths = np.linalg.norm(waves[..., block == own], axis=0)
        np.testing.assert_allclose(lengths, np.tile(speeds, (heads, 1)), rtol=1e-5)
    first = [int(np.argmax(block == own)) for own in range(axes)]
    frames = np.moveaxis(waves[..., first], 1, 0)
    np.testing.assert_allclose(np.linalg.det(frames), 1.0, rtol=1e-5)
    gram = frames @ np.swapaxes(frames, 1, 2)
    np.testing.assert_allclose(gram, np.tile(np.eye(axes), (heads, 1, 1)), atol=1e-5)
    if axes == 1:
        np.testing.assert_allclose(frames, 1.0)
        return
    spread = 4.5 / np.sqrt(axes * heads)
    assert np.abs(frames.mean(0)).max() < spread
    assert abs((frames[:, 0, 0] ** 2).mean() - 1 / axes) < spread


def test_logits_depend_on_differences_and_tell_diagonals_apart():
    encoding = MixedRotary()
    params = layer(encoding)
    q, k = random(1, 4, 4, 8), random(1, 4, 4, 8, seed=1)
    at = np.random.default_rng(2).integers(0, 50, (1, 4, 2))
    here, moved, swapped = (
        logits(encoding, q, k, placed(positions), params)
        for positions in (at, at + [100, -30], at[..., ::-1])
    )
    np.testing.assert_allclose(here, moved, atol=1e-4)
    assert np.abs(here - swapped).max() > 0.1


def test_frequencies_learn_even_from_zero():
    encoding = MixedRotary(directions="axes")
    q, where = random(1, 4, 4, 8), placed(np.arange(8).reshape(1, 4, 2))
    total = lambda params: (encoding.queries(params, q, where)[0] ** 3).sum()
    gradient = jax.jit(jax.grad(total))(layer(encoding))["frequencies"]
    assert (np.abs(gradient) > 1e-6).all()


@pytest.mark.fast
def test_what_does_not_fit_is_refused():
    for settings, message in (
        ({"axes": 0}, "axes must be at least 1, got 0"),
        ({"max_wavelength": 1.0}, "max_wavelength must exceed 1"),
        ({"directions": "axis"}, "Did you mean 'axes'"),
    ):
        with pytest.raises(ValueError, match=message):
            MixedRotary(**settings)
    with pytest.raises(ValueError, match="4 pairs of head_dim=8 to 5 directions"):
        MixedRotary(axes=5).check(DIMS)
    with pytest.raises(ValueError, match="must be even for a rotation, got 7"):
        MixedRotary().check(DIMS._replace(head_dim=7))
    encoding = MixedRotary(axes=3)
    where = tokens(2, positions=jnp.zeros((1, 2, 2), jnp.int32))
    params = layer(encoding)
    with pytest.raises(ValueError, match=r"on 3 axes, got shape \(1, 2, 2\)"):
        encoding.queries(params, jnp.ones((1, 2, 4, 8)), where)
