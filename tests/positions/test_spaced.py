"""Shifted, evenly spaced, equal-mean, random float and PoSE positions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import EqualMean, EvenlySpaced, PoSE, RandomFloats, Shifted
from ropejax.positions.pose import two_chunks


@functools.partial(jax.jit, static_argnums=(0, 2))
def place(scheme, lengths, num_tokens):
    return scheme(jax.random.key(0), lengths, num_tokens=num_tokens).positions


def rows(scheme, lengths, num_tokens):
    return np.asarray(place(scheme, np.asarray(lengths), num_tokens))


def test_shifted_by_a_constant_and_by_a_random_start():
    np.testing.assert_array_equal(rows(Shifted(offset=7), [3], 3), [[7, 8, 9]])
    starts = rows(Shifted(offset=5, max_random_offset=3), np.full(200, 2), 2)
    np.testing.assert_array_equal(starts[:, 1] - starts[:, 0], 1)
    assert set(starts[:, 0]) == {5, 6, 7, 8}
    shared = rows(Shifted(max_random_offset=50, per_sequence=False), [2, 2], 2)
    assert shared.shape == (1, 2)
    with pytest.raises(ValueError, match="max_random_offset must be at least 0"):
        Shifted(max_random_offset=-1)


def test_evenly_spaced_ids_by_hand():
    # 0 .. 10 in steps of 10/3 = 3.33, and of 10/2 = 5; a row of one token; of all ids.
    got = rows(EvenlySpaced(11), [4, 3, 1, 11], 11)
    np.testing.assert_array_equal(got[0, :4], [0, 3, 7, 10])
    np.testing.assert_array_equal(got[1, :3], [0, 5, 10])
    assert got[2, 0] == 0
    np.testing.assert_array_equal(got[3], np.arange(11))
    exact = rows(EvenlySpaced(11, rounded=False), [4], 4)
    np.testing.assert_allclose(exact, [[0, 10 / 3, 20 / 3, 10]], rtol=1e-6)


@pytest.mark.parametrize("max_position", [700, 2048, 2**20])
def test_evenly_spaced_ids_stay_distinct_and_near_the_exact_ones(max_position):
    ids = rows(EvenlySpaced(max_position), [699], 699)[0]
    exact = np.arange(699) * (max_position - 1) / 698
    assert (np.diff(ids) >= 1).all()
    assert ids[-1] == max_position - 1
    assert np.abs(ids - exact).max() < 0.5 + 1e-3


def test_evenly_spaced_refuses_more_tokens_than_ids():
    with pytest.raises(ValueError, match=r"12 tokens.*max_position=11"):
        rows(EvenlySpaced(11), [4], 12)


@pytest.mark.parametrize("scheme", [EqualMean(), EqualMean(max_position=200)])
def test_equal_mean_rows_end_at_their_length_on_average(scheme):
    lengths = np.tile([10, 40], 4000)
    got = rows(scheme, lengths, 40)
    for length in (10, 40):
        mine = got[lengths == length, :length]
        steps = np.diff(mine, axis=1)
        np.testing.assert_allclose(steps, steps[:, :1] + 0 * steps, atol=2e-4)
        end = mine[:, -1]
        # The exponential law's standard deviation is its mean; the Beta law's is less.
        assert abs(end.mean() - length) < 4.5 * length / np.sqrt(4000)
        if scheme.max_position is None:
            below = np.mean(end < length * np.log(2))  # the exponential law's median
        else:
            b = (200 - length) / length
            below = np.mean(end < 200 * (1 - 0.5 ** (1 / b)))
            assert end.max() <= 200
        assert abs(below - 0.5) < 4.5 * 0.5 / np.sqrt(4000)


def test_equal_mean_refuses_a_range_without_that_mean():
    with pytest.raises(ValueError, match="40 tokens need max_position above that"):
        EqualMean(max_position=40).check(40)


def test_random_floats_are_sorted_and_uniform():
    lengths = np.tile([3, 12], 1000)
    got = rows(RandomFloats(max_position=50.0), lengths, 12)
    for length in (3, 12):
        mine = got[lengths == length, :length]
        assert (np.diff(mine, axis=1) >= 0).all()
        # The k-th of n sorted uniform draws has mean k / (n + 1) of the range.
        expected = 50 * np.arange(1, length + 1) / (length + 1)
        spread = 50 * 0.5 / np.sqrt((length + 2) * 1000)
        assert np.abs(mine.mean(axis=0) - expected).max() < 4.5 * spread


def test_pose_without_a_gap_is_consecutive():
    got = two_chunks(jnp.array([6]), 6, jnp.array([3]), jnp.array([0]))
    np.testing.assert_array_equal(got, [np.arange(6)])
    np.testing.assert_array_equal(rows(PoSE(9), [9], 9), [np.arange(9)])


def test_pose_chunks_by_hand():
    got = two_chunks(jnp.array([5]), 7, jnp.array([2]), jnp.array([10]))
    np.testing.assert_array_equal(got, [[0, 1, 12, 13, 14, 14, 14]])


def test_pose_draws_every_first_chunk_and_every_gap():
    # n = 5, M = 9: l in 1..3 and u in 0..4, so that the last position is 4..8.
    got = rows(PoSE(9), np.full(3000, 5), 5)
    gaps = got[:, -1] - 4
    assert set(gaps) == {0, 1, 2, 3, 4}
    counts = np.bincount(gaps)
    assert np.abs(counts - 600).max() < 4.5 * np.sqrt(600 * 4 / 5)
    jumped = got[gaps > 0]
    first = (np.diff(jumped, axis=1) > 1).argmax(axis=1) + 1
    assert set(first) == {1, 2, 3}
    share = len(jumped) / 3
    assert np.abs(np.bincount(first)[1:] - share).max() < 4.5 * np.sqrt(share * 2 / 3)


def test_pose_refuses_more_tokens_than_positions():
    with pytest.raises(ValueError, match=r"10 tokens.*max_position=9"):
        rows(PoSE(9), [4], 10)
