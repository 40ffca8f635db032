"""Scores of a run by length, and their spread over runs: pure functions, no files.

Everything is keyed by the input length itself, never by a place in a list. (The public
code of the randomized-positions paper averages `accuracies[train_max + 1:]`, whose
first entry belongs to length train_max + 2: it skips train_max + 1.)
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

ByLength = Mapping[float, float]


def ratio_by_length(
    lengths: Sequence[int], hits: Sequence[float], totals: Sequence[float]
) -> dict[int, float]:
    """Divide the sum of `hits` by the sum of `totals`, for each length.

    Counts are summed before they are divided, so the result is the same however the
    samples were cut into batches.

    Args:
        lengths: input length of each pair of counts, in tokens; may repeat.
        hits: right tokens, or sequences with every token right.
        totals: tokens, or sequences.

    Returns:
        The ratio by length, in order of length.
    """
    unique, where = np.unique(np.asarray(lengths, np.int64), return_inverse=True)
    summed = [np.bincount(where, weights=np.asarray(x, float)) for x in (hits, totals)]
    ratios = summed[0] / summed[1]
    return dict(zip(unique.tolist(), ratios.tolist(), strict=True))


def mean_over_lengths(by_length: ByLength, first: int, last: int) -> float:
    """Average over the evaluated lengths in first .. last, both included.

    Every length counts the same, whatever its number of samples.

    Raises:
        ValueError: if no length lies in that range.
    """
    inside = [value for length, value in by_length.items() if first <= length <= last]
    if not inside:
        raise ValueError(
            f"no evaluated length in {first}..{last}; evaluated: {sorted(by_length)}"
        )
    return float(np.mean(inside))


def score(by_length: ByLength, train_max: int, test_max: int) -> float:
    """Average accuracy over the lengths train_max + 1 .. test_max: the paper's score.

    References:
        Deletang et al. 2022, arXiv 2207.02098, A.4; Ruoss et al. 2023, arXiv
        2305.16843.

    Raises:
        ValueError: if no length beyond `train_max` was evaluated.
    """
    return mean_over_lengths(by_length, train_max + 1, test_max)


def longest_length(by_length: ByLength, threshold: float = 0.9) -> int:
    """Find the longest length up to which accuracy holds.

    It is the largest evaluated length such that the accuracy is at least `threshold`
    there and at every evaluated length below; 0 if it fails at the shortest. A later
    length that is right again, by luck, does not count.
    """
    longest = 0
    for length in sorted(by_length):
        if by_length[length] < threshold:
            break
        longest = length
    return longest


def bootstrap_interval(
    values: Float[np.ndarray, "runs ..."],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Estimate the interval in which the mean over runs lies: percentile bootstrap.

    The runs are drawn again with replacement `resamples` times; the interval is
    between the (1 - level) / 2 and (1 + level) / 2 quantiles of the means. With few
    runs it is too narrow: it never leaves the range of what was seen.

    Args:
        values: one value a run, or one array a run.
        level: share of the resampled means inside.
        resamples: number of draws.
        seed: of the draws; the same runs give the same interval.

    Returns:
        The lower and the upper end, of the shape of one run's value.

    Raises:
        ValueError: for fewer than two runs, whose spread is unknown.

    References:
        Efron and Tibshirani 1993, An Introduction to the Bootstrap, ch. 13.
    """
    values = np.asarray(values, np.float64)
    runs = len(values)
    if runs < 2:
        raise ValueError(f"values must be of at least two runs, got {runs}")
    means = np.tensordot(_weights(runs, resamples, seed), values, axes=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


def difference_interval(
    first: Sequence[float], second: Sequence[float], *, resamples: int = 10_000
) -> tuple[float, float]:
    """Estimate the 95% interval of mean(first) - mean(second): percentile bootstrap.

    Both are drawn again independently of each other.

    Raises:
        ValueError: if one of them has fewer than two values.
    """
    if min(len(first), len(second)) < 2:
        raise ValueError(
            f"each side must have at least two runs, got {len(first)}, {len(second)}"
        )
    means = [
        _weights(len(values), resamples, seed) @ np.asarray(values, np.float64)
        for seed, values in enumerate((first, second))
    ]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return float(low), float(high)


@functools.lru_cache(maxsize=8)  # a study has thousands of cells of equal size
def _weights(runs: int, resamples: int, seed: int) -> Float[np.ndarray, "draws runs"]:
    """How much each run counts in each resampled mean."""
    rng = np.random.default_rng(seed)
    times_drawn = rng.multinomial(runs, np.full(runs, 1 / runs), size=resamples)
    weights = times_drawn / runs
    weights.flags.writeable = False
    return weights


@dataclasses.dataclass(frozen=True)
class Spread:
    """A quantity over the runs of a cell.

    Attributes:
        mean: average over runs.
        std: sample standard deviation (n - 1); None for one run.
        low: lower end of the bootstrap 95% interval of the mean; None for one run.
        high: its upper end.
        best: largest value.
        count: number of runs.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    best: float
    count: int

    @property
    def interval(self) -> str | None:
        """What `low` and `high` are: the range of few runs; None for one."""
        return interval_of(self.count)


def interval_of(*counts: int) -> str | None:
    """Says what the 95% interval of a mean over so many runs is; None of one run.

    One in n^n resamples is n times the lowest run: more than 2.5% up to n = 3, so that
    percentiles are of two or three runs the lowest and the highest.

    Args:
        *counts: numbers of runs; several, of a difference of means.
    """
    if min(counts) < 2:
        return None
    extreme = math.prod(count**-count for count in counts)
    return "range" if extreme > 0.025 else "bootstrap 95%"


def intervals_of(counts: Iterable[int]) -> str:
    """Says what the intervals of means over so many runs each are, in a legend.

    Args:
        counts: numbers of runs.

    Returns:
        "95% interval", "range", or both; "" if none has one.
    """
    found = {interval_of(count) for count in counts} - {None}
    names = {"range": "range", "bootstrap 95%": "95% interval"}
    return " or ".join(names[kind] for kind in sorted(found))


def spread(values: Sequence[float]) -> Spread:
    """Describe `values`, one a run.

    Raises:
        ValueError: if there are none.
    """
    return spreads(np.asarray(values, np.float64)[:, None])[0]


def spreads(values: Float[np.ndarray, "runs quantities"]) -> list[Spread]:
    """Describe several quantities of the same runs.

    Args:
        values: a row a run, a column a quantity.

    Raises:
        ValueError: if there are no runs.
    """
    runs = len(values)
    if runs == 0:
        raise ValueError("values must hold at least one run, got none")
    means, best = values.mean(axis=0).tolist(), values.max(axis=0).tolist()
    std = low = high = [None] * len(means)
    if runs > 1:
        std = values.std(axis=0, ddof=1).tolist()
        low, high = (ends.tolist() for ends in bootstrap_interval(values))
    each = zip(means, std, low, high, best, strict=True)
    return [Spread(*figures, runs) for figures in each]


def mean_curve(curves: Sequence[ByLength]) -> dict:
    """Average curves by length over the runs that have the length."""
    values: dict[float, list[float]] = {}
    for curve in curves:
        for length, value in curve.items():
            values.setdefault(length, []).append(value)
    return {length: float(np.mean(values[length])) for length in sorted(values)}


def curve_over_runs(curves: Sequence[ByLength], resamples: int = 1000) -> dict:
    """Average curves by length over runs, with the bootstrap 95% interval.

    A length counts over the runs that have it.

    Returns:
        {length: (mean, low, high, runs)}; the interval is the mean itself for one run.
    """
    lengths = sorted(set().union(*curves))
    values = np.array([[c.get(n, np.nan) for n in lengths] for c in curves])
    there = ~np.isnan(values)
    result = {}
    for pattern in np.unique(there, axis=1).T:  # lengths that the same runs have
        columns = np.flatnonzero((there == pattern[:, None]).all(axis=0))
        chosen = values[pattern][:, columns]
        mean = low = high = chosen.mean(axis=0)
        if len(chosen) > 1:
            low, high = bootstrap_interval(chosen, resamples=resamples)
        for i, column in enumerate(columns):
            ends = float(mean[i]), float(low[i]), float(high[i])
            result[lengths[column]] = (*ends, len(chosen))
    return dict(sorted(result.items()))
