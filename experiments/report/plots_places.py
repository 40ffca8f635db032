"""Pictures of scores by place in the answer: a row a task, a panel a length."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatter, MaxNLocator, ScalarFormatter

from experiments.report import by_place, statistics, summaries
from experiments.report.by_place import ByRun, Places
from experiments.report.plot_style import (
    GREY,
    STYLE,
    line_panels,
    line_styles,
    name_axes,
    percent,
    title_panel,
)
from experiments.report.plots import TRAINED, band_label, line_with_band
from experiments.report.summaries import Cell, perplexity_of
from experiments.report.tables import spread_out

LENGTHS = 3
"""Panels of a task at most: about its longest training length, between, its longest."""

Values = Callable[[Places], np.ndarray]


@matplotlib.rc_context(STYLE)
def accuracy_by_place(places: ByRun, cells: Sequence[Cell]) -> Figure:
    """Draw accuracy against the place in the answer: a row a task, a panel a length.

    Lines are means over the chosen runs of a cell, a line a setting; bands are
    bootstrap 95% intervals of the mean; the dotted line is the best input-blind
    predictor. Of long answers, a point adds up neighbouring places.

    Raises:
        ValueError: if no run was scored by place.
    """
    blind = Line2D([], [], color=GREY, linestyle=":", label="input-blind")
    drawn = by_place.of_cells(places, cells)
    accuracy = lambda one: one.accuracy
    figure, panels = _by_place(drawn, cells, places, accuracy, [blind])
    for one in panels:
        known = one.curves(places, lambda one: one.input_blind)
        curve = max(map(statistics.mean_curve, known), key=len)
        one.axes.plot(curve.keys(), curve.values(), ":", color=GREY, lw=1.1, zorder=5)
    axes = [one.axes for one in panels]
    shown = [y for one in axes for line in one.lines for y in line.get_ydata()]
    axes[0].set_ylim(max(-0.03, math.floor(10 * min(shown) - 0.5) / 10), 1.03)
    percent(axes)
    name_axes(axes, "place in the answer", "token accuracy (%)")
    return figure


@matplotlib.rc_context(STYLE)
def perplexity_by_place(places: ByRun, cells: Sequence[Cell]) -> Figure:
    """Draw perplexity against the place in the window, as `accuracy_by_place`.

    Its axis is logarithmic, and so are averages. Places up to the longest training
    length are shaded. Tasks that are not on text are left out.

    Raises:
        ValueError: if none is.
    """
    drawn = [cell for cell in cells if on_text(places, [cell])]
    others = [Patch(color=TRAINED, lw=0, label="training lengths")]
    nats = lambda one: one.nats
    figure, panels = _by_place(drawn, cells, places, nats, others, perplexity_of)
    for one in panels:
        trained = max(run.train_max for cell in one.cells for run in cell.chosen)
        end = min(trained, one.axes.get_xlim()[1])
        one.axes.axvspan(0, end, color=TRAINED, lw=0, zorder=0)
    axes = [one.axes for one in panels]
    axes[0].set_yscale("log")
    axes[0].yaxis.set_major_formatter(ScalarFormatter())
    axes[0].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.6)))
    name_axes(axes, "place in the window", "perplexity")
    return figure


def on_text(places: ByRun, cells: Sequence[Cell]) -> bool:
    """Returns whether places of some run are those of a window of text."""
    runs = [run for cell in cells for run in cell.chosen]
    found = [one for run in runs for one in by_place.of_run(places, run).values()]
    return any(one.in_place for one in found)


@dataclasses.dataclass(frozen=True)
class _Panel:
    """One length of one task.

    Attributes:
        cells: the settings of the task.
        length: the length.
        axes: where it is drawn.
    """

    cells: Sequence[Cell]
    length: int
    axes: Axes

    def curves(self, places: ByRun, values: Values) -> list[list[dict[float, float]]]:
        """Returns, for each setting, a curve a run that was scored at the length."""
        return [
            [
                _known(found[self.length], values)
                for found in (by_place.of_run(places, run) for run in cell.chosen)
                if self.length in found
            ]
            for cell in self.cells
        ]


def _known(one: Places, values: Values) -> dict[float, float]:
    pairs = zip(one.place.tolist(), values(one).tolist(), strict=True)
    return {place: value for place, value in pairs if math.isfinite(value)}


def _by_place(
    drawn: Sequence[Cell],
    cells: Sequence[Cell],
    places: ByRun,
    values: Values,
    others: Sequence[Artist],
    shown: Callable[[float], float] = float,
) -> tuple[Figure, list[_Panel]]:
    """Draws values by place.

    Args:
        drawn: what is drawn: each has a run that was scored by place.
        cells: all that there is, so that lines look alike in all pictures.
        places: what there is by place.
        values: what is drawn of a run at a length.
        others: further entries of the legend.
        shown: turns an averaged value into what is drawn.
    """
    settings = summaries.settings_of(cells)
    if not drawn:
        raise ValueError(
            "nothing here was scored by place; experiments.evaluate --by-place does it."
        )
    styles = line_styles(settings)  # alike in all pictures
    styles = {one: styles[one] for one in summaries.settings_of(drawn)}
    tasks = [
        (group, _lengths(places, group)) for group in summaries.by_task(drawn).values()
    ]
    columns = max(len(lengths) for _, lengths in tasks)
    band = band_label(drawn)
    figure, grid = line_panels(
        columns * len(tasks), styles, others, band, columns=columns
    )
    panels = []
    for row, (group, lengths) in enumerate(tasks):
        own = grid[columns * row : columns * (row + 1)]
        panels += [_Panel(group, *one) for one in zip(lengths, own, strict=False)]
        for axes in own[len(lengths) :]:
            axes.set_axis_off()
    for panel in panels:
        title_panel(panel.axes, f"{panel.cells[0].task_title}, length {panel.length}")
        curves = panel.curves(places, values)
        for cell, known in zip(panel.cells, curves, strict=True):
            curve = statistics.curve_over_runs(known) if any(known) else {}
            if curve:
                ends = np.vectorize(shown)(np.array(list(curve.values())).T[:3])
                at = settings.index(cell.setting), len(settings)
                style = styles[cell.setting]
                line_with_band(panel.axes, list(curve), ends, style, *at)
        # Of runs that diverged no loss is known, and their panel stays empty.
        last = max((x for known in curves for curve in known for x in curve), default=1)
        panel.axes.set_xlim(0, 1.02 * last)
        whole = MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])
        panel.axes.xaxis.set_major_locator(whole)
    return figure, panels


def _lengths(places: ByRun, group: Sequence[Cell]) -> list[int]:
    """A few of the lengths that a task was scored at by place."""
    runs = [run for cell in group for run in cell.chosen]
    known = {length for run in runs for length in by_place.of_run(places, run)}
    return spread_out(sorted(known), max(run.train_max for run in runs), LENGTHS)
