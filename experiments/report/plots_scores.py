"""Pictures of scores: all of them as a coloured table, and how much a run can matter.

The rows and columns are those of the tables: tasks by their Chomsky level, settings by
their position scheme.
"""

import functools
import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import offset_copy

from experiments.report import levels, statistics, summaries, tables
from experiments.report.naming import named_apart
from experiments.report.plot_style import (
    COLOURS,
    GREY,
    MARKERS,
    STYLE,
    broken,
    plain,
    title_panel,
)
from experiments.report.summaries import Cell, RunSummary, Setting, spread_of

_COLUMN = 0.46  # inches
_LINE = 0.17  # inches of a column that each line of its slanted name takes
_Head = tuple[int, int, str]  # first column, one past the last, name above them


@matplotlib.rc_context(STYLE)
def score_heatmap(cells: Sequence[Cell]) -> Figure:
    """Draw the mean score of every task and setting as a coloured table.

    The number is the score in percent. The colour is how much of what lies between the
    input-blind predictor and a perfect score was gained, (score - blind) / (1 - blind),
    so that tasks can be compared; the first column is the input-blind score itself.
    """
    cells = levels.in_order(cells)
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
        blind_text = tables.input_blind(group)
        text[row][0] = blind_text.replace("–", "–\n") if len(blind_text) > 1 else "–"
    names, heads = _columns(settings)
    names = [broken(name) for name in names]
    lines = [line for name in names for line in name.split("\n")]
    longest = max(map(len, lines))  # they stand at a slant
    column = max(_COLUMN, _LINE * max(1 + name.count("\n") for name in names))
    left = 0.6 + 0.058 * max(len(group[0].task_title) for group in tasks.values())
    reach = [
        0.048 * max(map(len, name.split("\n"))) - column * (1.5 + at)
        for at, name in enumerate(names)
    ]
    width = max(left, *reach) + 1.0 + column * (1 + len(settings))
    height = max(0.6, 0.27 * len(tasks)) + 0.25 + 0.25 * bool(heads) + 0.04 * longest
    figure = Figure(figsize=(width, height))
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
    _name_table(axes, settings, names, [group[0] for group in tasks.values()])
    _name_groups(axes, heads)
    bar = figure.colorbar(shown, ax=axes, extend="min", shrink=0.8, pad=0.02)
    bar.set_label("gain over\ninput-blind")
    bar.set_ticks([0, 0.5, 1])
    bar.outline.set_visible(False)
    return figure


def _columns(settings: Sequence[Setting]) -> tuple[list[str], list[_Head]]:
    """Names columns, and groups of them by what those share, where there is room."""
    names, shared = named_apart(settings)
    if shared:
        return [names[one] for one in settings], [(0, len(settings), shared)]
    variants = [setting.variant for setting in settings]
    groups = _stretches(variants)
    fitting = all(0.065 * len(variants[i]) < _COLUMN * (j - i) for i, j in groups)
    if len(groups) == 1 or not fitting:
        return [names[one] for one in settings], []
    short = [setting.encoding_title or setting.encoding for setting in settings]
    return short, [(start, end, variants[start]) for start, end in groups]


def _name_table(
    axes: Axes,
    settings: Sequence[Setting],
    columns: Sequence[str],
    tasks: Sequence[Cell],
) -> None:
    names = ["input-blind", *columns]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", va="top")
    for label in axes.get_xticklabels():
        label.set_rotation_mode("anchor")  # ends below the middle of its column
    axes.set_xticks(np.arange(-0.5, len(names)), minor=True)
    axes.set_yticks(range(len(tasks)), [plain(cell.task_title) for cell in tasks])
    axes.set_yticks(np.arange(-0.5, len(tasks)), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    for start, _ in _stretches([setting.variant for setting in settings]):
        axes.axvline(start + 0.5, color="white", linewidth=5)
    for start, _ in _stretches([levels.level_of(cell.task) for cell in tasks]):
        axes.axhline(start - 0.5, color="white", linewidth=5)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(tasks) - 0.5, -0.5)


def _name_groups(axes: Axes, heads: Sequence[_Head]) -> None:
    """Writes names over groups of columns."""
    over = functools.partial(offset_copy, axes.get_xaxis_transform(), axes.figure)
    for start, end, name in heads:
        ends = start + 0.6, end + 0.4
        line = {"color": GREY, "lw": 0.8, "clip_on": False}
        axes.plot(ends, [1, 1], transform=over(y=3, units="points"), **line)
        place = sum(ends) / 2, 1
        axes.text(*place, plain(name), ha="center", transform=over(y=6, units="points"))


def _stretches(names: Sequence[str]) -> list[tuple[int, int]]:
    """Find where equal names stand beside each other: first, and one past the last."""
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    return list(zip(starts, [*starts[1:], len(names)], strict=True))


@matplotlib.rc_context(STYLE)
def learning_rate_sensitivity(cells: Sequence[Cell]) -> Figure:
    """Draw every score by learning rate: a panel a task, a row a setting.

    Ticks are runs; the marker is the mean over seeds at one learning rate, the bar its
    bootstrap 95% interval. Where runs differ in more settings, these are pooled here.
    """
    rates = sorted({_rate(run) for cell in cells for run in cell.runs})
    looks = _rate_looks(rates)
    figure, panels = _row_panels(cells, rows_each=max(1, len(rates)), looks=looks)
    for cell, axes, row in panels:
        for place, rate in enumerate(rates):
            runs = [run for run in cell.runs if _rate(run) == rate]
            shift = 0.8 * ((place + 0.5) / len(rates) - 0.5)
            _dots_and_mean(axes, row + shift, runs, looks[rate])
    return figure


@matplotlib.rc_context(STYLE)
def seed_sensitivity(cells: Sequence[Cell]) -> Figure:
    """Draw the scores of the seeds: a panel a task, a row a setting.

    The runs are those of the table's mean: at the learning rate with the highest mean
    over seeds. Ticks are seeds; the marker is their mean, the bar its bootstrap 95%
    interval. Where there are several rates, a star above is the best run over all.
    """
    looks: dict[float | str, dict] = {"mean": {"color": COLOURS[0], "marker": "D"}}
    if any(len(cell.points) > 1 for cell in cells):
        star = {"marker": "*", "ms": 5, "linestyle": "none"}
        looks[_BEST] = {"color": COLOURS[1]} | star
    figure, panels = _row_panels(cells, rows_each=1, looks=looks)
    for cell, axes, row in panels:
        if _BEST in looks:
            axes.plot(100 * cell.best, row - 0.3, **looks[_BEST])
        _dots_and_mean(axes, row, cell.chosen, looks["mean"])
    return figure


_BEST = "best over all learning rates"
_MEAN = 3.2  # size of a marker, which ticks stand out of
_RUN = {"marker": "|", "linestyle": "none", "ms": 7, "mew": 0.8, "alpha": 0.7}


def _rate(run: RunSummary) -> float:
    return -1.0 if run.learning_rate is None else run.learning_rate


def _rate_looks(rates: Sequence[float]) -> dict[float, dict]:
    """Colours from dark to light as the rate grows; markers for readers without."""
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.8, max(2, len(rates))))
    return {
        rate: {
            "color": matplotlib.colors.to_hex(shades[place]),
            "marker": MARKERS[place % len(MARKERS)],
        }
        for place, rate in enumerate(rates)
    }


def _dots_and_mean(
    axes: Axes, y: float, runs: Sequence[RunSummary], look: Mapping
) -> None:
    values = [100 * run.numbers["score"] for run in runs]
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return
    spread = spread_of(runs, "score")
    colour = look["color"]
    if spread.low is not None:
        ends = 100 * spread.low, 100 * spread.high
        axes.plot(ends, [y, y], color=colour, lw=1.4, solid_capstyle="butt")
    axes.plot(known, [y] * len(known), color=colour, **_RUN)
    axes.plot(100 * spread.mean, y, ms=_MEAN, **look)


def _row_panels(
    cells: Sequence[Cell], rows_each: int, looks: Mapping[float | str, Mapping]
) -> tuple[Figure, list[tuple[Cell, Axes, int]]]:
    """Lay out a panel a task with a row a setting, named once at the left.

    Returns:
        The figure, and for each cell its panel and the height of its row.
    """
    cells = levels.in_order(cells)
    settings = summaries.settings_of(cells)
    tasks = list(summaries.by_task(cells).values())
    columns = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3}.get(len(tasks), 5)
    rows = math.ceil(len(tasks) / columns)
    groups = _stretches([setting.variant for setting in settings])
    names, shared = named_apart(settings)
    longest = max(map(len, names.values()))
    height = max(0.9, 0.09 + len(settings) * (0.09 + 0.065 * rows_each))
    size = 0.3 + 0.06 * longest + 1.75 * columns, 0.55 + rows * (height + 0.42)
    figure = Figure(figsize=size)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    placed = []
    for axes, group in zip(grid.flat, tasks, strict=False):
        title_panel(axes, group[0].task_title)
        axes.grid(axis="x", color="0.9", lw=0.6)
        for start, _ in groups[1:] if len(groups) < len(settings) else []:
            axes.axhline(start - 0.5, color="0.6", lw=0.6)
        blind = 100 * group[0].spreads["input_blind"].mean
        axes.axvline(blind, color=GREY, linestyle=":", lw=1.1)
        placed += [(cell, axes, settings.index(cell.setting)) for cell in group]
    for axes in grid.flat[len(tasks) :]:
        axes.set_axis_off()
    grid[0, 0].set_yticks(range(len(settings)), [plain(names[s]) for s in settings])
    grid[0, 0].set_ylim(len(settings) - 0.45, -0.55)
    for place, axes in enumerate(grid.flat[: len(tasks)]):
        axes.tick_params(axis="y", length=0)
        if place + columns >= len(tasks):
            axes.tick_params(axis="x", labelbottom=True)
            axes.set_xlabel("score (%)")
    points = [cell.points.values() for cell in cells]
    kind = statistics.intervals_of(len(runs) for each in points for runs in each)
    _legend(figure, looks, shared, kind)
    return figure, placed


def _legend(
    figure: Figure, looks: Mapping[float | str, Mapping], shared: str, interval: str
) -> None:
    told = "mean" + (f", {interval}" if interval else "")
    handles = [
        Line2D(
            *([], []),
            label=_look_name(name, told, i == 0),
            lw=1.4,
            **{"ms": _MEAN} | look,
        )
        for i, (name, look) in enumerate(looks.items())
    ]
    handles += [
        Line2D([], [], label="one run", color=GREY, **_RUN),
        Line2D([], [], color=GREY, linestyle=":", label="input-blind"),
    ]
    longest = max(len(handle.get_label()) for handle in handles)
    fitting = max(1, int(figure.get_figwidth() / (0.7 + 0.055 * longest)))
    columns = min(fitting, len(handles))
    lines = math.ceil(len(handles) / columns) + bool(shared)
    figure.set_figheight(figure.get_figheight() + 0.16 * (lines - 1))
    where = {"loc": "outside lower center", "title": plain(shared) or None}
    figure.legend(handles=handles, ncols=columns, **where)


def _look_name(name: float | str, mean: str, first: bool) -> str:
    if isinstance(name, str):
        return mean if name == "mean" else name
    rate = "no learning rate" if name < 0 else f"learning rate {name:g}"
    return f"{rate}: {mean}" if first else rate
