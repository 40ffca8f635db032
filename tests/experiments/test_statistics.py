"""Scores against their definitions, spreads against enumeration and closed forms."""

import dataclasses
import itertools
import statistics as standard

import numpy as np
import pytest

from experiments.report import statistics

pytestmark = pytest.mark.fast


def test_accuracy_sums_counts_before_it_divides():
    """64 right of 64 and 18 of 36 are 0.82, where the mean of means is 0.75."""
    assert statistics.ratio_by_length([9, 9], [64, 18], [64, 36]) == {9: 0.82}
    five = statistics.ratio_by_length([3, 3, 3], [2, 1, 0], [2, 2, 1])
    assert five == {3: 0.6}


def test_ratios_are_kept_apart_by_length_and_sorted():
    ratios = statistics.ratio_by_length([7, 2, 7, 2], [1, 3, 2, 3], [4, 4, 4, 8])
    assert list(ratios.items()) == [(2, 0.5), (7, 0.375)]


def test_the_score_begins_right_after_the_training_lengths():
    by_length = {n: float(n != 41) for n in range(1, 501)}
    assert statistics.score(by_length, 40, 500) == pytest.approx(459 / 460)
    assert statistics.score(by_length, 41, 500) == 1
    assert statistics.mean_over_lengths(by_length, 1, 40) == 1
    assert statistics.mean_over_lengths(by_length, 1, 41) == pytest.approx(40 / 41)


def test_the_score_ends_with_the_longest_test_length():
    by_length = {n: float(n <= 100) for n in range(1, 201)}
    assert statistics.score(by_length, 40, 100) == 1
    assert statistics.score(by_length, 40, 101) == pytest.approx(60 / 61)


def test_lengths_count_the_same_and_gaps_are_left_out():
    assert statistics.score({10: 0.5, 40: 0.0, 80: 1.0, 500: 0.5}, 40, 500) == 0.75


def test_a_range_without_evaluated_lengths_is_refused():
    with pytest.raises(ValueError, match=r"no evaluated length in 41..500.*\[1, 40\]"):
        statistics.score({1: 1.0, 40: 1.0}, 40, 500)


@pytest.mark.parametrize(
    ("by_length", "longest"),
    [
        ({1: 1.0, 2: 0.9, 3: 0.95}, 3),
        ({1: 1.0, 2: 0.89, 3: 0.95}, 1),  # right again by luck
        ({3: 0.8, 1: 1.0, 2: 0.9}, 2),
        ({5: 0.5, 10: 1.0}, 0),
        ({10: 1.0, 500: 0.9}, 500),
    ],
)
def test_the_longest_length_needs_every_evaluated_length_below(by_length, longest):
    assert statistics.longest_length(by_length) == longest


@pytest.mark.parametrize(("level", "ends"), [(0.95, (0, 5)), (0.9, (1 / 3, 11 / 3))])
def test_the_interval_is_that_of_all_resamples(level, ends):
    """Of 27 resamples of [0, 1, 5], one has mean 0, and three the next one up."""
    means = sorted(np.mean(drawn) for drawn in itertools.product([0, 1, 5], repeat=3))
    tail = (1 - level) / 2
    for end, share in zip(ends, (tail, 1 - tail), strict=True):
        below = np.mean([mean < end - 1e-9 for mean in means])
        upto = np.mean([mean <= end + 1e-9 for mean in means])
        assert below < share < upto
    interval = statistics.bootstrap_interval([0, 1, 5], level=level)
    np.testing.assert_allclose(interval, ends, atol=1e-12)


def test_the_interval_of_many_runs_is_the_normal_one():
    values = np.random.default_rng(1).normal(0.7, 0.1, size=400)
    low, high = statistics.bootstrap_interval(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    np.testing.assert_allclose(
        [low, high], values.mean() + half * np.array([-1, 1]), atol=0.05 * half
    )


def test_an_interval_of_curves_is_that_of_each_length():
    values = np.random.default_rng(2).random((4, 3))
    low, high = statistics.bootstrap_interval(values, resamples=500)
    for i in range(3):
        alone = statistics.bootstrap_interval(values[:, i], resamples=500)
        np.testing.assert_allclose([low[i], high[i]], alone, rtol=1e-12)


def test_one_run_has_no_interval():
    with pytest.raises(ValueError, match="at least two runs, got 1"):
        statistics.bootstrap_interval([0.5])
    assert statistics.spread([0.5]) == statistics.Spread(0.5, None, None, None, 0.5, 1)
    with pytest.raises(ValueError, match="at least one run"):
        statistics.spread([])


def test_a_spread_is_mean_sample_deviation_interval_and_best():
    values = [0.2, 0.9, 0.4, 0.7]
    spread = statistics.spread(values)
    assert spread.mean == pytest.approx(standard.mean(values))
    assert spread.std == pytest.approx(standard.stdev(values))
    assert (spread.best, spread.count) == (0.9, 4)
    assert spread.low < spread.mean < spread.high
    assert statistics.spread(values) == spread


def test_a_length_of_a_curve_counts_over_the_runs_that_have_it():
    curve = statistics.curve_over_runs([{1: 0.5, 3: 1.0}, {3: 0.5, 2: 0.25}])
    assert list(curve) == [1, 2, 3]
    assert curve[1] == (0.5, 0.5, 0.5, 1)
    assert curve[2] == (0.25, 0.25, 0.25, 1)
    assert curve[3] == (0.75, 0.5, 1.0, 2)


def test_several_quantities_are_described_as_each_alone():
    values = np.random.default_rng(3).random((5, 3))
    for i, spread in enumerate(statistics.spreads(values)):
        alone = statistics.spread(values[:, i])
        np.testing.assert_allclose(
            dataclasses.astuple(spread), dataclasses.astuple(alone), rtol=1e-12
        )


def test_a_mean_curve_is_that_of_the_curves_with_intervals():
    curves = [{1: 0.5, 3: 1.0}, {3: 0.5, 2: 0.25}]
    expected = {n: ends[0] for n, ends in statistics.curve_over_runs(curves).items()}
    assert statistics.mean_curve(curves) == expected == {1: 0.5, 2: 0.25, 3: 0.75}


def test_the_interval_is_that_of_a_loop_that_draws_runs():
    """Percentile bootstrap written out, with draws of its own: 1% of the range."""
    values = [0.51, 0.93, 0.97, 0.6, 0.99]
    random = np.random.default_rng(99)
    means = sorted(
        sum(values[i] for i in random.integers(0, 5, size=5)) / 5 for _ in range(20_000)
    )
    ends = means[int(0.025 * len(means))], means[int(0.975 * len(means))]
    found = statistics.bootstrap_interval(values)
    np.testing.assert_allclose(found, ends, atol=0.01 * (max(values) - min(values)))


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_interval_of_two_or_three_runs_is_their_range(count):
    values = [0.1, 0.35, 0.5, 0.9, 0.95][:count]
    found = statistics.spread(values)
    is_range = np.allclose([found.low, found.high], [values[0], values[-1]])
    assert is_range == (count <= 3)
    assert found.interval == ("range" if is_range else "bootstrap 95%")
    low, high = statistics.difference_interval(values, [0.2, 0.3])
    is_range = np.allclose([low, high], [values[0] - 0.3, values[-1] - 0.2])
    assert (statistics.interval_of(count, 2) == "range") == is_range


def test_a_legend_says_what_all_of_its_intervals_are():
    for counts, said in (
        ([1, 1], ""),
        ([1, 3, 2], "range"),
        ([5, 1], "95% interval"),
        ([5, 3], "95% interval or range"),
    ):
        assert statistics.intervals_of(counts) == said
    assert statistics.spread([0.5]).interval is None
