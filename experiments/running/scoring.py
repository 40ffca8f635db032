"""Scores of a trained model as rows of the results store, and back."""

import dataclasses
import functools
import operator
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from rich.console import Console

from experiments.building.checks import Evaluation
from experiments.evaluation_sets.content import FixedSet
from experiments.results import places
from experiments.results import store as results
from experiments.results.store import ResultsWriter
from experiments.running import processes
from experiments.running.progress import Bar
from ropejax.evaluation import LengthScore, evaluate
from ropejax.evaluation_places import PlaceScores
from ropejax.nn import TransformerSpec
from ropejax.sharding import Sharding
from ropejax.tasks import Batch, Task
from ropejax.typing import Params


@dataclasses.dataclass(frozen=True)
class Scoring:
    """A model, and how it is scored.

    Attributes:
        model: how the model is made.
        task: what it is scored on.
        evaluation: positions, lengths, and numbers of samples.
        labels: fields of every row: run_id, step, and the test-time settings.
        sets: fixed evaluation sets by length; fresh examples are drawn if None.
        sharding: the mesh that it is scored on; None for one device.
        by_place: whether to count at each place of the answer too.
    """

    model: TransformerSpec
    task: Task
    evaluation: Evaluation
    labels: Mapping[str, Any]
    sets: Mapping[int, FixedSet] | None = None
    sharding: Sharding | None = None
    by_place: bool = False

    def set_hash(self, length: int) -> str | None:
        """Returns the hash of the set that a length is scored on; None if fresh."""
        return self.sets[length].sha256 if self.sets else None

    def row(self, one: LengthScore) -> dict[str, Any]:
        """Returns a length's row of the results store: counts, and how they came."""
        return {
            **row(one),
            "perplexity": one.perplexity if self.task.in_place else None,
            **self._labels(one.length),
        }

    def place_row(self, one: LengthScore) -> dict[str, Any]:
        """Returns its row of kind "place": counts by place, and how they came."""
        lists = {name: getattr(one.places, name) for name in places.COLUMNS}
        return {
            "length": one.length,
            "rows": one.rows,
            "in_place": self.task.in_place,
            **places.stored(lists),
            **self._labels(one.length),
        }

    def _labels(self, length: int) -> dict[str, Any]:
        return {
            **self.labels,
            "test_max_length": self.evaluation.lengths[-1],
            "position_draws": self.evaluation.draws,
            "eval_seed": self.evaluation.seed,
            "set_hash": self.set_hash(length),
        }

    def on_the_same_examples(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a row's examples and positions are those of this scoring."""
        length = row["length"]
        fixed = row.get("set_hash") is not None
        if fixed != bool(self.sets) or (
            length in self.evaluation.lengths
            and row.get("set_hash") != self.set_hash(length)
        ):
            return False
        evaluation = self.evaluation
        return (row["rows"], row.get("position_draws"), row.get("eval_seed")) == (
            evaluation.samples,
            evaluation.draws,
            evaluation.seed,
        )

    def examples(self, length: int, bucket: int) -> Batch:
        """Returns the examples of a length's set, padded to a bucket."""
        return self.sets[length].batch(self.task, bucket)


def score(
    scoring: Scoring,
    params: Params,
    folder: pathlib.Path,
    writer: ResultsWriter,
    console: Console,
) -> dict[int, LengthScore]:
    """Scores the lengths that have no row yet, appends rows, and returns all scores.

    A row is on disk as soon as its length is done, so that an interrupted evaluation
    goes on where it was. Several processes score what the first one has not.
    """
    evaluation = scoring.evaluation
    known = processes.as_the_first(_known_rows(scoring, folder))
    scores = {one["length"]: from_row(one) for one in known}
    missing = [length for length in evaluation.lengths if length not in scores]
    total = len(evaluation.lengths)
    with Bar("score", total, len(scores), console=console) as bar:
        start = time.perf_counter()

        def on_length(one: LengthScore) -> None:
            nonlocal start
            now = time.perf_counter()
            writer.evaluation([scoring.row(one) | {"wall_time_s": now - start}])
            if one.places is not None:
                writer.write("place", **scoring.place_row(one))
            start = now
            scores[one.length] = one
            bar.show(
                len(scores),
                f"length {one.length}  accuracy {one.accuracy:.3f}  "
                f"input-blind {one.input_blind:.3f}{perplexity(scoring, one)}",
            )

        if missing:
            evaluate(
                scoring.model,
                params,
                scoring.task,
                evaluation.positions,
                missing,
                samples=evaluation.samples,
                draws=evaluation.draws,
                seed=evaluation.seed,
                buckets=evaluation.buckets,
                on_length=on_length,
                on_bucket=lambda bucket: bar.show(len(scores), compiling(bucket)),
                examples=scoring.examples if scoring.sets else None,
                sharding=scoring.sharding,
                by_place=scoring.by_place,
            )
    return dict(sorted(scores.items()))


def known_scores(scoring: Scoring, folder: pathlib.Path) -> dict[int, LengthScore]:
    """Returns the scores that the results already have for the same evaluation."""
    return {row["length"]: from_row(row) for row in _known_rows(scoring, folder)}


def _known_rows(scoring: Scoring, folder: pathlib.Path) -> list[dict[str, Any]]:
    """The counts that the results have, by place too where those are asked for."""
    kinds = ["evaluation", *["place"] * scoring.by_place]
    run_ids = [scoring.labels["run_id"]]
    try:
        tables = results.read_kinds(folder, kinds, run_ids=run_ids)
    except FileNotFoundError:
        return []
    by_kind = [
        {
            one["length"]: {name: one[name] for name in _COUNTS[kind]}
            for one in tables[kind].to_pylist()
            if one["length"] in scoring.evaluation.lengths
            and scoring.on_the_same_examples(one)
            and all(one.get(name) == value for name, value in scoring.labels.items())
        }
        for kind in kinds
    ]
    lengths = set.intersection(*map(set, by_kind))
    return [
        functools.reduce(operator.or_, (rows[n] for rows in by_kind)) for n in lengths
    ]


def without_other_examples(rows: pa.Table, scoring: Scoring) -> pa.Table:
    """Leaves out scores of the same run and settings on other examples.

    Scores in other settings stay: they stand beside these.
    """
    labels = scoring.labels.items()
    kept = [
        scoring.on_the_same_examples(one)
        or any(one.get(name) != value for name, value in labels)
        for one in rows.to_pylist()
    ]
    return rows.filter(pa.array(kept, pa.bool_()))


def compiling(bucket: int) -> str:
    """Returns what a bar says until the program of a bucket has given something."""
    return f"compiling for lengths to {bucket}"


def perplexity(scoring: Scoring, one: LengthScore) -> str:
    """Returns `  perplexity 3.14` for tasks on text, nothing for others."""
    return f"  perplexity {one.perplexity:.4g}" if scoring.task.in_place else ""


def row(one: LengthScore) -> dict[str, Any]:
    """Returns the counts of a length under the names of the results store."""
    return {
        "length": one.length,
        "correct": one.correct,
        "tokens": one.scored,
        "exact": one.exact,
        "rows": one.rows,
        "loss": one.mean_loss,
        "outputs": one.outputs,
        "input_blind": one.input_blind,
    }


_COUNTS = {
    "evaluation": (
        *("length", "loss", "outputs", "correct", "tokens", "exact", "rows"),
        "input_blind",
    ),
    "place": ("first_place", *places.COLUMNS.values()),
}
"""Columns of each kind of rows that hold what was counted."""


def from_row(one: Mapping[str, Any]) -> LengthScore:
    """Returns the counts that a row of the results store holds.

    Args:
        one: of kind "evaluation"; with the columns of kind "place", by place too.
    """
    by_place = None
    if "first_place" in one:
        by_place = PlaceScores(**places.counted(one), rows=one["rows"])
    return LengthScore(
        length=one["length"],
        loss=one["loss"] * one["outputs"],
        outputs=one["outputs"],
        correct=one["correct"],
        scored=one["tokens"],
        exact=one["exact"],
        rows=one["rows"],
        blind_correct=round(one["input_blind"] * one["tokens"]),
        places=by_place,
    )
