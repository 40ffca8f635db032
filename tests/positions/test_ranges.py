"""Ranges beyond the integers that positions are kept in are refused by name."""

import jax
import numpy as np
import pytest

from ropejax.positions import (
    Abacus,
    Coupled,
    CoupledLevels,
    EqualMean,
    EvenlySpaced,
    PoSE,
    RandomFloats,
    Randomized,
    Shifted,
)

pytestmark = pytest.mark.fast

INT32 = 2**31


@pytest.mark.parametrize(
    ("scheme", "name", "most"),
    [
        (Randomized, "max_position", 2**24),
        (PoSE, "max_position", 2**23),
        (Coupled, "max_position", 2**23),
        (CoupledLevels, "max_digits", 2**23),
        (CoupledLevels, "max_operands", 2**23),
        (EvenlySpaced, "max_position", INT32 - 1),
        (EqualMean, "max_position", INT32 - 1),
        (RandomFloats, "max_position", INT32 - 1),
        (Shifted, "offset", INT32 - 1),
        (Shifted, "max_random_offset", INT32 - 2),
        (Abacus, "max_offset", INT32 - 2),
    ],
)
def test_the_largest_range_is_allowed_and_one_more_refused(scheme, name, most):
    scheme(**{name: most})
    with pytest.raises(ValueError, match=f"{name} must be at most {most}, got"):
        scheme(**{name: most + 1})
    with pytest.raises(ValueError, match=f"{name} must be at most {most}, got"):
        scheme(**{name: 10**12})


def test_bounds_that_are_allowed_can_be_drawn_from():
    """The bounds of integer draws are integers of 32 bits themselves."""
    rng, lengths = jax.random.key(0), np.array([1])
    far = Shifted(max_random_offset=INT32 - 2)(rng, lengths, num_tokens=1)
    assert 0 <= int(far.positions[0, 0]) < INT32
    ends = EvenlySpaced(INT32 - 1)(rng, np.array([3]), num_tokens=3).positions
    np.testing.assert_array_equal(ends, [[0, 2**30 - 1, INT32 - 2]])
    row, symbols = Abacus((3,), INT32 - 2), np.array([[3]])
    digit = row(rng, lengths, num_tokens=1, tokens=symbols).streams["digit"]
    assert 0 < int(digit[0, 0]) < INT32


def test_digits_that_may_leave_int32_are_refused():
    with pytest.raises(ValueError, match="digits of 2 tokens up to 2147483648"):
        Abacus(max_offset=INT32 - 2).check(2)


@pytest.mark.parametrize("distances", [False, True])
def test_no_tokens_have_no_positions(distances):
    scheme = Randomized(8, distances=distances)
    placed = scheme(jax.random.key(0), np.array([0]), num_tokens=0)
    array = placed.distances if distances else placed.positions
    assert array.shape == (1, 0)
