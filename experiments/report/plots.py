"""Pictures of accuracy by length and of training, as papers print them."""

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from experiments.report import statistics, summaries
from experiments.report.plot_style import (
    GREY,
    STYLE,
    line_panels,
    line_styles,
    name_axes,
)
from experiments.report.plot_style import save as save
from experiments.report.summaries import Cell


@matplotlib.rc_context(STYLE)
def accuracy_by_length(cells: Sequence[Cell]) -> Figure:
    """Draw accuracy against length: a panel a task, a line a setting.

    Lines are means over the chosen runs of a cell; bands are bootstrap 95% intervals of
    the mean. Where lengths go beyond 100, a point averages neighbouring lengths (up to
    200 two, up to 500 five), never across the longest training length. The training
    lengths are shaded; the dotted line is the best input-blind predictor.
    """
    settings = summaries.settings_of(cells)
    styles = line_styles(settings)
    tasks = summaries.by_task(cells)
    others = [
        Line2D([], [], color=GREY, linestyle=":", label="input-blind"),
        Patch(color="0.9", lw=0, label="training lengths"),
    ]
    band = "95% interval over seeds" if _several_runs(cells) else ""
    figure, panels = line_panels(len(tasks), styles, others, band)
    lowest = 1.0
    for group, axes in zip(tasks.values(), panels, strict=True):
        axes.set_title(group[0].task_title)
        axes.axvspan(0, group[0].chosen[0].train_max, color="0.9", lw=0, zorder=0)
        for cell in group:
            shift = settings.index(cell.setting) / len(settings)
            curves = [_thinned(run.accuracy, run.train_max) for run in cell.chosen]
            curve = statistics.curve_over_runs(curves)
            ends = np.array(list(curve.values())).T[:3]
            _line(axes, list(curve), ends, styles[cell.setting], shift)
            lowest = min(lowest, *ends[1], *cell.blind_curve.values())
        blind = group[0].blind_curve
        axes.plot(blind.keys(), blind.values(), ":", color=GREY, lw=1.1, zorder=5)
        axes.set_xlim(0, 1.01 * max(n for cell in group for n in cell.curve))
    panels[0].set_ylim(max(0.0, math.floor(10 * lowest - 0.5) / 10), 1.03)
    name_axes(panels, "input length", "token accuracy")
    return figure


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


def _several_runs(cells: Sequence[Cell]) -> bool:
    return any(len(cell.chosen) > 1 for cell in cells)


def _line(axes: Axes, x: Sequence, y: tuple, style: Mapping, shift: float) -> None:
    """Draw a mean with a band; `shift` in 0..1 keeps the markers of lines apart."""
    mean, low, high = y
    axes.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)
    every = max(1, len(x) // 6)
    axes.plot(x, mean, markevery=(int(shift * every), every), **style)


@matplotlib.rc_context(STYLE)
def learning_curves(training: pa.Table, cells: Sequence[Cell], metric: str) -> Figure:
    """Draw `metric` ("loss" or "accuracy") against step: a panel a task.

    Lines are means over the chosen runs of a cell at the steps that all of them have,
    averaged over 1/100 of the run; bands reach from the lowest run to the highest.
    """
    settings = summaries.settings_of(cells)
    styles = line_styles(settings)
    tasks = summaries.by_task(cells)
    band = "lowest to highest seed" if _several_runs(cells) else ""
    figure, panels = line_panels(len(tasks), styles, [], band)
    logged = _by_run(training, metric)
    for group, axes in zip(tasks.values(), panels, strict=True):
        axes.set_title(group[0].task_title)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        for cell in group:
            shift = settings.index(cell.setting) / len(settings)
            runs = [logged[r.run_id] for r in cell.chosen if r.run_id in logged]
            if runs and set.intersection(*map(set, runs)):
                steps, values = _smooth(runs)
                ends = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
                _line(axes, steps, ends, styles[cell.setting], shift)
        axes.set_xlim(left=0)
    if metric == "accuracy":
        panels[0].set_ylim(top=1.03)
    else:
        panels[0].set_ylim(bottom=0)
    names = {"loss": "training loss (nats)", "accuracy": "training accuracy"}
    name_axes(panels, "step", names[metric])
    return figure


def _by_run(training: pa.Table, metric: str) -> dict[str, dict[int, float]]:
    runs: dict[str, dict[int, float]] = {}
    columns = (training[name].to_pylist() for name in ("run_id", "step", metric))
    for run_id, step, value in zip(*columns, strict=True):
        if value is not None:
            runs.setdefault(run_id, {})[step] = value
    return runs


def _smooth(runs: Sequence[Mapping[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Average the steps that all runs have over up to 100 parts of equal length."""
    steps = np.array(sorted(set.intersection(*(set(run) for run in runs))))
    values = np.array([[run[step] for step in steps] for run in runs])
    part = np.ceil(steps * 100 / max(steps[-1], 1)).astype(int)
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    count = np.diff([*starts, len(steps)])
    mean = lambda x: np.add.reduceat(x, starts, axis=-1) / count
    return mean(steps), mean(values)
