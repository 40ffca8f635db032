"""Counts by place in the answer of the runs that were scored so, for pictures."""

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from experiments.report import evaluations
from experiments.report.summaries import Cell, RunSummary
from experiments.results import places

FACTS = ("run_id", "test_encoding", "test_positions", "step", "length")
COLUMNS = (
    *(*FACTS, "task", "encoding", "positions", "train_max_length", "in_place"),
    *("rows", "position_draws", "eval_seed", "set_hash"),
    *("first_place", *places.COLUMNS.values()),
)
"""Columns of rows of kind "place" that are looked at."""

POINTS = 40
"""So many points a curve has at most; each adds up neighbouring places."""


@dataclasses.dataclass(frozen=True)
class Places:
    """What one run gave at one length, by place.

    Attributes:
        place: from 1, where each point is; between places where it adds up several.
        accuracy: share of scored symbols that are right; NaN where none is.
        input_blind: that of the best input-blind predictor.
        nats: mean cross-entropy.
        in_place: whether places are of the input itself.
    """

    place: np.ndarray
    accuracy: np.ndarray
    input_blind: np.ndarray
    nats: np.ndarray
    in_place: bool


Key = tuple[str, str, str, int]
ByRun = Mapping[Key, Mapping[int, Places]]


def by_run(table: pa.Table) -> ByRun:
    """Returns, for each run, test setting and step, what it gave by length and place.

    Of several evaluations of one, that counts which `evaluations.counted` chooses among
    those by place. Answers of one symbol, which have no course, are left out.

    Args:
        table: rows of kind "place".
    """
    found: dict[Key, dict[int, Places]] = {}
    if len(table):
        for row in evaluations.counted(table.select(COLUMNS))[0].to_pylist():
            if len(row[places.COLUMNS["outputs"]]) < 2:
                continue
            *run, length = (row[name] for name in FACTS)
            found.setdefault(tuple(run), {})[length] = _places(row)
    return found


def of_run(places_by_run: ByRun, run: RunSummary) -> Mapping[int, Places]:
    """Returns what a run gave by length and place; empty if it was not scored so."""
    test = run.setting.test_encoding, run.setting.test_positions
    return places_by_run.get((run.run_id, *test, run.step), {})


def of_cells(places_by_run: ByRun, cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells that have a run which was scored by place."""
    has = lambda cell: any(of_run(places_by_run, run) for run in cell.chosen)
    return [cell for cell in cells if has(cell)]


def _places(row: Mapping) -> Places:
    own = {name: np.array(row[column]) for name, column in places.COLUMNS.items()}
    width = math.ceil(len(own["outputs"]) / POINTS)
    starts = np.arange(0, len(own["outputs"]), max(1, width))
    sizes = np.diff([*starts, len(own["outputs"])])
    sums = {name: np.add.reduceat(counts, starts) for name, counts in own.items()}
    return Places(
        place=row["first_place"] + starts + (sizes - 1) / 2,
        accuracy=_ratio(sums["correct"], sums["scored"]),
        input_blind=_ratio(sums["blind_correct"], sums["scored"]),
        nats=_ratio(sums["loss"], sums["outputs"]),
        in_place=bool(row["in_place"]),
    )


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
