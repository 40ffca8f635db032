"""Pictures of accuracy by length, of scores, and of training, as papers print them.

A line's colour and marker tell the encoding, its dashes the position scheme (and
whatever else the setting says), so that lines are told apart without colour too. The
colours are those of Okabe and Ito (2008), chosen for colour-blind readers. Figures are
made without pyplot: no global state, no display.
"""

import itertools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from experiments import statistics, summaries
from experiments.summaries import Cell, Setting

_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p")
_GREY = "#666666"
_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "lines.markeredgewidth": 0,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "ropejax",
}


def line_styles(settings: Sequence[Setting]) -> dict[Setting, dict]:
    """Choose colour, marker and dashes of each setting; no two are alike.

    Solid lines are for the first scheme that is not plain, dashed ones for the plain.
    Where all have one encoding, colours and markers tell the schemes apart too.
    """
    encodings = sorted({s.encoding for s in settings}, key=lambda e: (e != "none", e))
    variants = sorted({_variant(setting) for setting in settings})
    plain = [v for v in variants if v[0] == "consecutive"]
    others = [v for v in variants if v[0] != "consecutive"]
    variants = others[:1] + plain + others[1:]
    styles = {}
    for setting in settings:
        dashes = variants.index(_variant(setting))
        look = encodings.index(setting.encoding) if len(encodings) > 1 else dashes
        styles[setting] = {
            "color": _COLOURS[look % len(_COLOURS)],
            "marker": _MARKERS[look % len(_MARKERS)],
            "linestyle": _dashes(dashes),
        }
    return styles


def _variant(setting: Setting) -> tuple:
    same = setting.test_encoding == setting.encoding
    tested = setting.test_positions, "" if same else setting.test_encoding
    return (setting.positions, *tested, setting.group, setting.study)


def _dashes(number: int) -> str | tuple:
    few = "-", (0, (5, 2)), (0, (6, 1.5, 1, 1.5)), (0, (2, 1)), (0, (8, 2, 2, 2))
    return few[number] if number < len(few) else (0, (number, 1, 1, 1, 1, 1))


@matplotlib.rc_context(_STYLE)
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
        Line2D([], [], color=_GREY, linestyle=":", label="input-blind"),
        Patch(color="0.9", lw=0, label="training lengths"),
    ]
    band = "95% interval over seeds" if _several_runs(cells) else ""
    figure, panels = _panels(len(tasks), styles, others, band)
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
        axes.plot(blind.keys(), blind.values(), ":", color=_GREY, lw=1.1, zorder=5)
        axes.set_xlim(0, 1.01 * max(n for cell in group for n in cell.curve))
    panels[0].set_ylim(max(0.0, math.floor(10 * lowest - 0.5) / 10), 1.03)
    _name_axes(panels, "input length", "token accuracy")
    return figure


def _thinned(by_length: Mapping[int, float], train_max: int) -> dict[float, float]:
    """Average neighbouring lengths, so that about 100 points are left."""
    width = math.ceil(max(by_length) / 100)
    parts: dict[tuple[bool, int], list[int]] = {}
    for length in by_length:
        beyond = length > train_max
        part = (length - 1 - train_max * beyond) // width
        parts.setdefault((beyond, part), []).append(length)
    return {
        float(np.mean(part)): float(np.mean([by_length[length] for length in part]))
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


@matplotlib.rc_context(_STYLE)
def score_heatmap(cells: Sequence[Cell]) -> Figure:
    """Draw the mean score of every task and setting as a coloured table.

    The number is the score in percent. The colour is how much of what lies between the
    input-blind predictor and a perfect score was gained, (score - blind) / (1 - blind),
    so that tasks can be compared; the first column is the input-blind score itself.
    """
    settings = summaries.settings_of(cells)
    tasks = summaries.by_task(cells)
    gain = np.full((len(tasks), 1 + len(settings)), np.nan)
    text = [["–"] * (1 + len(settings)) for _ in tasks]
    for row, group in enumerate(tasks.values()):
        for cell in group:
            column = 1 + settings.index(cell.setting)
            score, blind = (cell.spreads[n].mean for n in ("score", "input_blind"))
            gain[row, column] = (score - blind) / (1 - blind) if blind < 1 else np.nan
            text[row][column] = "–" if math.isnan(score) else f"{100 * score:.1f}"
            text[row][0] = "–" if math.isnan(blind) else f"{100 * blind:.1f}"
    size = 2.6 + 0.46 * (1 + len(settings)), max(2.1, 1.5 + 0.27 * len(tasks))
    figure = Figure(figsize=size)
    axes = figure.add_subplot()
    colours = matplotlib.colormaps["cividis"].with_extremes(bad="white")
    shown = axes.imshow(gain, cmap=colours, vmin=0, vmax=1, aspect="auto")
    for row, column in np.ndindex(gain.shape):
        dark = gain[row, column] < 0.5
        axes.text(
            *(column, row, text[row][column]),
            ha="center",
            va="center",
            fontsize=7,
            color="white" if dark else "black",
        )
    names = ["input-blind", *(setting.label for setting in settings)]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_xticks(np.arange(-0.5, len(names)), minor=True)
    axes.set_yticks(range(len(tasks)), [g[0].task_title for g in tasks.values()])
    axes.set_yticks(np.arange(-0.5, len(tasks)), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(shown, ax=axes, extend="min", shrink=0.9, pad=0.02)
    bar.set_label("gain over\ninput-blind")
    bar.set_ticks([0, 0.5, 1])
    bar.outline.set_visible(False)
    return figure


@matplotlib.rc_context(_STYLE)
def learning_curves(training: pa.Table, cells: Sequence[Cell], metric: str) -> Figure:
    """Draw `metric` ("loss" or "accuracy") against step: a panel a task.

    Lines are means over the chosen runs of a cell at the steps that all of them have,
    averaged over 1/100 of the run; bands reach from the lowest run to the highest.
    """
    settings = summaries.settings_of(cells)
    styles = line_styles(settings)
    tasks = summaries.by_task(cells)
    band = "lowest to highest seed" if _several_runs(cells) else ""
    figure, panels = _panels(len(tasks), styles, [], band)
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
    _name_axes(panels, "step", names[metric])
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


def _panels(
    number: int, styles: Mapping[Setting, Mapping], others: Sequence[Artist], band: str
) -> tuple[Figure, Sequence[Axes]]:
    """Lay out panels that share an ordinate, with one legend for all."""
    columns = math.ceil(math.sqrt(number))
    rows = math.ceil(number / columns)
    lines = [Line2D([], [], label=s.label, **style) for s, style in styles.items()]
    others = list(others)
    if band:
        others.append(Patch(color=lines[0].get_color(), alpha=0.3, lw=0, label=band))
    panel = (4.2, 2.8) if number == 1 else (2.2, 1.75)
    width, height = columns * panel[0], rows * panel[1]
    longest = max(len(handle.get_label()) for handle in lines + others)
    name_width = 0.6 + 0.06 * longest  # inches, about
    legend_columns, handles = 1, lines + others
    beside = columns < 3 and len(lines) > 4
    if beside:
        size = width + name_width, max(height, 0.16 * len(handles) + 0.2)
    else:
        fitting = max(1, int(width / name_width))
        legend_columns, handles = _legend(lines, others, list(styles), fitting)
        size = width, height + 0.15 * math.ceil(len(handles) / legend_columns) + 0.1
    figure = Figure(figsize=size)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.flatten()[number:]:
        axes.set_axis_off()
    where = "outside right upper" if beside else "outside lower center"
    figure.legend(handles=handles, loc=where, ncols=legend_columns)
    return figure, grid.flatten()[:number]


def _legend(
    lines: list[Artist], others: list[Artist], settings: list[Setting], columns: int
) -> tuple[int, list[Artist]]:
    """Order a legend (it fills columns downwards): a column a scheme, if that fits."""
    groups = [
        [lines[settings.index(setting)] for setting in same]
        for _, same in itertools.groupby(settings, _variant)
    ]
    if len(groups) == 1 or len(groups) >= columns or min(map(len, groups)) < 3:
        handles = lines + others
        return min(columns, len(handles)), handles
    longest = max(map(len, groups))
    blank = Line2D([], [], linestyle="none", label=" ")
    padded = [group + [blank] * (longest - len(group)) for group in [*groups, others]]
    return len(padded), [handle for group in padded for handle in group]


def _name_axes(panels: Sequence[Axes], xlabel: str, ylabel: str) -> None:
    for axes in panels:
        place = axes.get_subplotspec()
        if place.is_last_row():
            axes.set_xlabel(xlabel)
        if place.is_first_col():
            axes.set_ylabel(ylabel)


@matplotlib.rc_context(_STYLE)
def save(figure: Figure, path: str | os.PathLike, formats: Sequence[str]) -> list:
    """Write `figure` to `path` with each suffix of `formats`; return the paths.

    The files of the same figure are the same: no date is written.
    """
    paths = []
    for suffix in formats:
        paths.append(pathlib.Path(f"{os.fspath(path)}.{suffix}"))
        dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(paths[-1], dpi=200, metadata=dates.get(suffix))
    return paths
