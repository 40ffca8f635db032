"""Coupled positions for addition (arXiv:2405.20671)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import Coupled

PLUS, EQUALS, PLACEHOLDER = 10, 11, 12


def symbols(text):
    return [{"+": PLUS, "=": EQUALS, "_": PLACEHOLDER}.get(c) or int(c) for c in text]


def batch(*texts):
    """Rows of the same shape for every test here: one program places them all."""
    tokens = np.zeros((8, 12), np.int32)
    for row, text in zip(tokens, texts, strict=False):
        row[: len(text)] = symbols(text)
    lengths = np.zeros(8, np.int32)
    lengths[: len(texts)] = [len(text) for text in texts]
    return tokens, lengths


def by_rule(text, start, *, operands_least_first=False, answer_least_first=True):
    """The rule in plain Python, for a row `a+b=answer`."""
    left, answer = text.split("=")
    operands = left.split("+")
    end = start + max(max(map(len, operands)) + 1, len(answer))
    column = lambda digits, least_first: [
        end - 1 - (i if least_first else len(digits) - 1 - i)
        for i in range(len(digits))
    ]
    found = []
    for operand in operands:
        found += column(operand, operands_least_first) + [end]
    return found + column(answer, answer_least_first)


@functools.partial(jax.jit, static_argnums=0)
def place(scheme, tokens, lengths, seed=0):
    return scheme(
        jax.random.key(seed), lengths, num_tokens=tokens.shape[1], tokens=tokens
    ).positions


def test_positions_by_hand():
    # Ids of the authors' rule for 653+49=207 (702 reversed) from start 1: three digits
    # and a carry make 4 columns, so units are at 4, and plus and equals at 5.
    got = place(Coupled(64, random_start=False), *batch("653+49=207"))
    np.testing.assert_array_equal(got[0], [2, 3, 4, 5, 3, 4, 5, 4, 3, 2, 0, 0])
    np.testing.assert_array_equal(got[1:], 0)


@pytest.mark.parametrize("operands_least_first", [False, True])
@pytest.mark.parametrize("answer_least_first", [False, True])
def test_every_order_of_digits_follows_the_rule(
    operands_least_first, answer_least_first
):
    orders = {
        "operands_least_first": operands_least_first,
        "answer_least_first": answer_least_first,
    }
    texts = ("653+49=207", "7+1234=1421", "12+34+56=201", "5+5=01", "99+1=")
    tokens, lengths = batch(*texts)
    got = np.asarray(place(Coupled(64, random_start=False, **orders), tokens, lengths))
    for row, text in zip(got, texts, strict=False):
        np.testing.assert_array_equal(row[: len(text)], by_rule(text, 1, **orders))
        np.testing.assert_array_equal(row[len(text) :], 0)


def test_placeholders_are_the_answer_with_or_without_equals():
    scheme = Coupled(
        64, placeholder=PLACEHOLDER, random_start=False, operands_least_first=True
    )
    got = place(scheme, *batch("65+4=___", "65+4___"))
    with_equals = [3, 2, 4, 3, 4, 3, 2, 1]
    np.testing.assert_array_equal(got[0, :8], with_equals)
    np.testing.assert_array_equal(got[1, :7], np.delete(with_equals, 4))


def test_start_is_uniform_over_what_fits():
    tokens, lengths = (np.repeat(x[:1], 3000, axis=0) for x in batch("12+34=64"))
    got = np.asarray(place(Coupled(8), tokens, lengths))
    # Width 3 and largest position 8: starts 1 .. 5; the separators' position is last.
    np.testing.assert_array_equal(got[:, 2] - got[:, 1], 1)
    counts = np.bincount(got[:, 2] - 3)[1:]
    assert len(counts) == 5
    assert got.max() == 8
    assert np.abs(counts - 600).max() < 4.5 * np.sqrt(600 * 4 / 5)


def test_rows_wider_than_the_table_are_refused_or_leave_it():
    tokens, lengths = batch("1234+1=5321")
    scheme = Coupled(5)
    with pytest.raises(ValueError, match=r"5 columns wide.*got 5"):
        place.__wrapped__(scheme, jnp.asarray(tokens), jnp.asarray(lengths))
    # Traced symbols cannot be refused: their positions are past the table, not clamped.
    assert place(scheme, tokens, lengths).max() >= scheme.position_bound(12)


def test_symbols_are_asked_for():
    with pytest.raises(ValueError, match="pass tokens"):
        Coupled()(jax.random.key(0), jnp.array([2]), num_tokens=2)
    with pytest.raises(ValueError, match="separators is empty"):
        Coupled(separators=())
