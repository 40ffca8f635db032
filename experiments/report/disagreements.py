"""What a reader of a table should be told: that runs of one cell are not alike."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from experiments.report import run_configs
from experiments.report.comparable import listed, ranges
from experiments.report.run_configs import Flat
from experiments.report.summaries import Cell, RunSummary


def disagreements(cells: Sequence[Cell], configs: Mapping[str, Flat]) -> list[str]:
    """Name whatever makes the runs of a cell hard to compare, one line each.

    Args:
        cells: the runs, grouped, those of `comparable.comparable`.
        configs: of runs by their id, flat; may lack some.

    Returns:
        Lines for people; none if all is well.
    """
    return [
        f"{cell.task_title}, {cell.setting.label}: {line}"
        for cell in cells
        for line in _in_cell(cell, configs)
    ]


def _in_cell(cell: Cell, configs: Mapping[str, Flat]) -> Iterable[str]:
    runs = cell.runs
    facts: dict[str, list[Any]] = {
        "sequences a length": [ranges(run.samples[0]) for run in runs],
        "position draws": [ranges(run.samples[1]) for run in runs],
        "examples": [run.examples for run in runs],
        "training lengths": [run.trained_on for run in runs],
    }
    known = [configs[run.run_id] for run in runs if run.run_id in configs]
    if len(known) == len(runs):
        for name in run_configs.differing(known):
            values = [run_configs.shown(config, name) for config in known]
            facts[f"config {name}"] = values
    for name, values in facts.items():
        if len(set(values)) > 1:
            yield f"runs differ in {name}: {_who(values, runs)}"
    if unlike := _unlike_sets(runs):
        yield f"runs are scored on unlike fixed sets at {ranges(unlike)}"
    others: dict[str, list[RunSummary]] = {}
    for run in runs:
        for line in run.others:
            others.setdefault(line, []).append(run)
    for line, some in others.items():
        yield (
            f"scored in another way too, which does not count: {line}; --where shows "
            f"it alone ({listed(some)})"
        )
    if none := [run for run in runs if not run.test_lengths]:
        yield f"no evaluation beyond the training lengths: {listed(none)}"


def _unlike_sets(runs: Sequence[RunSummary]) -> list[int]:
    """Lengths at which two runs stand on fixed sets of unlike content."""
    found: dict[int, set[str | None]] = {}
    for run in runs:
        for length, content in run.sets.items():
            found.setdefault(length, set()).add(content)
    return sorted(n for n, contents in found.items() if len(contents - {None}) > 1)


def _who(values: Sequence[str], runs: Sequence[RunSummary]) -> str:
    groups: dict[str, list[RunSummary]] = {}
    for value, run in zip(values, runs, strict=True):
        groups.setdefault(value, []).append(run)
    return "; ".join(f"{value} ({listed(some)})" for value, some in groups.items())


def extended(run_rows: pa.Table) -> list[str]:
    """Find runs whose `train.steps` was raised under a rate that decays over it.

    Args:
        run_rows: rows of kind "run", all of them in order of time (`latest=False`).
    """
    texts: dict[tuple[str, str], dict[str, None]] = {}
    columns = (run_rows[name].to_pylist() for name in ("store", "run_id", "config"))
    for store, run_id, text in zip(*columns, strict=True):
        texts.setdefault((store, run_id), {}).setdefault(text)
    found: dict[str, list[str]] = {}
    for (_, run_id), several in texts.items():
        configs = [run_configs.parsed(text) for text in several]
        steps = [c["train.steps"] for c in configs if "train.steps" in c]
        decays = configs[-1].get("optim.final_fraction", 1) < 1
        if len(configs) > 1 and decays and len(set(steps)) > 1:
            what = " to ".join(f"{n:,}" for n in dict.fromkeys(steps))
            found.setdefault(what, []).append(run_id)
    return [
        f"{len(runs)} of the runs went on after train.steps was raised, {what}, while "
        "the learning rate decays over train.steps: they are not what so many steps "
        f"from the start give ({listed(sorted(runs))})"
        for what, runs in found.items()
    ]


def in_several_folders(evaluation: pa.Table) -> list[str]:
    """Find runs that were evaluated in several folders, such as copies of a study.

    Args:
        evaluation: rows of kind "evaluation", all of them (`latest=False`).
    """
    folders: dict[str, list[str]] = {}
    for row in evaluation.group_by(["run_id", "store"]).aggregate([]).to_pylist():
        folders.setdefault(row["run_id"], []).append(row["store"])
    groups: dict[tuple[str, ...], list[str]] = {}
    for run_id, stores in folders.items():
        if len(stores) > 1:
            groups.setdefault(tuple(sorted(stores)), []).append(run_id)
    return [
        f"{_runs(len(runs))} evaluations in {' and '.join(stores)}: each counts "
        f"once, with the latest row of each length ({listed(sorted(runs))})"
        for stores, runs in groups.items()
    ]


def _runs(number: int) -> str:
    return "1 run has" if number == 1 else f"{number} runs have"
