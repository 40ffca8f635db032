"""Figures of cells, runs and curves as plain records, for CSV and JSON.

Shares are numbers from 0 to 1; what is not known is None (JSON null, empty in CSV).
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.summaries import Cell, RunSummary


def _names(item: RunSummary | Cell) -> dict[str, Any]:
    setting = item.setting
    return {
        "task": item.task,
        "task_title": item.task_title,
        "encoding": setting.encoding,
        "positions": setting.positions,
        "test_encoding": setting.test_encoding,
        "test_positions": setting.test_positions,
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
        "input_blind": cell.spreads["input_blind"].mean,
        "in_range": cell.spreads["in_range"].mean,
        "in_range_input_blind": cell.spreads["in_range_input_blind"].mean,
        "exact_match": cell.spreads["exact_match"].mean,
        "longest_90_min": lengths[0],
        "longest_90_max": lengths[-1],
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
            | run.numbers
        )
        for run in runs
    ]


def curve_records(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """List accuracy by length of each cell, one record a length."""
    return [
        _names(cell)
        | {"length": length, "mean": mean, "low": low, "high": high, "runs": runs}
        | {"input_blind": cell.blind_curve[length]}
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
