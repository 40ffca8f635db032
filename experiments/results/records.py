"""Figures of cells, runs and curves as plain records, for CSV and JSON.

Shares are numbers from 0 to 1; what is not known is None (JSON null, empty in CSV).
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report.levels import by_level
from experiments.report.statistics import interval_of
from experiments.report.summaries import (
    Cell,
    RunSummary,
    Setting,
    by_task,
    perplexity_of,
    settings_of,
    spread_of,
)


def _names(item: RunSummary | Cell) -> dict[str, Any]:
    setting = item.setting
    return {
        "task": item.task,
        "task_title": item.task_title,
        "encoding": setting.encoding,
        "positions": setting.positions,
        "test_encoding": setting.test_encoding,
        "test_positions": setting.test_positions,
        "title": setting.title,
        "config": setting.config,
        "task_options": setting.task_options,
        "study": setting.study,
        "group": setting.group,
    }


def cell_records(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """List the figures of each cell, for CSV and JSON; what is not known is None."""
    return [_known(_cell_record(cell)) for cell in cells]


def _cell_record(cell: Cell) -> dict[str, Any]:
    first, score = cell.chosen[0], cell.spreads["score"]
    lengths = sorted(int(run.numbers["longest"]) for run in cell.chosen)
    return _names(cell) | {
        "runs": len(cell.runs),
        "seeds": cell.seeds,
        "learning_rate": first.learning_rate,
        "step": first.step,
        "train_max_length": first.train_max,
        "test_max_length": first.test_max,
        "test_lengths": len(first.test_lengths),
        "best": cell.best,
        "mean": score.mean,
        "std": score.std,
        "low": score.low,
        "high": score.high,
        "interval": score.interval,
        "input_blind": cell.spreads["input_blind"].mean,
        "in_range": cell.spreads["in_range"].mean,
        "in_range_input_blind": cell.spreads["in_range_input_blind"].mean,
        "exact_match": cell.spreads["exact_match"].mean,
        "best_exact_match": cell.best_of("exact_match"),
        "longest_90_min": lengths[0],
        "longest_90_max": lengths[-1],
        "perplexity": cell.perplexity,
    }


def run_records(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """List the figures of each run, for CSV and JSON; what is not known is None."""
    return [
        _known(
            {"run_id": run.run_id}
            | _names(run)
            | {
                "seed": run.seed,
                "learning_rate": run.learning_rate,
                "step": run.step,
                "train_max_length": run.train_max,
                "test_max_length": run.test_max,
                "test_lengths": len(run.test_lengths),
            }
            | {name: run.numbers[name] for name in run.numbers if name != "nats"}
            | {"perplexity": perplexity_of(run.numbers["nats"])}
        )
        for run in runs
    ]


def point_records(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """List how scores depend on learning rate and seed, one record a rate of a cell."""
    return [
        _known(_point_record(cell, *key, runs))
        for cell in cells
        for key, runs in cell.points.items()
    ]


def _point_record(
    cell: Cell, rate: float | None, variant: str, runs: Sequence[RunSummary]
) -> dict[str, Any]:
    scores = [run.numbers["score"] for run in runs]
    spread = spread_of(runs, "score")
    return _names(cell) | {
        "learning_rate": rate,
        "variant": variant,
        "chosen": runs[0] in cell.chosen,
        "seeds": len({run.seed for run in runs}),
        "mean": spread.mean,
        "std": spread.std,
        "low": spread.low,
        "high": spread.high,
        "interval": spread.interval,
        "lowest": min(scores),
        "highest": max(scores),
    }


def table_records(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """List the paper's table: a record a task, columns for each setting."""
    settings = settings_of(cells)
    rows = []
    for level, group in by_level(cells).items():
        for task, row in by_task(group).items():
            there = {cell.setting: cell for cell in row}
            names = {"level": level, "task": task, "task_title": row[0].task_title}
            blind = {"input_blind": row[0].spreads["input_blind"].mean}
            rows.append(_known(names | blind | _columns(settings, there)))
    return rows


def _columns(
    settings: Sequence[Setting], cells: Mapping[Setting, Cell]
) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for setting in settings:
        cell = cells.get(setting)
        spread = cell.spreads["score"] if cell else None
        record |= {
            f"{setting.label}: best": cell.best if cell else None,
            f"{setting.label}: mean": spread.mean if spread else None,
            f"{setting.label}: low": spread.low if spread else None,
            f"{setting.label}: high": spread.high if spread else None,
            f"{setting.label}: interval": spread.interval if spread else None,
        }
    return record


def curve_records(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """List accuracy by length of each cell, one record a length.

    Of one run there is no interval.
    """
    return [
        _names(cell)
        | {"length": length, "mean": mean, "runs": runs}
        | (dict.fromkeys(("low", "high")) if runs < 2 else {"low": low, "high": high})
        | {"interval": interval_of(runs)}
        | {"input_blind": cell.blind_curve[length]}
        | {"perplexity": cell.perplexity_curve.get(length)}
        for cell in cells
        for length, (mean, low, high, runs) in cell.curve.items()
    ]


def _known(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in record.items()
    }


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Format records that share their names as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
