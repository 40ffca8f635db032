"""Uniform symbols from random words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ropejax.tasks import draws


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 496, 2**16])
def test_below_is_the_integer_part_of_the_fraction(bound):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, 1000).tolist()
    steps = [2**32 * k // bound for k in range(bound)][:1000]  # where the value changes
    words += [max(step + d, 0) for step in steps for d in (-1, 0, 1)] + [2**32 - 1]
    got = draws.below(jnp.asarray(words, jnp.uint32), bound)
    assert got.tolist() == [word * bound >> 32 for word in words]


@pytest.mark.parametrize("base", [2, 3, 4, 5, 15, 4097, 2**16])
def test_symbols_are_the_leading_digits_of_words(base):
    rng, count = jax.random.key(1), 41
    symbols = draws.symbols(rng, count, base).tolist()
    digits = []
    for word in draws.words(rng, count).tolist():
        per_word = 0
        # Digits are taken while 2^32 is a multiple of their number of combinations, or
        # exceeds it 2^20 times; one digit is always taken.
        while per_word == 0 or (
            2**32 % base ** (per_word + 1) == 0 or base ** (per_word + 1) <= 2**12
        ):
            digits.append((word * base ** (per_word + 1) >> 32) % base)
            per_word += 1
    assert symbols == digits[:count]


@pytest.mark.parametrize("base", [2, 5, 4097])
def test_fewer_symbols_are_the_first_of_more(base):
    rng = jax.random.key(2)
    longest = draws.symbols(rng, 131, base)
    for count in (1, 6, 33):
        np.testing.assert_array_equal(
            draws.symbols(rng, count, base), longest[:count], err_msg=str(count)
        )


@pytest.mark.parametrize("base", [2, 3, 5])
def test_symbols_and_neighbours_are_uniform(base):
    symbols = np.asarray(draws.symbols(jax.random.key(3), 60_000, base))
    pairs = symbols[0::2] * base + symbols[1::2]
    for values, size in ((symbols, base), (pairs, base**2)):
        assert stats.chisquare(np.bincount(values, minlength=size)).pvalue > 1e-3


def test_alphabets_out_of_range_are_refused():
    draws.check_alphabet("vocab_size", 2)
    draws.check_alphabet("vocab_size", draws.MAX_BOUND)
    for size in (1, draws.MAX_BOUND + 1):
        with pytest.raises(ValueError, match=f"vocab_size={size}"):
            draws.check_alphabet("vocab_size", size)
