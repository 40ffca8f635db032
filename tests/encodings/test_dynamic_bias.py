"""Biases by a network of the offset: three published forms, in float64 numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import Dims, DynamicBias
from ropejax.positions import grid_positions
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import random

DIMS = Dims(2, 2, 4, 8)
GRID = tokens(6, positions=grid_positions(2, 3))
CELLS = np.array([[row, column] for row in range(2) for column in range(3)])


@functools.partial(jax.jit, static_argnums=0)
def layer(encoding):
    return encoding.init_layer(jax.random.key(0), DIMS)


@functools.partial(jax.jit, static_argnums=0)
def bias(encoding, params, where):
    return encoding.bias(params, where, where, 1.0)


def in_float64(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)


def grid_offsets():
    """Query minus key along rows and columns, as the authors have it, `[6, 6, 2]`."""
    return (CELLS[:, None] - CELLS[None]).astype(np.float64)


def test_log_spaced_offsets_on_two_axes_are_those_of_swin_v2():
    """Windows of 5: its kernel is log(8) times larger, as it divides by that."""
    window = 5
    encoding = DynamicBias(axes=2, hidden=16, bound=16.0, unit=(window - 1) / 8)
    params = layer(encoding)
    p = in_float64(params)
    coordinates = 8 * grid_offsets() / (window - 1)
    coordinates = np.sign(coordinates) * np.log2(np.abs(coordinates) + 1) / np.log2(8)
    kernel = -p["hidden0"]["kernel"] * np.log(8)
    hidden = np.maximum(coordinates @ kernel + p["hidden0"]["bias"], 0)
    out = hidden @ p["out"]["kernel"] + p["out"]["bias"]
    wanted = np.moveaxis(16 / (1 + np.exp(-out)), -1, 0)
    np.testing.assert_allclose(bias(encoding, params, GRID)[0], wanted, rtol=2e-5)


def test_linear_offsets_with_norms_are_those_of_crossformer():
    encoding = DynamicBias(axes=2, spacing="linear", hidden=6, depth=3, norm=True)
    params = jax.tree.map(lambda leaf: leaf + 0.1, layer(encoding))
    p, x = in_float64(params), grid_offsets()
    p["hidden0"]["kernel"] *= -1
    for name in ("hidden0", "hidden1", "hidden2"):
        x = x @ p[name]["kernel"] + p[name]["bias"]
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        x = np.maximum(x * p[name]["gain"] + p[name]["offset"], 0)
    wanted = np.moveaxis(x @ p["out"]["kernel"] + p["out"]["bias"], -1, 0)
    got = bias(encoding, params, GRID)[0]
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def test_any_distance_has_a_number_and_both_signs_differ():
    """In order, at gaps, in fractions, by a table of distances, and a million away."""
    encoding = DynamicBias(hidden=8, depth=2)
    params = layer(encoding)
    p = in_float64(params)

    def of(offsets):
        x = (np.sign(offsets) * np.log1p(np.abs(offsets)))[..., None]
        for name in ("hidden0", "hidden1"):
            x = np.maximum(x @ p[name]["kernel"] + p[name]["bias"], 0)
        return np.moveaxis(x @ p["out"]["kernel"] + p["out"]["bias"], -1, 0)

    apart = np.array([[0.0, 0.5, 7.0, 1e6]])
    sides = (
        tokens(4),
        tokens(4, positions=jnp.asarray(apart, jnp.float32)),
        tokens(4, distances=jnp.array([[0, 3, 50, 900]])),
    )
    table = np.array([0, 3, 50, 900])
    i, j = np.indices((4, 4))
    offsets = (j - i, apart - apart.T, np.sign(j - i) * table[np.abs(j - i)])
    for where, offset in zip(sides, offsets, strict=True):
        got = bias(encoding, params, where)[0]
        np.testing.assert_allclose(got, of(np.float64(offset)), rtol=1e-4, atol=1e-5)
    assert np.abs(got - np.swapaxes(got, 1, 2)).max() > 0.1


def test_blocks_of_a_grid_give_the_whole_and_its_gradients():
    encoding = DynamicBias(axes=2, hidden=6)
    arrays = tuple(random(1, 6, 2, 4, seed=seed) for seed in range(3))

    def total(params, engine):
        out = attend(
            *arrays,
            encoding=encoding,
            params=params,
            query=GRID,
            key=GRID,
            implementation=engine,
            block_q=4,
            block_k=2,
        )
        return (out**2).sum()

    run = jax.jit(jax.value_and_grad(total), static_argnums=1)
    whole, blocks = (run(layer(encoding), engine) for engine in ("dense", "blockwise"))
    np.testing.assert_allclose(whole[0], blocks[0], rtol=1e-5)
    for got, wanted in zip(*map(jax.tree.leaves, (blocks, whole)), strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-5)


def test_plain_positions_are_equal_ones_on_all_axes():
    encoding = DynamicBias(axes=2, hidden=6)
    diagonal = jnp.stack([jnp.arange(5)] * 2, axis=-1)[None]
    params = layer(encoding)
    np.testing.assert_allclose(
        bias(encoding, params, tokens(5)),
        bias(encoding, params, tokens(5, positions=diagonal)),
        atol=1e-6,
    )


@pytest.mark.fast
def test_what_does_not_fit_is_refused():
    for settings, message in (
        ({"axes": 0}, "axes must be at least 1, got 0"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"unit": 0.0}, "unit must be positive, got 0.0"),
        ({"bound": -1.0}, "bound must be positive, or 0 for none, got -1.0"),
        ({"spacing": "logs"}, "Did you mean 'log'"),
    ):
        with pytest.raises(ValueError, match=message):
            DynamicBias(**settings)
    encoding = DynamicBias()
    with pytest.raises(ValueError, match=r"on 1 axes, got shape \(1, 6, 2\).*axes=2"):
        encoding.bias(layer(encoding), GRID, GRID, 1.0)
