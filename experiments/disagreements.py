"""What a reader of a table should be told: that runs of one cell are not alike."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from experiments.summaries import Cell, RunSummary

# Config fields in which the runs of a cell may differ.
_FREE = {
    *("seed", "learning_rate", "workdir", "run_id", "name", "study", "group"),
    *("log_every", "save_every", "keep", "steps_per_dispatch"),
}


def disagreements(cells: Sequence[Cell], run_rows: pa.Table) -> list[str]:
    """Name whatever makes the runs of a cell hard to compare, one line each.

    Args:
        cells: the runs, grouped.
        run_rows: rows of kind "run", all of them (`latest=False`).

    Returns:
        Lines for people; none if all is well.
    """
    rows = run_rows.select(["run_id", "config", "store"]).to_pylist()
    configs = {row["run_id"]: _flat(json.loads(row["config"])) for row in rows}
    lines = _shared_names(rows)
    for cell in cells:
        where = f"{cell.task_title}, {cell.setting.label}"
        lines += [f"{where}: {line}" for line in _in_cell(cell, configs)]
    return lines


def _in_cell(cell: Cell, configs: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    runs = cell.runs
    facts = {
        "steps trained": [str(run.step) for run in runs],
        "longest training length": [str(run.train_max) for run in runs],
        "test lengths": [describe_lengths(run.test_lengths) for run in runs],
        "sequences a length": [run.samples[0] for run in runs],
        "position draws": [run.samples[1] for run in runs],
    }
    known = [configs[run.run_id] for run in runs if run.run_id in configs]
    if len(known) == len(runs):
        names = dict.fromkeys(name for config in known for name in config)
        for name in names:
            if name.rpartition(".")[2] not in _FREE:
                facts[f"config {name}"] = [str(c.get(name, "unset")) for c in known]
    for name, values in facts.items():
        if len(set(values)) > 1:
            yield f"runs differ in {name}: {_who(values, runs)}"
    if none := [run for run in runs if not run.test_lengths]:
        yield f"no evaluation beyond the training lengths: {_list(none)}"
    for run in runs:
        if run.test_lengths and run.test_lengths[-1] < run.test_max:
            yield (
                f"{run.run_id} is evaluated to length {run.test_lengths[-1]} of "
                f"{run.test_max}: its score is of those alone"
            )
    twice: dict[tuple, list[RunSummary]] = {}
    for run in runs:
        twice.setdefault((run.seed, run.learning_rate), []).append(run)
    for (seed, _), same in twice.items():
        if len(same) > 1:
            yield f"seed {seed} has {len(same)} runs: {_list(same)}"


def _who(values: Sequence, runs: Sequence[RunSummary]) -> str:
    groups: dict[Any, list[RunSummary]] = {}
    for value, run in zip(values, runs, strict=True):
        groups.setdefault(value, []).append(run)
    return "; ".join(
        f"{_show(value)} ({_list(some)})" for value, some in groups.items()
    )


def _show(value: tuple | str) -> str:
    return ", ".join(map(str, value)) or "unset" if isinstance(value, tuple) else value


def _list(runs: Sequence[RunSummary], at_most: int = 3) -> str:
    names = [run.run_id for run in runs]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(config, dict):
        return {prefix: config}
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}.{name}" if prefix else name)
    return flat


def _shared_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Find run ids that belong to different configs in different folders."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row["run_id"], {})[row["store"]] = row["config"]
    return [
        f"run {run_id} has different configs in {' and '.join(sorted(stores))}: two "
        "runs under one name, of which the latest rows are counted"
        for run_id, stores in found.items()
        if len(set(stores.values())) > 1
    ]


def describe_lengths(lengths: Sequence[int]) -> str:
    """Describe sorted lengths: `41..500`, or `41..500 (24 of 460)` with gaps."""
    if not lengths:
        return "none"
    whole = lengths[-1] - lengths[0] + 1
    gaps = "" if len(lengths) == whole else f" ({len(lengths)} of {whole})"
    return f"{lengths[0]}..{lengths[-1]}{gaps}"
