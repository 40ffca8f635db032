"""Abacus digit ids (arXiv:2405.17399)."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import Abacus, Randomized, abacus_digits

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@functools.partial(jax.jit, static_argnums=0)
def place(scheme, tokens, lengths):
    return scheme(
        jax.random.key(0),
        lengths,
        num_tokens=tokens.shape[1],
        num_layers=3,
        tokens=tokens,
    )


def test_ids_equal_those_of_the_authors_code():
    # mcleish7/arithmetic at 86022a5, abacus.py, with k = 17 in training.
    with np.load(GOLDEN / "abacus_basic.npz") as golden:
        tokens = jnp.asarray(golden["input_ids"], jnp.int32)
        digits = tuple(golden["digit_tokens"].tolist())
        np.testing.assert_array_equal(
            abacus_digits(tokens, digits), golden["positions"]
        )
        np.testing.assert_array_equal(
            abacus_digits(tokens, digits, offset=17), golden["positions_offset"]
        )


def test_padding_is_no_digit_even_if_it_looks_like_one():
    # 12+3 and then zeros as padding; 10 is the plus.
    tokens = np.array([[1, 2, 10, 3, 0, 0]])
    scheme = Abacus(max_offset=0)
    placement = place(scheme, tokens, np.array([4]))
    np.testing.assert_array_equal(placement.streams["digit"], [[1, 2, 0, 1, 0, 0]])
    assert placement.positions is None


def test_offset_is_uniform_and_shared_by_the_digits_of_a_row():
    tokens = np.tile([[1, 2, 10, 3]], (2000, 1))
    scheme = Abacus(max_offset=3, per_sequence=True)
    placement = place(scheme, tokens, np.full(2000, 4))
    digit = np.asarray(placement.streams["digit"])
    offset = digit[:, 0] - 1
    np.testing.assert_array_equal(digit[:, 1], offset + 2)
    np.testing.assert_array_equal(digit[:, 2], 0)
    np.testing.assert_array_equal(digit[:, 3], offset + 1)
    assert np.abs(np.bincount(offset) - 500).max() < 4.5 * np.sqrt(500 * 3 / 4)
    assert digit.max() < scheme.digit_bound(4)


def test_one_offset_serves_a_batch_as_published():
    tokens = np.ones((6, 2), np.int32)
    placement = place(Abacus(), tokens, np.full(6, 2))
    assert len(set(np.asarray(placement.streams["digit"])[:, 0].tolist())) == 1


def test_ordinary_positions_come_from_the_base_scheme():
    scheme = Abacus(base=Randomized(64, per_layer=True))
    placement = place(scheme, np.ones((1, 4), np.int32), np.array([4]))
    assert placement.per_layer
    assert placement.positions.shape == (3, 1, 4)
    assert placement.tokens(4, layer=2).streams["digit"].shape == (1, 4)
    assert scheme.position_bound(4) == 64
    with pytest.raises(ValueError, match="max_position=64"):
        scheme.check(65)


def test_symbols_are_asked_for():
    with pytest.raises(ValueError, match="pass tokens"):
        Abacus()(jax.random.key(0), jnp.array([2]), num_tokens=2)
    with pytest.raises(ValueError, match="digits is empty"):
        Abacus(digits=())
