"""Few shapes serve all lengths, and each length gets the smallest that holds it."""

import numpy as np
import pytest

from ropejax.training.buckets import bucket_of, even_buckets, grid_buckets

pytestmark = pytest.mark.fast


def test_all_lengths_to_512_need_25_shapes_and_at_most_a_quarter_of_padding():
    buckets = grid_buckets(range(1, 513))
    assert len(buckets) == 25
    assert buckets[-1] == 512
    for length in range(8, 513):
        assert length <= bucket_of(length, buckets) <= 1.25 * length


def test_shapes_are_the_same_whatever_lengths_are_asked_for():
    every = set(grid_buckets(range(1, 1025)))
    for lengths in ([1], [500], range(41, 501), [3, 77, 1000]):
        assert set(grid_buckets(lengths)) <= every


@pytest.mark.parametrize(
    ("max_length", "count", "expected"),
    [
        (40, 5, (8, 16, 24, 32, 40)),
        (40, 3, (14, 27, 40)),
        (3, 5, (1, 2, 3)),
        (1, 1, (1,)),
    ],
)
def test_even_buckets_end_at_the_longest_length(max_length, count, expected):
    assert even_buckets(max_length, count) == expected


@pytest.mark.parametrize("given", [5.0, True, "5"])
def test_sizes_that_are_not_whole_are_refused(given):
    with pytest.raises(ValueError, match="max_length must be a whole number"):
        even_buckets(given, 1)
    with pytest.raises(ValueError, match="each of lengths must be a whole number"):
        grid_buckets([given])


def test_integers_of_numpy_are_lengths_as_well():
    """`np.arange(1, 501)` is how many would write lengths."""
    assert grid_buckets(np.arange(1, 65)) == grid_buckets(range(1, 65))


@pytest.mark.parametrize("bad", [(0, 1), (5, 0)])
def test_even_buckets_refuse_nothing_to_hold(bad):
    with pytest.raises(ValueError, match="at least 1"):
        even_buckets(*bad)


def test_a_length_that_no_bucket_holds_is_refused():
    with pytest.raises(ValueError, match="41"):
        bucket_of(41, (8, 40))
    with pytest.raises(ValueError, match="lengths"):
        grid_buckets([0, 3])
