"""RePo's learned positions (arXiv:2512.14391)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import init_learned_positions, learned_positions


def test_positions_equal_a_float64_recomputation():
    init = lambda rng: init_learned_positions(rng, 32, 3, init_std=0.5)
    params = jax.jit(init)(jax.random.key(0))
    assert params["gate"].shape == (32, 4)
    hidden = jax.random.normal(jax.random.key(1), (2, 5, 32))
    p, h = jax.tree.map(lambda x: np.asarray(x, np.float64), (params, hidden))
    gate = h @ p["gate"]
    expected = (gate / (1 + np.exp(-gate)) * (h @ p["content"])) @ p["out"]
    got = jax.jit(learned_positions)(params, hidden)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected).max() > 1


def test_positions_are_float32_and_go_with_their_tokens():
    init = lambda rng: init_learned_positions(rng, 16, 2, hidden_dim=8, init_std=0.5)
    params = jax.jit(init)(jax.random.key(0))
    # Made outside: within one program, the compiler may skip the rounding to bfloat16.
    hidden = jnp.asarray(np.random.default_rng(0).normal(size=(1, 6, 16)), jnp.bfloat16)
    order = np.array([3, 0, 5, 1, 2, 4])
    call = jax.jit(learned_positions)
    got = call(params, hidden)
    assert got.dtype == jnp.float32
    moved = call(params, jnp.asarray(np.asarray(hidden)[:, order]))
    np.testing.assert_allclose(np.asarray(got)[:, order], moved, rtol=1e-5)
    assert len(np.unique(got)) == 12


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="hidden_dim must be at least 1, got 0"):
        init_learned_positions(jax.random.key(0), 4, 1)
    with pytest.raises(ValueError, match="init_std must be at least 0, got -1"):
        init_learned_positions(jax.random.key(0), 16, 1, init_std=-1.0)
