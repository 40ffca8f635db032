"""From rows of the store to what is compared: a summary a run, and a cell of runs.

A *setting* is what a column of a table or a line of a picture stands for. A *cell* is
the runs of one task in one setting: seeds, and learning rates. Its best score is over
all of them, as published; its mean is over the seeds at the learning rate whose mean
is highest.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments import results_schema, statistics


@dataclasses.dataclass(frozen=True, order=True)
class Setting:
    """What is compared; sorts as tables do: plain positions before others.

    `study` is empty where all runs are of one study. Titles are for show only.
    """

    study: str
    group: str
    positions: str
    encoding: str
    test_positions: str
    test_encoding: str
    positions_title: str = dataclasses.field(default="", compare=False)
    encoding_title: str = dataclasses.field(default="", compare=False)

    @property
    def order(self) -> tuple:
        """The key to sort settings by."""
        plain = self.positions != "consecutive", self.encoding != "none"
        return self.study, self.group, plain[0], self.positions, plain[1], self

    @property
    def variant(self) -> str:
        """All but the encoding, for people: `randomized, tested with consecutive`."""
        parts = [self.positions_title or self.positions]
        if self.test_positions != self.positions:
            parts.append(f"tested with {self.test_positions}")
        if self.test_encoding != self.encoding:
            parts.append(f"tested as {self.test_encoding}")
        return ", ".join([*parts, *filter(None, (self.group, self.study))])

    @property
    def label(self) -> str:
        """The whole, for people: `RoPE, randomized`."""
        return f"{self.encoding_title or self.encoding}, {self.variant}"


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """The last evaluation of a run in one test setting.

    Attributes:
        accuracy: token accuracy by length.
        exact_match: share of sequences with every token right, by length.
        input_blind: accuracy of the best input-blind predictor, by length.
        samples: numbers of sequences a length, and of position draws, that occur.
    """

    run_id: str
    task: str
    task_title: str
    task_order: int
    setting: Setting
    seed: int
    learning_rate: float | None
    step: int
    train_max: int
    test_max: int
    accuracy: dict[int, float]
    exact_match: dict[int, float]
    input_blind: dict[int, float]
    samples: tuple[tuple[int, ...], tuple[int, ...]]

    @functools.cached_property
    def test_lengths(self) -> tuple[int, ...]:
        """The evaluated lengths of the score, train_max + 1 .. test_max."""
        return tuple(n for n in self.accuracy if self.train_max < n <= self.test_max)

    def over_test(self, by_length: Mapping[int, float]) -> float:
        """Average over the lengths of the score; NaN if none was evaluated."""
        if not self.test_lengths:
            return float("nan")
        return statistics.score(by_length, self.train_max, self.test_max)

    def in_range(self, by_length: Mapping[int, float]) -> float:
        """Average over the training lengths; NaN if none was evaluated."""
        if min(by_length) > self.train_max:
            return float("nan")
        return statistics.in_range_accuracy(by_length, self.train_max)

    @functools.cached_property
    def numbers(self) -> dict[str, float]:
        """The figures of the run, as in tables."""
        return {
            "score": self.over_test(self.accuracy),
            "input_blind": self.over_test(self.input_blind),
            "in_range": self.in_range(self.accuracy),
            "in_range_input_blind": self.in_range(self.input_blind),
            "exact_match": self.over_test(self.exact_match),
            "longest": statistics.longest_length(self.accuracy),
        }


@dataclasses.dataclass(frozen=True)
class Cell:
    """The runs of one task in one setting."""

    task: str
    task_title: str
    task_order: int
    setting: Setting
    runs: tuple[RunSummary, ...]

    @functools.cached_property
    def best(self) -> float:
        """Highest score over seeds and learning rates, as published; NaN if none."""
        return _spread(self.runs, "score").best

    @functools.cached_property
    def chosen(self) -> tuple[RunSummary, ...]:
        """The runs at the learning rate with the highest mean score (the lowest such).

        Runs without a learning rate are together.
        """
        at: dict[float | None, list[RunSummary]] = {}
        for run in sorted(self.runs, key=lambda run: run.learning_rate or 0.0):
            at.setdefault(run.learning_rate, []).append(run)
        return tuple(max(at.values(), key=_mean_score))

    @property
    def seeds(self) -> int:
        """Number of different seeds among the chosen runs."""
        return len({run.seed for run in self.chosen})

    @functools.cached_property
    def spreads(self) -> dict[str, statistics.Spread]:
        """The figures of `RunSummary.numbers` over the chosen runs."""
        return {name: _spread(self.chosen, name) for name in self.chosen[0].numbers}

    @functools.cached_property
    def curve(self) -> dict[int, tuple[float, float, float, int]]:
        """Accuracy by length over the chosen runs: mean, low, high, runs."""
        return statistics.curve_over_runs([run.accuracy for run in self.chosen])

    @functools.cached_property
    def blind_curve(self) -> dict[int, float]:
        """Input-blind accuracy by length, averaged over the chosen runs."""
        curves = [run.input_blind for run in self.chosen]
        return {n: v[0] for n, v in statistics.curve_over_runs(curves).items()}


_UNKNOWN = statistics.Spread(float("nan"), None, None, None, float("nan"), 0)


def _spread(runs: Sequence[RunSummary], name: str) -> statistics.Spread:
    """Spread of a figure over those of `runs` that have it."""
    values = [run.numbers[name] for run in runs]
    known = [value for value in values if not np.isnan(value)]
    return statistics.spread(known) if known else _UNKNOWN


def _mean_score(runs: Sequence[RunSummary]) -> float:
    mean = _spread(runs, "score").mean
    return -1.0 if np.isnan(mean) else mean


def summarize_runs(evaluation: pa.Table | Iterable[Mapping[str, Any]]) -> list:
    """Summarize each run in each of its test settings, at its last step.

    Args:
        evaluation: rows of kind "evaluation", as `results.read` gives them, or as
            mappings with the same names.

    Returns:
        A `RunSummary` each, in the order of tables.
    """
    if not isinstance(evaluation, pa.Table):
        rows = [results_schema.new_row("evaluation", row) for row in evaluation]
        tables = [results_schema.to_table(rows)]
        evaluation = results_schema.concatenate(tables, "evaluation")
    keys = ["run_id", "test_encoding", "test_positions"]
    table = evaluation.sort_by([(k, "ascending") for k in [*keys, "step", "length"]])
    first = np.ones(len(table), bool)
    first[1:] = False
    for column in (table[key].to_numpy() for key in keys):
        first[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(first).tolist()
    studies = len(set(table["study"].to_pylist()))
    ends = [*starts[1:], len(table)]
    runs = [
        _summarize(table.slice(start, end - start), studies > 1)
        for start, end in zip(starts, ends, strict=True)
    ]
    return sorted(runs, key=lambda r: (_task_key(r), r.setting.order, r.seed, r.run_id))


def _summarize(table: pa.Table, show_study: bool) -> RunSummary:
    table = table.filter(pc.equal(table["step"], pc.max(table["step"])))
    first = table.slice(0, 1).to_pylist()[0]
    column = {
        name: table[name].to_numpy(zero_copy_only=False)
        for name in ("length", "correct", "tokens", "exact", "rows", "input_blind")
    }
    length, tokens = column["length"], column["tokens"]
    ratio = statistics.ratio_by_length
    return RunSummary(
        run_id=first["run_id"],
        task=first["task"],
        task_title=first["task_title"] or first["task"],
        task_order=2**31 if first["task_order"] is None else first["task_order"],
        setting=Setting(
            study=(first["study"] or "") if show_study else "",
            group=first["group"] or "",
            positions=first["positions"],
            encoding=first["encoding"],
            test_positions=first["test_positions"],
            test_encoding=first["test_encoding"],
            positions_title=first["positions_title"] or "",
            encoding_title=first["encoding_title"] or "",
        ),
        seed=first["seed"],
        learning_rate=first["learning_rate"],
        step=first["step"],
        train_max=first["train_max_length"],
        test_max=pc.max(table["test_max_length"]).as_py() or int(length.max()),
        accuracy=ratio(length, column["correct"], tokens),
        exact_match=ratio(length, column["exact"], column["rows"]),
        input_blind=ratio(length, column["input_blind"] * tokens, tokens),
        samples=(_values(table["rows"]), _values(table["position_draws"])),
    )


def _values(column: pa.ChunkedArray) -> tuple[int, ...]:
    return tuple(sorted(pc.unique(column.drop_null()).to_pylist()))


def _task_key(summary: RunSummary | Cell) -> tuple:
    return summary.task_order, summary.task_title, summary.task


def group_cells(runs: Sequence[RunSummary]) -> list[Cell]:
    """Group runs by task and setting, in the order of tables."""
    groups: dict[tuple[str, Setting], list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((run.task, run.setting), []).append(run)
    cells = [
        Cell(task, group[0].task_title, group[0].task_order, setting, tuple(group))
        for (task, setting), group in groups.items()
    ]
    return sorted(cells, key=lambda cell: (_task_key(cell), cell.setting.order))


def by_task(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Group cells by task, in their order."""
    tasks: dict[str, list[Cell]] = {}
    for cell in cells:
        tasks.setdefault(cell.task, []).append(cell)
    return tasks


def settings_of(cells: Sequence[Cell]) -> list[Setting]:
    """List the settings of `cells`, in the order of tables."""
    return sorted({cell.setting for cell in cells}, key=lambda setting: setting.order)
