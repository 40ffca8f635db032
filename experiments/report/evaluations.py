"""Which evaluation of a run counts, where it was scored more than once.

An *evaluation* is one way to score a run in a test setting: position draws, a seed,
so many sequences a length, fresh examples or fixed sets. Scores of two of them never
stand in one curve. Of those that reach beyond the training lengths, the one that most
runs of the same task and setting have counts, so that seeds are compared on the same
examples; then the one with most such lengths, with most sequences, the latest.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RUN = ("run_id", "test_encoding", "test_positions")
"""Fields that tell a run in a test setting."""

_CELL = ("task", "encoding", "positions", "test_encoding", "test_positions")
_SAMPLES, _FIXED = "counted samples", "counted on sets"  # no fields of rows
_EXAMPLES = (_SAMPLES, "position_draws", "eval_seed", _FIXED)


def counted(evaluation: pa.Table) -> tuple[pa.Table, np.ndarray, list[list[str]]]:
    """Keeps the rows that count, of each run at its last step.

    Args:
        evaluation: rows of kind "evaluation", in order of time.

    Returns:
        The rows, by run and length; where each run starts; and for each run a line on
        whatever else its last step was scored on.
    """
    table = _last_steps(_with_examples(evaluation))
    every, number = table, _codes(table, (*RUN, *_EXAMPLES, "length"))
    latest = np.zeros(number.max(initial=-1) + 1, np.int64)
    latest[number] = np.arange(len(every))  # of repeated places, the last stays
    table = every.take(np.sort(latest))
    run, which = _codes(table, RUN), _codes(table, (*RUN, *_EXAMPLES))
    order = _by_preference(table, which)
    run_of = np.zeros(len(order), np.int64)
    run_of[which] = run
    chosen = np.zeros(run.max(initial=-1) + 1, np.int64)
    chosen[run_of[order]] = order
    others: list[list[str]] = [[] for _ in chosen]
    for place, line in zip(
        order.tolist(), _described(table, which, order), strict=True
    ):
        if chosen[run_of[place]] != place:
            others[run_of[place]].append(line)
    for at in _replaced_sets(every, latest[number]):
        others[run[np.searchsorted(np.sort(latest), at)]].append(_REPLACED)
    kept = np.flatnonzero(chosen[run] == which)
    length = table["length"].to_numpy()
    kept = kept[np.lexsort((length[kept], run[kept]))]
    starts = np.flatnonzero(np.diff(run[kept], prepend=-1))
    return table.take(kept), starts, [list(dict.fromkeys(lines)) for lines in others]


_REPLACED = "lengths scored on other fixed sets before, which the later ones replace"


def _with_examples(evaluation: pa.Table) -> pa.Table:
    """Adds what tells evaluations apart.

    Rows that name neither draws nor a seed are not of `experiments`: of those, numbers
    of sequences may differ by length within one evaluation.
    """
    named = pc.or_(
        pc.is_valid(evaluation["eval_seed"]), pc.is_valid(evaluation["position_draws"])
    )
    samples = pc.if_else(named, evaluation["rows"], None)
    fixed = pc.is_valid(evaluation["set_hash"])
    return evaluation.append_column(_SAMPLES, samples).append_column(_FIXED, fixed)


def _last_steps(evaluation: pa.Table) -> pa.Table:
    run, step = _codes(evaluation, RUN), evaluation["step"].to_numpy()
    last = np.zeros(run.max(initial=-1) + 1, np.int64)
    np.maximum.at(last, run, step)
    return evaluation.take(np.flatnonzero(step == last[run]))


def _codes(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Numbers, from 0, the combinations of values that occur in the columns `names`."""
    total, bound = np.zeros(len(table), np.int64), 1
    for name in names:
        values, codes = _encoded(table[name])
        if bound * max(values, 1) > _LARGEST:
            total, bound = _from_zero(total)
        total = total * max(values, 1) + codes
        bound *= max(values, 1)
    return _from_zero(total)[0]


_LARGEST = 2**62


def _from_zero(numbers: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers what occurs from 0, in its order; and says how much that is."""
    values, places = np.unique(numbers, return_inverse=True)
    return places.reshape(-1), max(len(values), 1)


def _encoded(column: pa.ChunkedArray) -> tuple[int, np.ndarray]:
    """Returns how many values a column has, null among them, and which each row has."""
    if not pa.types.is_dictionary(column.type):
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        return len(encoded.dictionary), encoded.indices.to_numpy()
    encoded = column.unify_dictionaries().combine_chunks()
    number = len(encoded.dictionary)
    return number + 1, pc.fill_null(encoded.indices, number).to_numpy()


def _by_preference(table: pa.Table, which: np.ndarray) -> np.ndarray:
    """Lists evaluations, the one that would rather count behind the others."""
    count = which.max(initial=-1) + 1
    length, trained = (table[n].to_numpy() for n in ("length", "train_max_length"))
    beyond = np.bincount(which, weights=length > trained, minlength=count)
    samples, latest = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.maximum.at(samples, which, table["rows"].to_numpy())
    np.maximum.at(latest, which, np.arange(len(table)))
    _, first = np.unique(which, return_index=True)
    alike = _codes(table.take(first), (*_CELL, *_EXAMPLES))  # over runs
    shared = np.bincount(alike)[alike] if count else np.zeros(0)
    return np.lexsort((latest, samples, beyond, shared, beyond > 0))


def _described(table: pa.Table, which: np.ndarray, order: np.ndarray) -> list[str]:
    """Says, of evaluations in an order, how many lengths they have, and what of."""
    _, first = np.unique(which, return_index=True)
    lengths = np.bincount(which)
    names = ("rows", "position_draws", "eval_seed", _FIXED)
    found = table.select(names).take(first[order]).to_pylist()
    return [
        _line(int(lengths[place]), row)
        for place, row in zip(order.tolist(), found, strict=True)
    ]


def _line(lengths: int, row: dict) -> str:
    """Names an evaluation by the condition that chooses it."""
    conditions = [f"rows = {row['rows']}"]
    for name in ("position_draws", "eval_seed"):
        value = row[name]
        conditions.append(f"{name} IS NULL" if value is None else f"{name} = {value}")
    conditions.append(f"set_hash IS {'NOT ' * row[_FIXED]}NULL")
    condition = " AND ".join(conditions)
    return f"{lengths} length{'s' * (lengths != 1)} ({condition})"


def _replaced_sets(every: pa.Table, later: np.ndarray) -> np.ndarray:
    """Places of rows that replaced one of another fixed set."""
    hashes = _codes(every, ("set_hash",))
    return np.unique(later[hashes != hashes[later]])
