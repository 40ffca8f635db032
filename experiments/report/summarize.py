"""From evaluation rows of the store to a summary of each run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.report import evaluations, placing, statistics, titles
from experiments.report.summaries import RunSummary, Setting, task_key
from experiments.results import schema as results_schema

_FACTS = (
    *(*evaluations.RUN, "task", "task_title", "task_order", "study", "group", "title"),
    *("time", "encoding", "encoding_title", "positions", "positions_title"),
    *("seed", "learning_rate", "step", "train_max_length"),
    *("eval_seed", "set_hash"),
)
"""Text and numbers that are one for all rows of an evaluation."""
_COUNTS = (
    *("length", "correct", "tokens", "exact", "rows", "input_blind"),
    *("test_max_length", "position_draws", "train_min_length"),
    *("loss", "perplexity"),
)
COLUMNS = tuple(dict.fromkeys([*_FACTS, *_COUNTS]))
"""Columns of evaluation rows that are looked at."""


def summarize_runs(
    evaluation: pa.Table | Iterable[Mapping[str, Any]],
    sweeps: Iterable[Sequence[str]] = (),
) -> list:
    """Summarize each run in each of its test settings, at its last step.

    Of several evaluations of one, `evaluations.counted` says which counts.

    Args:
        evaluation: rows of kind "evaluation", as `results.read` gives them, or as
            mappings with the same names.
        sweeps: of each study, the ids of its runs in the order of its sweep.

    Returns:
        A `RunSummary` each, in the order of tables.
    """
    if not isinstance(evaluation, pa.Table):
        rows = [results_schema.new_row("evaluation", row) for row in evaluation]
        tables = [results_schema.to_table(rows)]
        evaluation = results_schema.concatenate(tables, "evaluation")
    wanted = evaluation.select(COLUMNS)
    table, starts, others = evaluations.counted(wanted)
    several = len(pc.unique(table["study"])) > 1
    facts = table.select(_FACTS).take(starts).to_pylist()
    columns = {name: _numbers(table[name]) for name in _COUNTS}
    ends = [*starts[1:].tolist(), len(table)][: len(starts)]
    lengths, hashes = (table[name].to_pylist() for name in ("length", "set_hash"))
    runs = [
        _summarize(
            first,
            {name: column[start:end] for name, column in columns.items()},
            several,
            tuple(more),
            dict(zip(lengths[start:end], hashes[start:end], strict=True)),
        )
        for first, start, end, more in zip(
            facts, starts.tolist(), ends, others, strict=True
        )
    ]
    runs = placing.placed(titles.told_apart(titles.shortened(runs)), sweeps)
    return sorted(runs, key=lambda r: (task_key(r), r.setting.order, r.seed, r.run_id))


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """What is not known is -1."""
    return column.fill_null(-1).to_numpy()


def _summarize(
    first: Mapping[str, Any],
    counts: Mapping[str, np.ndarray],
    show_study: bool,
    others: tuple[str, ...],
    sets: Mapping[int, str | None],
) -> RunSummary:
    length, tokens = counts["length"], counts["tokens"]
    ratio = statistics.ratio_by_length
    known = max(int(counts["test_max_length"].max()), 0)
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
            title=first["title"] or "",
            positions_title=first["positions_title"] or "",
            encoding_title=first["encoding_title"] or "",
        ),
        seed=first["seed"],
        learning_rate=first["learning_rate"],
        step=first["step"],
        train_min=max(int(counts["train_min_length"].max()), 1),
        train_max=first["train_max_length"],
        test_max=known or int(length.max()),
        accuracy=ratio(length, counts["correct"], tokens),
        exact_match=ratio(length, counts["exact"], counts["rows"]),
        input_blind=ratio(length, counts["input_blind"] * tokens, tokens),
        nats=_nats(length, counts),
        samples=(_values(counts["rows"]), _values(counts["position_draws"])),
        examples=_examples(first),
        sets=sets,
        others=others,
        time=first["time"],
    )


def _nats(length: np.ndarray, counts: Mapping[str, np.ndarray]) -> dict[int, float]:
    """The loss by length of a run on text, whose rows have a perplexity.

    One that is not finite, as of a model that diverged, is left out: it has no mean.
    """
    perplexity, loss = counts["perplexity"], counts["loss"]
    if not (perplexity > 0).any():
        return {}
    nats = np.where(loss == -1, np.log(np.maximum(perplexity, 1e-300)), loss)
    known = ((loss != -1) | (perplexity > 0)) & np.isfinite(nats)
    return dict(zip(length[known].tolist(), nats[known].tolist(), strict=True))


def _examples(first: Mapping[str, Any]) -> str:
    kind = "fresh" if first["set_hash"] is None else "fixed sets"
    seed = first["eval_seed"]
    return kind if seed is None else f"{kind}, seed {seed}"


def _values(column: np.ndarray) -> tuple[int, ...]:
    return tuple(value for value in np.unique(column).tolist() if value >= 0)
