"""Scores of a run by length, and their spread over runs: pure functions, no files.

Everything is keyed by the input length itself, never by a place in a list. (The public
code of the randomized-positions paper averages `accuracies[train_max + 1:]`, whose
first entry belongs to length train_max + 2: it skips train_max + 1.)
"""

import dataclasses
from collections.abc import Mapping, Sequence

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


def in_range_accuracy(by_length: ByLength, train_max: int) -> float:
    """Average accuracy over the lengths 1 .. train_max.

    Raises:
        ValueError: if none of them was evaluated.
    """
    return mean_over_lengths(by_length, 1, train_max)


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
    rng = np.random.default_rng(seed)
    times_drawn = rng.multinomial(runs, np.full(runs, 1 / runs), size=resamples)
    means = np.tensordot(times_drawn / runs, values, axes=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


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


def spread(values: Sequence[float]) -> Spread:
    """Describe `values`, one a run.

    Raises:
        ValueError: if there are none.
    """
    array = np.asarray(values, np.float64)
    if array.size == 0:
        raise ValueError("values must hold at least one run, got none")
    std = low = high = None
    if array.size > 1:
        std = float(array.std(ddof=1))
        low, high = map(float, bootstrap_interval(array))
    return Spread(
        float(array.mean()), std, low, high, float(array.max()), int(array.size)
    )


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
