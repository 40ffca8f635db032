"""What a study lacks: lengths of a run, runs of a cell, cells of the table."""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from experiments import lengths as lengths_as_text
from experiments.report.comparable import listed, ranges
from experiments.report.run_configs import Flat
from experiments.report.summaries import (
    Cell,
    RunSummary,
    Setting,
    by_task,
    settings_of,
)
from experiments.running.workdir import STUDY


@dataclasses.dataclass(frozen=True)
class Gap:
    """A cell with fewer runs than others of its task in its study.

    Attributes:
        cell: which.
        have: number of its runs.
        of: number of different pairs of seed and learning rate that they have.
        lacks: seeds that are missing, by learning rate.
    """

    cell: Cell
    have: int
    of: int
    lacks: Mapping[float | None, tuple[int, ...]]

    def __str__(self) -> str:
        what = "; ".join(
            f"seed {ranges(seeds)}"
            + ("" if rate is None else f" at learning rate {rate:g}")
            for rate, seeds in self.lacks.items()
        )
        where = f"{self.cell.task_title}, {self.cell.setting.label}"
        return f"{where}: {self.have} of {self.of} runs; lacks {what}"


def missing_runs(
    cells: Sequence[Cell], awaited: Container[tuple[str, Setting]] | None = None
) -> list[Gap]:
    """Finds cells that lack a seed or learning rate which others of their task have.

    Tasks are apart, since a study may train each in its own way; and so are studies,
    their parts, and settings that have no learning rate in common: a recurrent network
    has its own. Of one rate, all seeds of the task are looked for.

    Args:
        cells: what there is.
        awaited: tasks with settings that sweeps have more runs of; None: nobody knows.
    """
    parts: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        part = cell.task, cell.setting.study, cell.setting.group
        parts.setdefault(part, []).append(cell)
    gaps = []
    for group in parts.values():
        seeds = {run.seed for cell in group for run in cell.runs}
        for alike in _of_common_rates(group):
            everything = set().union(*map(_pairs, alike))
            if len({rate for rate, _ in everything}) == 1:
                everything |= {(rate, seed) for rate, _ in everything for seed in seeds}
            gaps += [
                _gap(cell, everything)
                for cell in alike
                if everything > _pairs(cell)
                and (awaited is None or (cell.task, cell.setting) in awaited)
            ]
    order = {id(cell): at for at, cell in enumerate(cells)}
    return sorted(gaps, key=lambda gap: order[id(gap.cell)])


def _pairs(cell: Cell) -> set[tuple[float | None, int]]:
    return {(run.learning_rate, run.seed) for run in cell.runs}


def _of_common_rates(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Groups cells such that those of two groups have no learning rate in common."""
    groups: list[tuple[set[float | None], list[Cell]]] = []
    for cell in cells:
        rates = {rate for rate, _ in _pairs(cell)}
        joined = [one for one in groups if one[0] & rates]
        groups = [one for one in groups if not one[0] & rates]
        members = [member for _, some in joined for member in some]
        groups.append((rates.union(*(of for of, _ in joined)), [*members, cell]))
    return [members for _, members in groups]


def _gap(cell: Cell, everything: set[tuple[float | None, int]]) -> Gap:
    there = _pairs(cell)
    lacks: dict[float | None, list[int]] = {}
    for rate, seed in sorted(
        everything - there, key=lambda pair: (pair[0] or 0, pair[1])
    ):
        lacks.setdefault(rate, []).append(seed)
    named = {rate: tuple(seeds) for rate, seeds in lacks.items()}
    return Gap(cell, len(there), len(everything), named)


def missing_cells(
    cells: Sequence[Cell], awaited: Container[tuple[str, Setting]] | None = None
) -> list[str]:
    """Names the tasks that a setting has no run on, a line a setting.

    Args:
        cells: what there is.
        awaited: tasks with settings that sweeps have runs of; None: nobody knows.
    """
    tasks = by_task(cells)
    lines = []
    for setting in settings_of(cells):
        absent = [
            group[0].task_title
            for task, group in tasks.items()
            if all(cell.setting != setting for cell in group)
            and (awaited is None or (task, setting) in awaited)
        ]
        if absent:
            lines.append(f"{setting.label}: no run on {listed(absent, at_most=20)}")
    return lines


def missing_lengths(cells: Sequence[Cell], configs: Mapping[str, Flat]) -> list[str]:
    """Names the lengths of the score that a run's config asks for and that have no row.

    A run scored at other lengths than its config says, by `experiments.evaluate`, is
    held to the longest of those alone.
    """
    lines = []
    for cell in cells:
        groups: dict[tuple[int, ...], list[RunSummary]] = {}
        for run in cell.runs:
            absent = _absent(run, configs.get(run.run_id, {}))
            if absent:
                groups.setdefault(absent, []).append(run)
        lines += [
            f"{cell.task_title}, {cell.setting.label}: no score at {len(absent)} of "
            f"the lengths asked for, {ranges(absent)} ({listed(runs)}); the score is "
            "over the others"
            for absent, runs in groups.items()
        ]
    return lines


def _absent(run: RunSummary, config: Flat) -> tuple[int, ...]:
    asked = _asked(str(config.get("eval.lengths", "")))
    if not asked or max(asked) != run.test_max:
        asked = (run.test_max,)
    wanted = {n for n in asked if n > run.train_max}
    return tuple(sorted(wanted - run.accuracy.keys()))


@functools.cache
def _asked(text: str) -> tuple[int, ...]:
    try:
        return lengths_as_text.parse(text)
    except ValueError:
        return ()


def without_evaluation(run_rows: pa.Table, evaluated: Container[str]) -> list[str]:
    """Lists the ids of runs that were started and have no evaluation yet."""
    started = dict.fromkeys(run_rows["run_id"].to_pylist())
    return [run_id for run_id in started if run_id not in evaluated]


def of_studies(
    stores: Iterable[pathlib.Path], scored: Container[tuple[str, str]]
) -> list[str]:
    """Says what the folders of studies tell of runs that have no score.

    Args:
        stores: results folders; `study.json` and `failed/` may lie beside one.
        scored: results folder and stored id of each run that has an evaluation.

    Returns:
        A line a study that is not done, and one a run that was given up.
    """
    lines = []
    for store in stores:
        study = _study(store.parent / STUDY)
        order = study.get("order")
        done = {path.stem for path in (store.parent / "done").glob("[!.]*.json")}
        done = done if order is None else done & {*order}
        if len(done) < study.get("runs", 0):
            finished = f"{len(done)} of {study['runs']} runs finished"
            lines.append(f"study {study.get('study')}: {finished}")
        lines += [
            f"given up: {path.stem} ({_last_line(path)})"
            for path in sorted((store.parent / "failed").glob("*.txt"))
            if (str(store), path.stem) not in scored
            and (order is None or path.stem in order)
        ]
    return lines


def _study(path: pathlib.Path) -> dict[str, Any]:
    """What study.json says; nothing if it is not there, or damaged."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _last_line(path: pathlib.Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "no reason noted"
