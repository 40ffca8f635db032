"""Lengths of rows that schemes take: whole, known or traced, one by one or together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import (
    POSITIONS,
    Randomized,
    left_padded,
    segments_from_lengths,
)

pytestmark = pytest.mark.fast

ROW = jnp.array([[3, 10, 3]])  # a digit, plus, a digit
NOT_WHOLE = "lengths must be whole numbers, got float32"


def place(scheme, lengths, rng=None):
    rng = jax.random.key(0) if rng is None else rng
    return scheme(rng, lengths, num_tokens=3, num_layers=2, tokens=ROW)


@pytest.mark.parametrize("name", POSITIONS)
def test_lengths_that_are_not_whole_are_refused_rather_than_cut(name):
    scheme = POSITIONS[name]()
    with pytest.raises(ValueError, match=NOT_WHOLE):
        place(scheme, jnp.array([2.6]))
    with pytest.raises(ValueError, match=NOT_WHOLE):
        jax.eval_shape(lambda n: place(scheme, n), jnp.array([2.6]))
    with pytest.raises(ValueError, match="lengths must be whole numbers, got True"):
        place(scheme, [True])


@pytest.mark.parametrize("layout", [left_padded, segments_from_lengths])
def test_layouts_take_whole_lengths_alone(layout):
    with pytest.raises(ValueError, match=NOT_WHOLE):
        layout(jnp.array([2.6]), 3)


def test_a_number_of_tokens_that_is_not_whole_is_refused():
    with pytest.raises(ValueError, match="num_tokens must be a whole number, got 3.0"):
        Randomized(8)(jax.random.key(0), [2], num_tokens=3.0)


@pytest.mark.parametrize("distances", [False, True])
def test_a_list_of_traced_lengths_serves_as_an_array_does(distances):
    scheme = Randomized(8, distances=distances)
    listed = jax.jit(lambda n: place(scheme, [n, n + 1]))(2)
    jax.tree.map(np.testing.assert_array_equal, listed, place(scheme, np.array([2, 3])))
