"""Best randomized against best plain: chosen and subtracted as by hand."""

import itertools

import numpy as np
import pytest

from experiments.report import gains, statistics
from tests.experiments.evaluation_rows import cells_of, scored

pytestmark = pytest.mark.fast


def _cells(*more):
    """Plain 50 and 60, of another encoding 40; randomized 70 and 90."""
    return cells_of(
        scored("a", 50),
        scored("b", 60, seed=1),
        scored("c", 40, encoding="none", encoding_title="None"),
        scored("d", 70, positions="randomized(sort=True)"),
        scored("e", 90, positions="randomized(sort=True)", seed=1),
        *more,
    )


def test_the_gain_is_between_the_best_settings():
    (gain,) = gains.gains(_cells())
    assert gain.plain.setting.encoding == "rope"
    assert gain.best == pytest.approx(0.9 - 0.6)
    assert gain.mean == pytest.approx(0.8 - 0.55)
    text = dict(zip(gains.HEAD[:5], gains.text_rows([gain])[0][:5], strict=True))
    assert text["Best plain"] == "RoPE, consecutive"
    # of 16 pairs of resamples, the lowest differ by 0.1 and the highest by 0.4
    # of the 6 ways to split the four runs in pairs, two differ as much
    shown = gains.text_rows([gain])[0][-3:]
    assert shown == ["+30.0", "+25.0 [+10.0, +40.0]", "0.333"]


def test_models_tested_at_other_positions_do_not_count():
    other = scored("f", 99, positions="randomized", test_positions="evenly_spaced")
    assert gains.gains(_cells(other)) == gains.gains(_cells())
    assert gains.gains(cells_of(scored("a", 50), other)) == []


def test_one_run_has_no_interval():
    (gain,) = gains.gains(
        cells_of(scored("a", 50), scored("b", 40, positions="randomized"))
    )
    assert (gain.low, gain.high) == (None, None)
    assert gains.text_rows([gain])[0][-3:] == ["−10.0", "−10.0", "–"]
    with pytest.raises(ValueError, match="at least two runs, got 2, 1"):
        statistics.difference_interval([0.1, 0.2], [0.3])


def test_the_interval_of_a_difference_is_that_of_all_pairs_of_resamples():
    first, second = [0.0, 1.0, 5.0], [2.0, 3.0]
    differences = [
        np.mean(a) - np.mean(b)
        for a in itertools.product(first, repeat=3)
        for b in itertools.product(second, repeat=2)
    ]
    low, high = statistics.difference_interval(first, second)
    below = np.mean(np.array(differences) < low - 1e-9)
    upto = np.mean(np.array(differences) <= low + 1e-9)
    assert below < 0.025 < upto
    below = np.mean(np.array(differences) < high - 1e-9)
    upto = np.mean(np.array(differences) <= high + 1e-9)
    assert below < 0.975 < upto


def test_both_are_of_one_study_and_of_as_much_training():
    other = scored("f", 99, positions="randomized", step=999)
    assert gains.gains(_cells(other)) == gains.gains(_cells())
    first = scored("g", 50, study="s"), scored("h", 60, study="t")
    second = [scored(r, 70, study=r, positions="randomized") for r in "st"]
    found = gains.gains(cells_of(*first, *second))
    assert [round(gain.best, 6) for gain in found] == [0.2, 0.1]
