"""The input-blind predictor against a count of every symbol at every place."""

from collections import Counter

import numpy as np
import pytest

from ropejax.input_blind import blind_correct

pytestmark = pytest.mark.fast


def test_the_predictor_is_a_count_of_symbols_on_the_other_half_of_rows():
    draws = np.random.default_rng(0)
    for _ in range(100):
        rows, places, symbols = draws.integers(1, (9, 6, 4))
        targets = draws.integers(-1, symbols, (rows, places))
        expected = np.zeros(places, int)
        for place in range(places):
            for own in (0, 1):
                others = targets[1 - own :: 2, place]
                counts = Counter(sorted(others[others >= 0].tolist()))
                guess = max(counts, key=counts.get) if counts else 0
                expected[place] += int((targets[own::2, place] == guess).sum())
        np.testing.assert_array_equal(blind_correct(targets), expected)


def test_a_large_alphabet_takes_no_more_memory_than_the_rows():
    """A table of 100,000 symbols at 50,000 places would be 40 GB."""
    targets = np.full((4, 50_000), 99_999)
    targets[0] = 7
    # Even rows have a tie, of which the smaller symbol is guessed for the odd ones.
    np.testing.assert_array_equal(blind_correct(targets), 1)
