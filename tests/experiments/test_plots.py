"""Pictures show the figures that they claim to show, and can be told apart."""

import dataclasses
import itertools
import math

import matplotlib
import numpy as np
import pyarrow as pa
import pytest

from experiments.report import plot_style, plots, summaries

TRAIN_MAX, TEST_MAX = 40, 500
LENGTHS = (1, 20, 40, 41, 250, 500)


def _run(task, encoding, positions, seed, accuracy, blind=0.5):
    return summaries.RunSummary(
        run_id=f"{task}-{encoding}-{positions}-{seed}",
        task=task,
        task_title=task.title(),
        task_order=0,
        setting=summaries.Setting("", "", positions, encoding, positions, encoding),
        seed=seed,
        learning_rate=None,
        step=100,
        train_max=TRAIN_MAX,
        test_max=TEST_MAX,
        accuracy=accuracy,
        exact_match=accuracy,
        input_blind=dict.fromkeys(accuracy, blind),
        samples=((4,), ()),
    )


@pytest.fixture(scope="module")
def cells():
    """Two tasks; rope with two schemes, two seeds each, and none with one seed."""
    runs = [
        _run(task, "rope", positions, seed, dict.fromkeys(LENGTHS, right + 0.1 * seed))
        for task, positions, right in (
            ("copy", "consecutive", 0.5),
            ("copy", "randomized", 0.9),
            ("sort", "consecutive", 0.7),
        )
        for seed in (0, 1)
    ]
    runs.append(_run("copy", "none", "consecutive", 0, dict.fromkeys(LENGTHS, 0.2)))
    return summaries.group_cells(runs)


def _dots(axes):
    return [line for line in axes.lines if line.get_linestyle() == ":"]


def test_long_titles_do_not_reach_into_the_next_panel(cells):
    title = "Addition(order=reversed, widths=zeros, num_hints=24)"
    named = [
        dataclasses.replace(run, task_title=title)
        for cell in cells
        for run in cell.runs
    ]
    figure = plots.accuracy_by_length(summaries.group_cells(named))
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes]
    assert " ".join(figure.axes[0].get_title().split()) == title
    assert boxes[0].x1 < boxes[1].x0


def test_a_panel_a_task_and_a_line_a_setting_with_the_right_numbers(cells):
    figure = plots.accuracy_by_length(cells)
    copy, sort = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["Copy", "Sort"]
    assert (copy.get_xlabel(), copy.get_ylabel()) == (
        "input length",
        "token accuracy (%)",
    )
    lines = [line for line in copy.lines if line not in _dots(copy)]
    shown = {tuple(line.get_ydata().round(9)) for line in lines}
    assert len(lines) == 3
    ticks = copy.yaxis.get_major_formatter()
    assert ticks(0.55) == "55"  # data stay shares
    assert shown == {(0.2,) * 6, (0.55,) * 6, (0.95,) * 6}
    for axes in (copy, sort):
        (blind,) = _dots(axes)
        assert list(blind.get_xdata()) == list(LENGTHS)
        assert set(blind.get_ydata()) == {0.5}
        shaded = axes.patches[0].get_extents().transformed(axes.transData.inverted())
        assert (shaded.x0, shaded.x1) == pytest.approx((0, TRAIN_MAX))
        low, high = axes.get_ylim()
        assert low <= 0.2 - 0.05
        assert high > 1
    band = copy.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.5, 0.6))


def test_the_legend_names_every_line_the_baseline_and_the_shades(cells):
    (legend,) = plots.accuracy_by_length(cells).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("none, consecutive", "rope, consecutive", "rope, randomized"),
        *("input-blind", "training lengths", "range over seeds"),
    ]


@pytest.mark.parametrize("encodings", [1, 6, 30])
def test_no_two_lines_look_alike_even_without_colour(encodings):
    settings = [
        summaries.Setting("", "", positions, f"e{i}", positions, f"e{i}")
        for positions in ("consecutive", "randomized", "shifted")
        for i in range(encodings)
    ]
    styles = plot_style.line_styles(settings)
    looks = {(s["color"], s["marker"], str(s["linestyle"])) for s in styles.values()}
    assert len(looks) == len(settings)
    if encodings <= 11:
        grey = {(s["marker"], str(s["linestyle"])) for s in styles.values()}
        assert len(grey) == len(settings)
    dashes = {s: str(style["linestyle"]) for s, style in styles.items()}
    assert {dashes[s] for s in settings if s.positions == "randomized"} == {"-"}
    assert len(set(dashes.values())) == 3
    if encodings > 1:
        of_one = {styles[s]["color"] for s in settings if s.encoding == "e0"}
        assert len(of_one) == 1


@pytest.mark.parametrize(("encodings", "schemes"), [(2, 5), (5, 2), (4, 4), (3, 4)])
def test_dashes_are_few_however_many_schemes_there_are(encodings, schemes):
    """Up to 12 lines: what there is more of has colours and markers."""
    pairs = itertools.islice(itertools.product(range(schemes), range(encodings)), 12)
    settings = [
        summaries.Setting("", "", f"p{p}", f"e{e}", f"p{p}", f"e{e}") for p, e in pairs
    ]
    styles = plot_style.line_styles(settings)
    looks = [(s["color"], s["marker"], str(s["linestyle"])) for s in styles.values()]
    assert len(set(looks)) == len(settings)
    assert len({dashes for *_, dashes in looks}) <= min(encodings, schemes, 3)
    if min(encodings, schemes) <= 3:
        more = "positions" if schemes > 3 else "encoding"
        marked = {getattr(s, more): styles[s]["marker"] for s in settings}
        assert all(styles[s]["marker"] == marked[getattr(s, more)] for s in settings)


def test_colours_differ_in_lightness_or_hue_for_red_green_blind_readers():
    """Simulated deuteranopia (Machado et al. 2009, severity 1.0), in CIELAB."""
    machado = np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    )
    styles = plot_style.line_styles(
        [summaries.Setting("", "", "p", f"e{i}", "p", f"e{i}") for i in range(7)]
    )
    rgb = np.array([matplotlib.colors.to_rgb(s["color"]) for s in styles.values()])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ machado.T, 0, 1)
    to_xyz = np.array(
        [
            [0.4124, 0.3576, 0.1805],
            [0.2126, 0.7152, 0.0722],
            [0.0193, 0.1192, 0.9505],
        ]
    )
    xyz = np.cbrt(seen @ to_xyz.T / [0.9505, 1.0, 1.089])
    lab = np.stack(
        [116 * xyz[:, 1], 500 * (xyz[:, 0] - xyz[:, 1]), 200 * (xyz[:, 1] - xyz[:, 2])],
        axis=1,
    )
    gaps = [np.linalg.norm(a - b) for a, b in itertools.combinations(lab, 2)]
    assert min(gaps) > 10  # a just noticeable difference is about 2.3


def test_points_average_neighbours_but_never_across_the_training_length():
    by_length = {n: float(n > 42) for n in range(1, 501)}
    points = plots._thinned(by_length, 42)
    assert len(points) == 9 + 92
    assert set(points.values()) == {0.0, 1.0}
    assert max(n for n, value in points.items() if value == 0) == 41.5
    assert min(n for n, value in points.items() if value == 1) == 45
    few = {n: n / 100 for n in range(1, 101)}
    assert plots._thinned(few, 40) == few
    means = plots._thinned({1: 0.0, 2: 1.0, 199: 0.5, 200: 1.0}, 40)
    assert means == {1.5: 0.5, 199.5: 0.75}


def test_learning_curves_average_runs_over_parts_of_the_training(cells):
    steps = range(1, 201)
    rows = [
        {"run_id": run.run_id, "step": step, "loss": step + run.seed, "accuracy": 0.5}
        for cell in cells
        for run in cell.runs
        for step in steps
        if cell.task == "copy"
    ]
    figure = plots.learning_curves(pa.Table.from_pylist(rows), cells, "loss")
    (copy,) = figure.axes  # nothing was logged of the other task: it has no panel
    assert copy.get_title() == "Copy"
    assert len(copy.lines) == 3
    (legend,) = figure.legends
    said = "nothing logged (diverged, or\nshorter than train.log_every):"
    said += "\nSort: rope, consecutive"
    assert said in [text.get_text() for text in legend.get_texts()]
    (alone, *two) = copy.lines
    parts = np.arange(1, 201).reshape(100, 2).mean(axis=1)
    np.testing.assert_allclose(alone.get_xdata(), parts)
    np.testing.assert_allclose(alone.get_ydata(), parts)
    for line in two:
        np.testing.assert_allclose(line.get_ydata(), parts + 0.5)
    assert copy.get_ylabel() == "training loss (nats)"


def test_a_training_is_one_curve_however_many_ways_it_was_tested(cells):
    """The same runs, tested in another way, which comes first in one of the tasks."""
    tested = [
        dataclasses.replace(
            run,
            setting=dataclasses.replace(run.setting, test_positions="evenly_spaced"),
        )
        for cell in cells
        for run in cell.runs
    ]
    both = [run for cell in cells for run in cell.runs if run.task == "copy"] + tested
    rows = [
        {"run_id": run.run_id, "step": 100, "loss": 1.0, "accuracy": 0.5}
        for cell in cells
        for run in cell.runs
    ]
    table = pa.Table.from_pylist(rows)
    figure = plots.learning_curves(table, summaries.group_cells(both), "loss")
    assert [len(axes.lines) for axes in figure.axes] == [3, 1]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:3] == ["none, consecutive", "rope, consecutive", "rope, randomized"]
    other = plots.accuracy_by_length(summaries.group_cells(both))  # looks the same
    curves, scores = (
        {line.get_label(): (line.get_color(), line.get_marker()) for line in handles}
        for handles in (one.legends[0].get_lines() for one in (figure, other))
    )
    assert {name: scores[name] for name in names[:3]} == {
        name: curves[name] for name in names[:3]
    }


def test_learning_curves_of_runs_without_a_step_in_common_are_left_out(cells):
    rows = [
        {"run_id": run.run_id, "step": 1 + run.seed, "loss": 1.0, "accuracy": 0.5}
        for cell in cells
        for run in cell.runs
    ]
    table = pa.Table.from_pylist(rows)
    figure = plots.learning_curves(table, cells, "loss")
    assert [len(axes.lines) for axes in figure.axes] == [1]
    assert plots.any_logged(table, cells, "loss")


def test_losses_of_all_sizes_are_legible_and_noise_of_right_models_is_cut(cells):
    names = {run.run_id: cell.setting for cell in cells for run in cell.runs}
    loss = lambda name, at: 2.0 if "none" in name else [1.0, 1e-2, 1e-9, 0.0][at]
    rows = [(name, at + 1, loss(name, at)) for name in names for at in range(4)]
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("run_id", "step", "loss"), columns, strict=True)))
    axes = plots.learning_curves(table, cells, "loss").axes[0]
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert (low, high) == (1e-4, pytest.approx(3.0))


@pytest.mark.parametrize("words", [1, 30])
@pytest.mark.parametrize("settings", [2, 6])
def test_legends_lie_within_the_picture_however_long_names_are(words, settings):
    runs = [
        _run("copy", f"e{at} {'and more ' * words}", p, 0, dict.fromkeys(LENGTHS, 0.5))
        for at, p in enumerate(["consecutive", "randomized"] * (settings // 2))
    ]
    figure = plots.accuracy_by_length(summaries.group_cells(runs))
    figure.draw_without_rendering()
    box, (legend,) = figure.bbox, figure.legends
    around = legend.get_window_extent()
    assert (around.x0 >= 0, around.y0 >= 0) == (True, True)
    assert (around.x1 <= box.x1, around.y1 <= box.y1) == (True, True)
    tall = figure.axes[0].get_window_extent()
    assert tall.height > 60  # the picture has its room


def test_what_is_not_finite_is_no_value(cells):
    """Models that diverged: such a value would hide a whole curve, or the axis."""
    names = [run.run_id for cell in cells for run in cell.runs]
    rows = [
        {"run_id": name, "step": step, "loss": math.nan if name == names[0] else loss}
        for name in names
        for step, loss in ((1, 1.0), (2, 0.5), (3, math.inf))
    ]
    figure = plots.learning_curves(pa.Table.from_pylist(rows), cells, "loss")
    figure.draw_without_rendering()
    assert all(list(line.get_xdata()) == [1, 2] for line in figure.axes[1].lines)
    none = pa.table({"run_id": names, "step": [1] * len(names), "loss": [math.nan] * 7})
    assert not plots.any_logged(none, cells, "loss")


def test_few_places_of_panels_are_empty():
    assert [plot_style.columns_of(n) for n in (1, 2, 3, 4, 5, 15)] == [1, 2, 3, 2, 3, 5]


def test_nothing_logged_at_all_is_no_picture(cells):
    """Runs shorter than `train.log_every`, together with a run that is not shown."""
    other = {"run_id": "another", "step": 1, "loss": 1.0, "accuracy": 0.5}
    table = pa.Table.from_pylist([other])
    assert not plots.any_logged(table, cells, "loss")
    with pytest.raises(ValueError, match=r"lower train\.log_every"):
        plots.learning_curves(table, cells, "loss")


def test_a_single_logged_step_is_a_visible_point(cells):
    rows = [
        {"run_id": run.run_id, "step": 100, "loss": 1.0, "accuracy": 0.5}
        for cell in cells
        for run in cell.runs
    ]
    figure = plots.learning_curves(pa.Table.from_pylist(rows), cells, "loss")
    for axes in figure.axes:
        for line in axes.lines:
            assert list(line.get_xdata()) == [100]
            assert line.get_marker() in plot_style.MARKERS


def test_what_only_some_settings_of_a_task_have_is_shown_as_theirs():
    """Another longest training length, and a longer test."""
    short = dict.fromkeys((1, 10, 20, 60), 0.9)
    long = dict.fromkeys(LENGTHS, 0.9)
    runs = [
        dataclasses.replace(
            _run("copy", "rope", "consecutive", 0, short), train_max=10, test_max=60
        ),
        _run("copy", "rope", "randomized", 0, long),
    ]
    figure = plots.accuracy_by_length(summaries.group_cells(runs))
    (axes,) = figure.axes
    to_data = axes.transData.inverted()
    spans = [patch.get_extents().transformed(to_data) for patch in axes.patches]
    assert [(s.x0, s.x1) for s in spans] == [
        pytest.approx((0, 10)),
        pytest.approx((10, TRAIN_MAX)),
    ]
    assert len({p.get_facecolor() for p in axes.patches}) == 2
    (blind,) = _dots(axes)
    assert list(blind.get_xdata()) == sorted({*short, *long})
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[-2:] == ["training lengths", "of some settings"]


def test_files_are_written_in_each_format_and_do_not_change(cells, tmp_path):
    signatures = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    written = [
        plot_style.save(plots.accuracy_by_length(cells), tmp_path / name, signatures)
        for name in ("one", "two")
    ]
    for first, second in zip(*written, strict=True):
        assert first.read_bytes().startswith(signatures[first.suffix[1:]])
        assert first.read_bytes() == second.read_bytes()
