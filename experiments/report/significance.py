"""Whether two groups of runs differ by more than chance: pure functions, no files."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

EXACT = 50_000
"""Ways to split runs in two, up to which all are tried."""
DRAWS = 20_000


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Tests whether two groups of scores have one mean: two-sided permutation test.

    p is the share of the ways to split all scores into groups of these sizes whose
    means differ at least as much: over all of them up to `EXACT`, else over `DRAWS`
    random ones and the one that was seen. It assumes no distribution; of n and m runs
    it cannot fall below 2 / C(n + m, n) (n = m) or 1 / C(n + m, n), whatever the scores
    are: 0.1 for 3 and 3 runs, 0.008 for 5 and 5.

    Args:
        first: one score a run.
        second: the same, of other runs.

    Returns:
        p; None if a group has fewer than two runs, of which nothing can be said.

    References:
        Phipson and Smyth 2010, arXiv 1603.05766, on p from random draws.
    """
    size = len(first)
    if min(size, len(second)) < 2:
        return None
    scores = np.asarray([*first, *second], np.float64)
    number = math.comb(len(scores), size)
    if number <= EXACT:
        parts = np.array(list(itertools.combinations(range(len(scores)), size)))
    else:
        rng = np.random.default_rng(0)
        parts = rng.random((DRAWS, len(scores))).argsort(axis=1)[:, :size]
    total = scores.sum()
    sums = scores[parts].sum(axis=1)
    differences = np.abs(sums / size - (total - sums) / (len(scores) - size))
    seen = abs(np.mean(first) - np.mean(second))
    extreme = int((differences >= seen - 1e-12).sum())
    return extreme / number if number <= EXACT else (1 + extreme) / (1 + DRAWS)


def shown(p: float | None) -> str:
    """Shows p with three digits; a dash if there is none."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjusts p of several tests, so that the chance of any false one is bounded.

    The i-th smallest of n, from 0, becomes (n - i) p, at least what is before it, and
    at most 1.

    Args:
        values: p of each test; None where there is none.

    References:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    known = sorted((p, at) for at, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    least = 0.0
    for place, (p, at) in enumerate(known):
        least = max(least, min(1.0, (len(known) - place) * p))
        adjusted[at] = least
    return adjusted
