"""Which evaluation of a run counts, where it was scored more than once.

An *evaluation* is one way to score a run in a test setting: so many sequences a length,
position draws, a seed, fresh examples or a fixed set. Scores of two of them are never
averaged. The one with most lengths beyond those of training counts; among equals that
with most sequences a length, then the latest.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.results import schema as results_schema

RUN = ("run_id", "test_encoding", "test_positions")
"""Fields that tell a run in a test setting."""

_FIXED = "fixed"
_SAME = ("rows", "position_draws", "eval_seed", _FIXED)


def counted(evaluation: pa.Table) -> tuple[pa.Table, np.ndarray, list[list[str]]]:
    """Keeps the rows that count, of each run at its last step.

    Args:
        evaluation: rows of kind "evaluation", in order of time.

    Returns:
        The rows, by run and length; where each run starts; and for each run a line on
        every other evaluation of its last step.
    """
    fixed = pc.is_valid(evaluation["set_hash"])
    table = _last_steps(evaluation.append_column(_FIXED, fixed))
    table = results_schema.last_of_each(table, (*RUN, *_SAME, "length"))
    run, one = _codes(table, RUN), _codes(table, (*RUN, *_SAME))
    order = _by_preference(table, one)
    of_run = np.zeros(len(order), np.int64)  # the run of each evaluation
    of_run[one] = run
    chosen = np.zeros(run.max(initial=-1) + 1, np.int64)
    chosen[of_run[order]] = order  # of repeated places, the last stays
    others: list[list[str]] = [[] for _ in chosen]
    for evaluated in order:
        if chosen[of_run[evaluated]] != evaluated:
            rows = table.filter(pa.array(one == evaluated))
            others[of_run[evaluated]].append(_described(rows))
    kept = np.flatnonzero(chosen[run] == one)
    length = table["length"].to_numpy()
    kept = kept[np.lexsort((length[kept], run[kept]))]
    starts = np.flatnonzero(np.diff(run[kept], prepend=-1))
    return table.take(kept), starts, others


def _last_steps(evaluation: pa.Table) -> pa.Table:
    run, step = _codes(evaluation, RUN), evaluation["step"].to_numpy()
    last = np.zeros(run.max(initial=-1) + 1, np.int64)
    np.maximum.at(last, run, step)
    return evaluation.take(np.flatnonzero(step == last[run]))


def _codes(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Numbers, from 0, the combinations of values that occur in the columns `names`."""
    columns = [
        table[name].combine_chunks().dictionary_encode(null_encoding="encode").indices
        for name in names
    ]
    values = np.array([column.to_numpy(zero_copy_only=False) for column in columns])
    return np.unique(values, axis=1, return_inverse=True)[1].reshape(-1)


def _by_preference(table: pa.Table, one: np.ndarray) -> np.ndarray:
    """Lists evaluations, the one that would rather count behind the others."""
    count = one.max(initial=-1) + 1
    length, trained = (table[n].to_numpy() for n in ("length", "train_max_length"))
    beyond = np.bincount(one, weights=length > trained, minlength=count)
    samples, latest = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.maximum.at(samples, one, table["rows"].to_numpy())
    np.maximum.at(latest, one, np.arange(len(table)))
    return np.lexsort((latest, samples, beyond))


def _described(rows: pa.Table) -> str:
    """Says how an evaluation differs from others, as conditions that choose it."""
    first: dict[str, Any] = rows.select((*_SAME, "length")).slice(0, 1).to_pylist()[0]
    conditions = [f"rows = {first['rows']}"]
    for name in ("position_draws", "eval_seed"):
        value = first[name]
        conditions.append(f"{name} IS NULL" if value is None else f"{name} = {value}")
    conditions.append(f"set_hash IS {'NOT ' * first[_FIXED]}NULL")
    lengths = len(pc.unique(rows["length"]))
    return f"{lengths} length{'s' * (lengths != 1)} ({' AND '.join(conditions)})"
