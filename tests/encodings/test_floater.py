"""FLOATER's path is the solution of its equation, wherever positions are on it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ropejax.encodings import Dims, Floater
from ropejax.tokens import Tokens, tokens
from tests.tasks.samples import UNOPTIMIZED

# Steps so long that the solver's error would show if it were of a lower order.
FLOATER = Floater(max_position=40, step=0.2, init_std=1.0)
DIMS = Dims(num_heads=2, num_kv_heads=2, head_dim=3, embed_dim=6)
SHARED = FLOATER.init_shared(jax.random.key(0), DIMS)


def solution(shared, times):
    """States at times by another solver, in float64."""
    (w1, b1), (w2, b2) = (
        [np.asarray(shared[name][part], np.float64) for part in ("kernel", "bias")]
        for name in ("first", "second")
    )

    def slope(time, state):
        hidden = np.maximum(state @ w1[:-1] + time * w1[-1] + b1, 0)
        return hidden @ w2[:-1] + time * w2[-1] + b2

    start = np.asarray(shared["start"], np.float64)
    found = solve_ivp(
        slope, (0, times[-1]), start, t_eval=times, rtol=1e-10, atol=1e-10
    )
    return found.y.T


def embedded(encoding, where):
    run = jax.jit(
        lambda shared: encoding.embed(shared, jnp.zeros((1, where.length, 6)), where),
        compiler_options=UNOPTIMIZED,
    )
    return np.asarray(run(SHARED))[0]


def test_states_are_those_of_another_solver():
    wanted = solution(SHARED, 0.2 * np.arange(40))
    assert np.abs(wanted).max() > 5
    for substeps, bound in ((1, 1e-4), (4, 5e-6)):
        finer = dataclasses.replace(FLOATER, substeps=substeps)
        error = np.abs(embedded(finer, tokens(40)) - wanted).max()
        assert error < bound * np.abs(wanted).max()


def test_short_rows_are_solved_as_far_as_they_go_and_others_agree():
    every = embedded(FLOATER, tokens(40))
    np.testing.assert_allclose(embedded(FLOATER, tokens(7)), every[:7], rtol=1e-6)
    places = jnp.array([[3, 39, 0, 11]])
    some = embedded(FLOATER, Tokens(index=places, positions=places))
    np.testing.assert_allclose(some, every[[3, 39, 0, 11]], rtol=1e-5, atol=1e-6)
    later = tokens(40).block(30, 8)  # consecutive, and not from zero on
    np.testing.assert_allclose(embedded(FLOATER, later), every[30:38], rtol=1e-5)
    with pytest.raises(ValueError, match="41 consecutive positions do not fit"):
        embedded(FLOATER, tokens(41))
    with pytest.raises(ValueError, match=r"positions 0 \.\. 40 leave"):
        FLOATER.embed(SHARED, jnp.zeros((1, 2, 6)), Tokens(*2 * [jnp.array([[0, 40]])]))


def test_a_gradient_is_that_of_differences_along_the_whole_path():
    def last(start):
        return jnp.sum(FLOATER.path(SHARED | {"start": start}, 12)[12])

    start, way = SHARED["start"], jnp.arange(6.0) / 6
    told = jax.jvp(last, (start,), (way,))[1]
    np.testing.assert_allclose(jax.grad(last)(start) @ way, told, rtol=1e-4)
    size = 1e-2
    found = (last(start + size * way) - last(start - size * way)) / (2 * size)
    np.testing.assert_allclose(found, told, rtol=2e-2)


@pytest.mark.parametrize("name", ["max_position", "step", "substeps"])
def test_settings_must_be_positive(name):
    with pytest.raises(ValueError, match=name):
        Floater(**{name: 0})
