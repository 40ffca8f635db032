"""Scores beside those that papers print, and how far each of those is to be trusted.

A score is compared with a figure of the same task, encoding and position scheme. The
difference is given only where both are over the same lengths after training to the same
length; otherwise the remark says what differs. Like the figures, our score is the best
over seeds and learning rates.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.report import published, summaries, tables
from experiments.report.comparable import describe_lengths
from experiments.report.levels import base_name, in_order
from experiments.report.published import Figure
from experiments.report.summaries import Cell, Setting

# The encodings over which the papers take the best Transformer.
_TRANSFORMERS = ("none", "sinusoidal", "transformer_xl", "alibi", "rope")
_AS_PUBLISHED = {"alibi(tie_break=True)"}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A score beside a published figure.

    Attributes:
        task_title: of the task.
        label: of our setting.
        ours: best score, percent.
        runs: number of runs that it is the best of.
        figure: what is published.
        difference: ours - published, percentage points; None if the two cannot be
            compared.
        remark: what differs; empty if nothing that is known.
    """

    task_title: str
    label: str
    ours: float
    runs: int
    figure: Figure
    difference: float | None
    remark: str


def compare(
    cells: Sequence[Cell], figures: Iterable[Figure] | None = None
) -> list[Comparison]:
    """Puts every score beside the figures published for it, in the order of tables.

    Args:
        cells: of any tasks and settings.
        figures: published ones; all that are known if None.
    """
    by_task: dict[str, list[Figure]] = {}
    for figure in published.load() if figures is None else figures:
        by_task.setdefault(figure.task, []).append(figure)
    rows = []
    for task, group in summaries.by_task(in_order(cells)).items():
        for figure in by_task.get(task, []):
            if figure.encoding == "transformer":
                rows += _best_transformer(group, figure)
            else:
                same = [cell for cell in group if _is_of(cell.setting, figure)]
                rows += [_beside(cell, figure) for cell in same]
    return rows


def _is_of(setting: Setting, figure: Figure) -> bool:
    return (
        base_name(setting.encoding) == figure.encoding
        and figure.positions in ("", base_name(setting.positions))
        and setting.test_positions == setting.positions
        and setting.test_encoding == setting.encoding
    )


def _beside(cell: Cell, figure: Figure) -> Comparison:
    ours = 100 * cell.best
    hindrance = _hindrance(cell, figure)
    remarks = [hindrance] if hindrance else list(_differences(cell))
    return Comparison(
        cell.task_title,
        cell.setting.label,
        ours,
        len(cell.runs),
        figure,
        None if hindrance else ours - figure.value,
        "; ".join(remarks),
    )


def _hindrance(cell: Cell, figure: Figure) -> str:
    """Says why the two scores are not of the same thing; empty if they are."""
    first, source = cell.runs[0], figure.source
    if not first.test_lengths:
        return "no score beyond the training lengths here"
    ours = first.train_max, first.test_max
    theirs = source.train_max, source.test_max
    if ours == theirs and first.test_lengths[-1] == source.test_max:
        return ""
    return (
        f"trained to {ours[0]} and scored over {describe_lengths(first.test_lengths)} "
        f"here, trained to {theirs[0]} and scored over {theirs[0] + 1}..{theirs[1]} "
        "there"
    )


def _differences(cell: Cell) -> Iterable[str]:
    setting, first = cell.setting, cell.runs[0]
    own = [
        name
        for name in (setting.encoding, setting.positions)
        if name not in {base_name(name), *_AS_PUBLISHED}
    ]
    own += [setting.config] if setting.config else []
    if own:
        yield f"settings of our own: {', '.join(own)}"
    whole = first.test_max - first.train_max
    if len(first.test_lengths) < whole:
        yield f"scored at {len(first.test_lengths)} of the {whole} lengths"


def _best_transformer(cells: Sequence[Cell], figure: Figure) -> list[Comparison]:
    """Puts our best over the papers' encodings beside their best Transformer."""
    of = {name: dataclasses.replace(figure, encoding=name) for name in _TRANSFORMERS}
    able = [
        cell
        for cell in cells
        if any(_is_of(cell.setting, one) for one in of.values())
        and not np.isnan(cell.best)
    ]
    if not able:
        return []
    best = max(able, key=lambda cell: cell.best)
    row = _beside(best, figure)
    label = f"best of {len(able)}: {row.label}"
    if len(able) == 1:
        label = row.label
    return [
        dataclasses.replace(row, label=label, runs=sum(len(c.runs) for c in able)),
    ]


@dataclasses.dataclass(frozen=True)
class MeanGain:
    """How much the best randomized setting is above the best plain one, on average.

    Attributes:
        ours: mean over tasks, percentage points.
        tasks: number of tasks with both.
        figure: the published mean, over all tasks.
        of: number of tasks of that.
    """

    ours: float
    tasks: int
    figure: Figure
    of: int

    @property
    def difference(self) -> float | None:
        """Ours - published; None where the tasks are not the same."""
        return self.ours - self.figure.value if self.tasks == self.of else None


def mean_gain(
    cells: Sequence[Cell], figures: Iterable[Figure] | None = None
) -> MeanGain | None:
    """Averages best randomized - best consecutive over tasks, as the abstract does.

    Args:
        cells: of any tasks and settings.
        figures: published ones; all that are known if None.

    Returns:
        None if no task has both, or no such figure is known.
    """
    figures = list(published.load() if figures is None else figures)
    figure = next((figure for figure in figures if not figure.task), None)
    of = {f.task for f in figures if f.positions == "randomized"}
    if figure is None:
        return None
    gains = []
    for task, group in summaries.by_task(cells).items():
        scores = {
            scheme: [
                cell.best
                for cell in group
                if any(_is_of(cell.setting, f) for f in figures if _plain(f, task))
                and base_name(cell.setting.positions) == scheme
                and not _hindrance(cell, figure)
            ]
            for scheme in ("consecutive", "randomized")
        }
        if task in of and all(scores.values()):
            gains.append(max(scores["randomized"]) - max(scores["consecutive"]))
    if not gains:
        return None
    return MeanGain(100 * float(np.mean(gains)), len(gains), figure, len(of))


def _plain(figure: Figure, task: str) -> bool:
    return figure.task == task and figure.positions in ("consecutive", "randomized")


HEAD = (
    *("Task", "Setting", "Ours (best)", "Runs", "Published", "Difference"),
    *("Standing", "Source", "Remark"),
)


def text_rows(rows: Sequence[Comparison]) -> list[list[str]]:
    """Lists comparisons for people, one row each; names are in `HEAD`."""
    return [
        [
            row.task_title,
            row.label,
            "–" if np.isnan(row.ours) else f"{row.ours:.1f}",
            str(row.runs),
            f"{row.figure.value:.1f}",
            signed(row.difference),
            row.figure.standing,
            row.figure.reference,
            row.remark,
        ]
        for row in rows
    ]


def signed(difference: float | None) -> str:
    """Shows a difference in percentage points; a dash if there is none."""
    return tables.signed(None if difference is None else difference / 100)


def records(rows: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Lists comparisons for CSV and JSON; what is not known is None."""
    return [_record(row) for row in rows]


def _record(row: Comparison) -> dict[str, Any]:
    return {
        "task": row.figure.task,
        "task_title": row.task_title,
        "setting": row.label,
        "ours_best_percent": None if np.isnan(row.ours) else row.ours,
        "runs": row.runs,
        "published_percent": row.figure.value,
        "difference": row.difference,
        "standing": row.figure.standing,
        "source": row.figure.reference,
        "remark": row.remark,
    }
