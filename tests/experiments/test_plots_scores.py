"""Pictures of scores show the figures that the tables have."""

import numpy as np
import pytest

from experiments.report import plots, plots_scores, statistics
from tests.experiments.evaluation_rows import cells_of, scored


def _study():
    """Two tasks of two levels; one setting has two seeds at each of two rates."""
    groups = [
        scored(
            *(f"r{seed}{rate}", right + 10 * seed),
            seed=seed,
            learning_rate=rate,
            positions="randomized",
            task="bucket_sort",
            task_title="Bucket Sort",
        )
        for rate, right in ((1e-4, 60), (3e-4, 80))
        for seed in (0, 1)
    ]
    other = {"task": "even_pairs", "task_title": "Even Pairs", "input_blind": 0.2}
    return cells_of(*groups, scored("p", 40, learning_rate=1e-4, **other))


def test_the_heatmap_shows_scores_and_colours_the_gain_over_the_baseline():
    axes = plots_scores.score_heatmap(_study()).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts[:6] == ["20.0", "40.0", "–", "50.0", "–", "85.0"]
    colours = axes.images[0].get_array().filled(np.nan)
    nan = np.nan
    np.testing.assert_allclose(colours, [[nan, 0.25, nan], [nan, nan, 0.7]], atol=1e-12)
    # regular before context-sensitive
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == ["Even Pairs", "Bucket Sort"]
    # what all have stands above
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["input-blind", "consecutive", "randomized"]
    assert texts[-1] == "RoPE"


def test_wide_groups_of_columns_have_their_scheme_above():
    cells = cells_of(
        *(
            scored(
                f"{positions}{i}",
                50,
                encoding=f"e{i}",
                encoding_title=f"E{i}",
                positions=positions,
            )
            for positions in ("consecutive", "randomized")
            for i in range(3)
        )
    )
    axes = plots_scores.score_heatmap(cells).axes[0]
    assert [text.get_text() for text in axes.texts][-2:] == [
        *("consecutive", "randomized"),
    ]
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["input-blind", *["E0", "E1", "E2"] * 2]


@pytest.mark.parametrize("long", [1, 8])
def test_no_name_is_cut_off_however_long(long):
    named = {"positions": "randomized", "positions_title": "randomized " * long}
    cells = cells_of(
        scored("a", 50, encoding_title="A name of an encoding", **named),
        scored("b", 50, encoding="alibi", encoding_title="Another name"),
    )
    figure = plots_scores.score_heatmap(cells)
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    assert min(label.get_window_extent().x0 for label in labels) >= 0
    assert min(label.get_window_extent().y0 for label in labels) >= 0


def test_names_with_dollar_signs_are_no_formulas():
    names = {"encoding_title": r"2$ or $\foo$", "task_title": "$x", "positions": "$_$"}
    cells = cells_of(scored("a", 50, **names), scored("b", 60, encoding="alibi"))
    for draw in (plots_scores.score_heatmap, plots_scores.seed_sensitivity):
        draw(cells).draw_without_rendering()  # a formula that cannot be read raises
    plots.accuracy_by_length(cells).draw_without_rendering()


def _means(axes, marker):
    points = [line for line in axes.lines if line.get_marker() == marker]
    return [line.get_xdata()[0] for line in points]


def test_every_run_and_the_interval_of_each_learning_rate_are_drawn():
    figure = plots_scores.learning_rate_sensitivity(_study())
    even, bucket = figure.axes[:2]
    assert [axes.get_title() for axes in (even, bucket)] == [
        *("Even Pairs", "Bucket Sort"),
    ]
    ticks = [line for line in bucket.lines if line.get_marker() == "|"]
    shown = [list(line.get_xdata()) for line in ticks]
    np.testing.assert_allclose(shown, [[60, 70], [80, 90]])
    np.testing.assert_allclose(_means(bucket, "o"), [65])
    np.testing.assert_allclose(_means(bucket, "s"), [85])
    bars = [line.get_xdata() for line in bucket.lines if line.get_linewidth() == 1.4]
    assert len(bars) == 2
    low, high = statistics.bootstrap_interval([0.6, 0.7])
    np.testing.assert_allclose(bars[0], [100 * low, 100 * high])
    (blind,) = [line for line in bucket.lines if line.get_linestyle() == ":"]
    assert blind.get_xdata() == pytest.approx([50, 50])
    # of one run there is no interval
    np.testing.assert_allclose(_means(even, "o"), [40])
    assert not [line for line in even.lines if line.get_linewidth() == 1.4]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [
        "learning rate 0.0001: mean, range",
        *("learning rate 0.0003", "one run", "input-blind"),
    ]


def test_the_seeds_of_the_best_rate_and_the_best_run_are_drawn():
    figure = plots_scores.seed_sensitivity(_study())
    bucket = figure.axes[1]
    (ticks,) = [line for line in bucket.lines if line.get_marker() == "|"]
    np.testing.assert_allclose(ticks.get_xdata(), [80, 90])
    np.testing.assert_allclose(_means(bucket, "D"), [85])
    np.testing.assert_allclose(_means(bucket, "*"), [90])
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["consecutive", "randomized"]
    assert figure.legends[0].get_title().get_text() == "RoPE"
    assert ticks.get_ydata()[0] == 1  # the row of its setting
    (star,) = [line for line in bucket.lines if line.get_marker() == "*"]
    assert star.get_ydata()[0] < 1  # above what it would cover


def test_the_best_run_needs_no_star_where_there_is_one_rate():
    figure = plots_scores.seed_sensitivity(cells_of(scored("a", 50), scored("b", 60)))
    assert not _means(figure.axes[0], "*")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["mean, range", "one run", "input-blind"]
