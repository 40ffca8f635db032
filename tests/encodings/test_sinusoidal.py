import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Sinusoidal
from ropejax.encodings.sinusoids import frequencies, sinusoids
from ropejax.tokens import tokens
from tests.encodings.additive_cases import assert_golden, load, names

SOURCES = {
    "t2t": ("concatenated", "endpoints"),
    "fairseq": ("concatenated", "endpoints"),
    "deepmind": ("concatenated", "width"),
    "interleaved": ("interleaved", "width"),
}


@pytest.mark.parametrize("case", names("sinusoidal"))
@pytest.mark.parametrize("source", SOURCES)
def test_sinusoids_equal_those_of_public_code(case, source):
    wanted = load(case)[source]
    layout, exponent = SOURCES[source]
    encoding = Sinusoidal(layout=layout, exponent=exponent)
    length, width = wanted.shape
    got = encoding.embed({}, jnp.zeros((1, length, width)), tokens(length))
    assert_golden(case, got[0], wanted)


@pytest.mark.parametrize("case", names("sinusoidal"))
def test_negative_positions_have_sinusoids_of_their_own(case):
    wanted = load(case)["deepmind_negative"]
    positions = jnp.arange(-len(wanted) // 2, len(wanted) // 2)[None]
    got = sinusoids(positions, frequencies(wanted.shape[1]))
    assert_golden(case, got[0], wanted)


def test_sinusoids_are_exact_at_far_and_fractional_positions():
    waves = frequencies(64)
    whole = np.arange(2**20 - 300, 2**20 + 1)
    half = np.array([0.5, -1234.25, 4095.125, 1000.75])
    for positions in (whole, -whole, half):
        angle = positions.astype(np.float64)[:, None] * waves
        wanted = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
        got = jax.jit(lambda p: sinusoids(p, waves))(jnp.asarray(positions)[None])[0]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-6)


def test_embedding_adds_the_factor_times_sinusoids_in_the_dtype_of_x():
    x = jax.random.normal(jax.random.key(0), (2, 5, 8))
    where = tokens(5, offset=3)
    encoding = Sinusoidal(factor=0.5)
    table = sinusoids(jnp.arange(3, 8)[None], frequencies(8), "interleaved")
    np.testing.assert_allclose(encoding.embed({}, x, where), x + 0.5 * table, atol=1e-6)
    half = encoding.embed({}, x.astype(jnp.bfloat16), where)
    assert half.dtype == jnp.bfloat16


def test_endpoints_reach_the_longest_wavelength_and_width_does_not():
    np.testing.assert_allclose(frequencies(16, 1e4, "endpoints")[-1], 1e-4)
    np.testing.assert_allclose(frequencies(16, 1e4)[-1], 1e4 ** (-14 / 16))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "interleave"}, "Did you mean 'interleaved'"),
        ({"exponent": "end"}, "exponent must be one of"),
        ({"max_wavelength": 0.0}, "max_wavelength must be positive"),
        ({"factor": -1.0}, "factor must be positive"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sinusoidal(**settings)


def test_an_odd_width_is_refused_before_any_computation():
    with pytest.raises(ValueError, match="even width"):
        Sinusoidal().check(Dims(1, 1, 5, 5))


def test_positions_on_two_axes_are_refused():
    where = dataclasses.replace(tokens(3), positions=jnp.zeros((1, 3, 2)))
    with pytest.raises(ValueError, match="one axis"):
        Sinusoidal().embed({}, jnp.zeros((1, 3, 4)), where)
