"""Pictures of accuracy by length and of training, as papers print them."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    EngFormatter,
    LogFormatter,
    MaxNLocator,
    ScalarFormatter,
)

from experiments.report import statistics, summaries
from experiments.report.plot_style import (
    GREY,
    STYLE,
    line_panels,
    line_styles,
    name_axes,
    percent,
    title_panel,
)
from experiments.report.plot_style import save as save
from experiments.report.summaries import Cell, RunSummary, Setting, perplexity_of


@matplotlib.rc_context(STYLE)
def accuracy_by_length(cells: Sequence[Cell]) -> Figure:
    """Draw accuracy against length: a panel a task, a line a setting.

    Lines are means over the chosen runs of a cell; bands are bootstrap 95% intervals of
    the mean. Where lengths go beyond 100, a point averages neighbouring lengths (up to
    200 two, up to 500 five), never across the longest training length. The training
    lengths are shaded, in light grey those that only some settings of a task saw; the
    dotted line is the best input-blind predictor.
    """
    blind = Line2D([], [], color=GREY, linestyle=":", label="input-blind")
    figure, panels = _by_length(cells, lambda run: run.accuracy, [blind])
    lowest = 1.0
    for group, axes in zip(summaries.by_task(cells).values(), panels, strict=True):
        curve = _together([cell.blind_curve for cell in group])
        axes.plot(curve.keys(), curve.values(), ":", color=GREY, lw=1.1, zorder=5)
        bands = [low for cell in group for _, low, *_ in cell.curve.values()]
        lowest = min(lowest, *bands, *curve.values())
    panels[0].set_ylim(max(0.0, math.floor(10 * lowest - 0.5) / 10), 1.03)
    percent(panels)
    name_axes(panels, "input length", "token accuracy (%)")
    return figure


@matplotlib.rc_context(STYLE)
def perplexity_by_length(cells: Sequence[Cell]) -> Figure:
    """Draw perplexity against length, as `accuracy_by_length` does accuracy.

    Its axis is logarithmic, and so are averages. Tasks that are not on text are left
    out.

    Raises:
        ValueError: if none is.
    """
    if not any(cell.on_text for cell in cells):
        raise ValueError("perplexity is of tasks on text, of which there are none.")
    figure, panels = _by_length(cells, lambda run: run.nats, [], shown=perplexity_of)
    for axes in panels:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.6)))
    name_axes(panels, "input length", "perplexity")
    return figure


def _by_length(
    cells: Sequence[Cell],
    values: Callable[[RunSummary], Mapping[int, float]],
    others: Sequence[Artist],
    shown: Callable[[float], float] = float,
) -> tuple[Figure, Sequence[Axes]]:
    """Draws values by length: a panel a task, a line and a band a setting.

    Args:
        cells: what there is; those without values are left out.
        values: of a run, by length.
        others: further entries of the legend.
        shown: turns an averaged value into what is drawn.
    """
    settings = summaries.settings_of(cells)
    drawn = [cell for cell in cells if any(map(values, cell.chosen))]
    styles = line_styles(settings)  # alike in all pictures
    styles = {one: styles[one] for one in summaries.settings_of(drawn)}
    tasks = summaries.by_task(drawn)
    others = [*others, Patch(color=TRAINED, lw=0, label="training lengths")]
    trained = {task: _training_lengths(group) for task, group in tasks.items()}
    if any(len(ends) > 2 for ends in trained.values()):
        others.append(Patch(color=_SOME, lw=0, label="of some settings"))
    band = band_label(drawn)
    figure, panels = line_panels(len(tasks), styles, others, band)
    for (task, group), axes in zip(tasks.items(), panels, strict=True):
        title_panel(axes, group[0].task_title)
        for number, (start, end) in enumerate(itertools.pairwise(trained[task])):
            shade = _SOME if number else TRAINED
            axes.axvspan(start, end, color=shade, lw=0, zorder=0)
        for cell in group:
            place = settings.index(cell.setting), len(settings)
            known = [(values(run), run.train_max) for run in cell.chosen if values(run)]
            curve = statistics.curve_over_runs([_thinned(*one) for one in known])
            ends = np.vectorize(shown)(np.array(list(curve.values())).T[:3])
            line_with_band(axes, list(curve), ends, styles[cell.setting], *place)
        axes.set_xlim(0, 1.01 * max(n for cell in group for n in cell.curve))
        whole = MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])
        axes.xaxis.set_major_locator(whole)
    return figure, panels


TRAINED, _SOME = "0.9", "0.955"
"""Greys of the training lengths, and of those of some settings only."""


def _training_lengths(group: Sequence[Cell]) -> list[float]:
    """Where training begins, and its longest lengths in the settings, increasing."""
    runs = [run for cell in group for run in cell.chosen]
    longest = sorted({run.train_max for run in runs})
    shortest = min(run.train_min for run in runs)
    widest = 0.99 * longest[-1] - 1  # a single length can be seen
    return [0 if shortest == 1 else min(shortest - 0.5, widest), *longest]


def _together(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Joins curves of one task over all lengths that any of them has."""
    joined = {}
    for curve in curves:
        joined |= {n: y for n, y in curve.items() if n not in joined}
    return dict(sorted(joined.items()))


def _thinned(by_length: Mapping[int, float], train_max: int) -> dict[float, float]:
    """Average neighbouring lengths, so that about 100 points are left."""
    width = math.ceil(max(by_length) / 100)
    parts: dict[tuple[bool, int], list[int]] = {}
    for length in by_length:
        beyond = length > train_max
        part = (length - 1 - train_max * beyond) // width
        parts.setdefault((beyond, part), []).append(length)
    mean = lambda values: sum(values) / len(values)
    return {
        mean(part): mean([by_length[length] for length in part])
        for part in parts.values()
    }


def band_label(cells: Sequence[Cell]) -> str:
    """Returns what the bands around means are; "" if no mean has one."""
    kind = statistics.intervals_of(len(cell.chosen) for cell in cells)
    return f"{kind} over seeds" if kind else ""


def several_runs(cells: Sequence[Cell]) -> bool:
    """Returns whether a mean over runs is drawn, which has an interval."""
    return any(len(cell.chosen) > 1 for cell in cells)


def line_with_band(
    axes: Axes, x: Sequence, y: tuple, style: Mapping, place: int, of: int
) -> None:
    """Draw a mean with a band: so faint, and its markers so placed, as others need."""
    mean, low, high = y
    faint = 0.6 / max(4, of)
    axes.fill_between(x, low, high, color=style["color"], alpha=faint, lw=0)
    shift = place / of
    every = max(1, len(x) // 6)
    axes.plot(x, mean, markevery=(int(shift * every), every), **style)


@matplotlib.rc_context(STYLE)
def learning_curves(training: pa.Table, cells: Sequence[Cell], metric: str) -> Figure:
    """Draw `metric` ("loss" or "accuracy") against step: a panel a task.

    Lines are means over the chosen runs of a cell at the steps that all of them have,
    averaged over 1/100 of the run; bands reach from the lowest run to the highest.
    Cells whose runs have no such step (they are shorter than `train.log_every`) are
    named in the legend, and a task that has no others gets no panel. A training is
    drawn once, however many ways its models were tested.

    Raises:
        ValueError: if there is nothing to draw; see `any_logged`.
    """
    styles = line_styles(summaries.settings_of(cells))  # alike in all pictures
    cells, tested = _trainings(cells)
    logged = _by_run(training, metric)
    curves = {id(cell): _curves(cell, logged) for cell in cells}
    drawn = [cell for cell in cells if curves[id(cell)] is not None]
    if not drawn:
        raise ValueError(f"no run has logged its {metric}; lower train.log_every.")
    settings = summaries.settings_of(drawn)
    styles = {one: styles[tested[one]] for one in settings}
    tasks = summaries.by_task(drawn)
    band = "lowest to highest seed" if several_runs(drawn) else ""
    absent = [cell for cell in cells if curves[id(cell)] is None]
    others = [Line2D([], [], linestyle="none", label=_not_logged(absent))]
    figure, panels = line_panels(len(tasks), styles, others if absent else [], band)
    for group, axes in zip(tasks.values(), panels, strict=True):
        title_panel(axes, group[0].task_title)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        for cell in group:
            place = settings.index(cell.setting), len(settings)
            steps, values = _smooth(*curves[id(cell)])
            ends = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
            line_with_band(axes, steps, ends, styles[cell.setting], *place)
        axes.set_xlim(left=0)
    if metric == "accuracy":
        panels[0].set_ylim(top=1.03)
        percent(panels)
    else:
        _logarithmic(panels)
    names = {"loss": "training loss (nats)", "accuracy": "training accuracy (%)"}
    name_axes(panels, "training step", names[metric])
    return figure


_LEAST = 1e-4
"""A loss below which curves end: there it is but noise of a model that is right."""


def _logarithmic(panels: Sequence[Axes]) -> None:
    """Makes the ordinate that panels share logarithmic, from `_LEAST` at the least."""
    lines = [line.get_ydata() for axes in panels for line in axes.lines]
    known = [value for y in lines for value in y if 0 < value < math.inf]
    lowest, highest = min(known, default=1.0), max(known, default=1.0)
    panels[0].set_yscale("log", nonpositive="clip")
    panels[0].set_ylim(max(_LEAST, 0.8 * lowest), max(1.5 * highest, 10 * _LEAST))
    if lowest > 0.1:  # less than a decade: numbers that are read at a glance
        panels[0].yaxis.set_major_formatter(ScalarFormatter())
        panels[0].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.6)))


def _trainings(cells: Sequence[Cell]) -> tuple[list[Cell], dict[Setting, Setting]]:
    """Keeps one cell of each training, rather that tested as it was trained.

    Returns:
        The cells, with settings that name no test; and of each setting the one that
        it was made from.
    """
    kept: dict[tuple[str, Setting], Cell] = {}
    tested: dict[Setting, Setting] = {}
    for cell in sorted(cells, key=lambda cell: cell.setting != cell.setting.trained):
        trained = cell.setting.trained
        kept.setdefault((cell.task, trained), cell)
        tested.setdefault(trained, cell.setting)
    there = {id(cell): key[1] for key, cell in kept.items()}
    named = [
        dataclasses.replace(cell, setting=there[id(cell)])
        for cell in cells
        if id(cell) in there
    ]
    return named, tested


def any_logged(training: pa.Table, cells: Sequence[Cell], metric: str) -> bool:
    """Returns whether `learning_curves` would have a line, or a single point."""
    logged = _by_run(training, metric)
    return any(_curves(cell, logged) is not None for cell in cells)


_Curve = tuple[np.ndarray, np.ndarray]  # steps, increasing; a value at each


def _curves(cell: Cell, logged: Mapping[str, _Curve]) -> _Curve | None:
    """Returns the steps that all of a cell's runs have, if any, and a row of values."""
    runs = [logged[run.run_id] for run in cell.chosen if run.run_id in logged]
    if not runs:
        return None
    common = functools.reduce(np.intersect1d, [steps for steps, _ in runs])
    if not len(common):
        return None
    return common, np.array([y[np.searchsorted(x, common)] for x, y in runs])


def _not_logged(cells: Sequence[Cell]) -> str:
    """Names what is not drawn, a line of text each."""
    head = ["nothing logged (diverged, or", "shorter than train.log_every):"]
    names = [f"{cell.task_title}: {cell.setting.label}" for cell in cells]
    more = [f"and {len(names) - 3} more"] if len(names) > 3 else []
    return "\n".join([*head, *names[:3], *more])


def _by_run(training: pa.Table, metric: str) -> dict[str, _Curve]:
    """Finds the logged values of each run, those that are finite."""
    finite = pc.fill_null(pc.is_finite(training[metric]), False)
    known = training.filter(finite)
    ids = known["run_id"].unify_dictionaries().combine_chunks()
    if not pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_encode()
    run, step = ids.indices.to_numpy(), known["step"].to_numpy()
    order = np.lexsort((step, run))
    starts = np.flatnonzero(np.diff(run[order], prepend=-1))
    parts = (
        np.split(values[order], starts[1:])
        for values in (step, known[metric].to_numpy())
    )
    names = pc.take(ids.dictionary, pa.array(run[order][starts])).to_pylist()
    return dict(zip(names, zip(*parts, strict=True), strict=False))


def _smooth(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average over up to 100 parts of equal length."""
    part = np.ceil(steps * 100 / max(steps[-1], 1)).astype(int)
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    count = np.diff([*starts, len(steps)])
    mean = lambda x: np.add.reduceat(x, starts, axis=-1) / count
    return mean(steps), mean(values)
