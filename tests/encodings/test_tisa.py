"""TISA against its formula, in float64 and pair by pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import TISA, Dims
from ropejax.tokens import tokens

DIMS = Dims(2, 2, 4, 8)


def test_the_bias_is_a_sum_of_bumps_along_the_offset():
    encoding = TISA(num_kernels=3)
    params = encoding.init_layer(jax.random.key(0), DIMS)
    params["sharpness"] = params["sharpness"] * jnp.array([1.0, -1.0, 0.5])[:, None]
    a, b, c = (
        np.asarray(params[name], np.float64)
        for name in ("amplitudes", "sharpness", "centres")
    )
    apart = np.array([[0.0, 2.0, 3.5, 900.0]])
    sides = tokens(6), tokens(4, positions=jnp.asarray(apart, jnp.float32))

    @jax.jit
    def biases(params):
        return [encoding.bias(params, where, where, 1.0) for where in sides]

    for where, got in zip(sides, biases(params), strict=True):
        at = np.asarray(where.positions, np.float64)[0]
        offsets = (at[None] - at[:, None])[None, None]
        wanted = a[..., None, None] * np.exp(
            -np.abs(b)[..., None, None] * (offsets - c[..., None, None]) ** 2
        )
        np.testing.assert_allclose(got[0], wanted.sum(0), rtol=1e-5, atol=1e-7)
    assert np.abs(got[0, :, 3, :3]).max() == 0  # nothing is left 900 tokens away


def test_numbers_start_as_published_and_are_shared_if_asked():
    dims = DIMS._replace(num_heads=400)
    params = TISA().init_layer(jax.random.key(0), dims)
    for name, mean, std in (
        ("centres", 0.0, 5.0),
        ("amplitudes", 0.1, 0.01),
        ("sharpness", 0.1, 0.01),
    ):
        assert params[name].shape == (5, 400)
        assert abs(params[name].mean() - mean) < 4.5 * std / np.sqrt(2000)
        assert abs(params[name].std() - std) < 4.5 * std / np.sqrt(4000)
    shared = TISA(shared=True)
    assert not shared.init_layer(jax.random.key(0), dims)
    again = shared.init_shared(jax.random.key(0), dims)
    jax.tree.map(np.testing.assert_array_equal, again, params)


@pytest.mark.fast
def test_no_bumps_are_refused():
    with pytest.raises(ValueError, match="num_kernels must be positive, got 0"):
        TISA(num_kernels=0)
