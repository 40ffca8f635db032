"""What randomized positions gain on each task, over the best with consecutive ones.

Both are chosen by their best run, as published tables choose; beside that stands the
difference of their means over seeds, with its interval.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.report import significance, statistics, tables
from experiments.report.levels import base_name, in_order
from experiments.report.summaries import Cell


@dataclasses.dataclass(frozen=True)
class Gain:
    """The best plain and the best randomized setting of a task.

    Attributes:
        plain: the cell with consecutive positions whose best run is highest.
        randomized: the same with randomized positions.
        low: lower end of the bootstrap 95% interval of the difference of their means;
            None where one of them has one run only.
        high: its upper end.
        p: of a permutation test of that difference (`significance`); likewise None.
    """

    plain: Cell
    randomized: Cell
    low: float | None
    high: float | None
    p: float | None = None

    @property
    def interval(self) -> str | None:
        """What `low` and `high` are: the range where there are few runs."""
        cells = self.randomized, self.plain
        return statistics.interval_of(*(len(_scores(cell)) or 1 for cell in cells))

    @property
    def best(self) -> float:
        """Difference of the best scores."""
        return self.randomized.best - self.plain.best

    @property
    def mean(self) -> float:
        """Difference of the mean scores, each at its best learning rate."""
        plain, randomized = self.plain.spreads, self.randomized.spreads
        return randomized["score"].mean - plain["score"].mean


def gains(cells: Sequence[Cell]) -> list[Gain]:
    """Compares, on each task that has both, randomized with consecutive positions.

    Both are of one study, trained for the same steps to the same length, and scored
    over the same lengths. Models that are tested at other positions than they were
    trained at are left aside, and so are recurrent networks.
    """
    best: dict[tuple, dict[str, Cell]] = {}
    for cell in in_order(cells):
        setting, run = cell.setting, cell.runs[0]
        if setting.test_positions != setting.positions or np.isnan(cell.best):
            continue
        if setting.is_recurrent:  # no model without positions gains from others
            continue
        trained = cell.task, setting.study, setting.group, run.step, run.train_max
        schemes = best.setdefault((*trained, run.test_max, run.test_lengths), {})
        scheme = base_name(setting.positions)
        if scheme not in schemes or cell.best > schemes[scheme].best:
            schemes[scheme] = cell
    return [
        _gain(schemes["consecutive"], schemes["randomized"])
        for schemes in best.values()
        if schemes.keys() >= {"consecutive", "randomized"}
    ]


def _gain(plain: Cell, randomized: Cell) -> Gain:
    scores = [_scores(cell) for cell in (randomized, plain)]
    low = high = None
    if min(map(len, scores)) > 1:
        low, high = statistics.difference_interval(*scores)
    p = significance.permutation_p(*scores)
    return Gain(plain, randomized, low, high, p)


def _scores(cell: Cell) -> list[float]:
    return [run.numbers["score"] for run in cell.chosen if run.test_lengths]


HEAD = (
    *("Task", "Input-blind", "Best plain", "Score", "Best randomized", "Score"),
    *("Gain of the best", "Gain of the mean", "p"),
)


def text_rows(rows: Sequence[Gain]) -> list[list[str]]:
    """Lists gains for people, in percentage points; names are in `HEAD`."""
    return [
        [
            row.plain.task_title,
            tables.input_blind([row.plain, row.randomized]),
            row.plain.setting.label,
            tables.best_and_mean_text(row.plain),
            row.randomized.setting.label,
            tables.best_and_mean_text(row.randomized),
            tables.signed(row.best),
            tables.signed_with_interval(row.mean, row.low, row.high),
            significance.shown(row.p),
        ]
        for row in rows
    ]


def records(rows: Sequence[Gain]) -> list[dict[str, Any]]:
    """Lists gains for CSV and JSON, as shares."""
    return [
        {
            "task": row.plain.task,
            "plain": row.plain.setting.label,
            "plain_best": row.plain.best,
            "plain_mean": row.plain.spreads["score"].mean,
            "randomized": row.randomized.setting.label,
            "randomized_best": row.randomized.best,
            "randomized_mean": row.randomized.spreads["score"].mean,
            "gain_of_best": row.best,
            "gain_of_mean": row.mean,
            "low": row.low,
            "high": row.high,
            "interval": row.interval,
            "p": row.p,
        }
        for row in rows
    ]
