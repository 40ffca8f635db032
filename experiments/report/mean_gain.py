"""What randomized positions gain on average, beside what the paper's abstract says."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from experiments.report import published, summaries
from experiments.report.comparison import hindrance, is_of
from experiments.report.levels import base_name
from experiments.report.published import Figure
from experiments.report.summaries import Cell


@dataclasses.dataclass(frozen=True)
class MeanGain:
    """How much the best randomized setting is above the best plain one, on average.

    Attributes:
        ours: mean over tasks, percentage points.
        tasks: number of tasks with both.
        figure: the published mean, over all tasks.
        of: number of tasks of that.
        encodings: titles of those that ours is the best of.
    """

    ours: float
    tasks: int
    figure: Figure
    of: int
    encodings: tuple[str, ...] = ()

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
    gains: list[float] = []
    encodings: dict[str, None] = {}
    for task, group in summaries.by_task(cells).items():
        there = {
            scheme: [
                cell
                for cell in group
                if any(is_of(cell.setting, f) for f in figures if _plain(f, task))
                and base_name(cell.setting.positions) == scheme
                and not hindrance(cell, figure)
            ]
            for scheme in ("consecutive", "randomized")
        }
        if task in of and all(there.values()):
            best = {name: max(c.best for c in some) for name, some in there.items()}
            gains.append(best["randomized"] - best["consecutive"])
            named = [c.setting for some in there.values() for c in some]
            encodings |= dict.fromkeys(s.encoding_title or s.encoding for s in named)
    if not gains:
        return None
    mean = 100 * float(np.mean(gains))
    return MeanGain(mean, len(gains), figure, len(of), tuple(encodings))


def _plain(figure: Figure, task: str) -> bool:
    return figure.task == task and figure.positions in ("consecutive", "randomized")
