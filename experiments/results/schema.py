"""The columns of the results store: what each means, and how rows become tables.

`FIELDS` is the one place where the columns are documented. Fields beyond those are
kept as they come: their type is inferred, and becomes text where rows disagree.
"""

import datetime
import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.results import places

KINDS = ("run", "training", "evaluation", "place")
_ALL = (*KINDS, "damaged")
_SCORED = ("evaluation",)
_BY_PLACE = ("place",)
_TESTED = (*_SCORED, *_BY_PLACE)
_LEARNED = ("training", "evaluation")
_STEPPED = (*_LEARNED, *_BY_PLACE)

# name: (type, kinds of rows that have it, meaning). A "json" field is any JSON value
# in JSONL, and its text in tables; "integers" and "numbers" are lists.
FIELDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "kind": ("text", _ALL, "run, training, evaluation, place (or damaged)"),
    "run_id": ("text", KINDS, "unique name of a trained model"),
    "time": ("text", KINDS, "when the row was written: UTC, ISO 8601"),
    "study": ("text", KINDS, "the study that the run belongs to"),
    "group": ("text", KINDS, "a part of the study, such as an ablation"),
    "title": ("text", KINDS, "what sets the run apart, in tables and pictures"),
    "task": ("text", KINDS, "catalogue name of the task"),
    "task_title": ("text", KINDS, "its name in tables and pictures"),
    "task_order": ("integer", KINDS, "its place in the catalogue; tables follow it"),
    "encoding": ("text", KINDS, "catalogue name of the encoding"),
    "encoding_title": ("text", KINDS, "its name in tables and pictures"),
    "positions": ("text", KINDS, "position scheme in training"),
    "positions_title": ("text", KINDS, "its name in tables and pictures"),
    "test_encoding": ("text", _TESTED, "encoding setting in this evaluation"),
    "test_positions": ("text", _TESTED, "position scheme in this evaluation"),
    "seed": ("integer", KINDS, "seed of the run"),
    "learning_rate": ("number", KINDS, "peak of the schedule (training: current)"),
    "step": ("integer", _STEPPED, "optimizer steps taken"),
    "length": ("integer", _TESTED, "input length, tokens"),
    "accuracy": ("number", _LEARNED, "correct / tokens"),
    "correct": ("integer", _SCORED, "output tokens that are right"),
    "tokens": ("integer", _SCORED, "output tokens"),
    "exact": ("integer", _SCORED, "sequences with every output token right"),
    "rows": ("integer", _TESTED, "sequences"),
    "loss": ("number", _LEARNED, "mean cross-entropy, nats a token"),
    "perplexity": ("number", _SCORED, "e to the loss; of tasks on text only"),
    "outputs": ("integer", _SCORED, "tokens that the loss is a mean over"),
    "input_blind": ("number", _SCORED, "accuracy of the best input-blind predictor"),
    "train_min_length": ("integer", KINDS, "shortest training length, tokens; else 1"),
    "train_max_length": ("integer", KINDS, "longest training length, tokens"),
    "test_max_length": ("integer", KINDS, "longest length of the score, tokens"),
    "position_draws": ("integer", _TESTED, "draws of positions averaged over"),
    "eval_seed": ("integer", _TESTED, "seed of the examples and positions scored on"),
    "set_hash": ("text", _TESTED, "SHA-256 of the fixed set scored on; else fresh"),
    "wall_time_s": ("number", _SCORED, "seconds taken by the evaluation"),
    "in_place": ("flag", _BY_PLACE, "places are of the input: of a window of text"),
    "first_place": ("integer", _BY_PLACE, "which place, from 1, the lists begin with"),
    "place_loss": ("numbers", _BY_PLACE, "cross-entropy at each place, nats, summed"),
    "place_outputs": ("integers", _BY_PLACE, "sequences with an output there"),
    "place_correct": ("integers", _BY_PLACE, "sequences that are right there"),
    "place_tokens": ("integers", _BY_PLACE, "sequences whose output there counts"),
    "place_first_wrong": ("integers", _BY_PLACE, "sequences first wrong there"),
    "place_blind_correct": ("integers", _BY_PLACE, "right there, input-blind"),
    "grad_norm": ("number", ("training",), "global gradient norm, before clipping"),
    "steps_per_s": ("number", ("training",), "training speed"),
    "config": ("json", ("run",), "the whole configuration"),
    "init_from": ("json", ("run",), "the run whose parameters it began with, if any"),
    "versions": ("json", ("run",), "of Python, jax, flax, ropejax and others"),
    "device": ("text", ("run",), "kind of device"),
    "git_commit": ("text", ("run",), "commit of the code"),
    "git_dirty": ("flag", ("run",), "whether files differed from that commit"),
    "text": ("text", ("damaged",), "what was found in place of a row"),
    "source": ("text", _ALL, "JSONL file that the row was written to"),
    "line": ("integer", _ALL, "its line there, from 1"),
    "store": ("text", _ALL, "results folder that it was read from"),
}
REPEATED = frozenset(
    {
        *("run_id", "study", "group", "title", "task", "task_title", "encoding"),
        *("encoding_title", "positions", "positions_title", "test_encoding"),
        *("test_positions", "set_hash", "source", "store"),
    }
)
"""Text columns with few different values in many rows."""
EVERY = ("*",)
"""In place of names of columns: all that there are."""
REQUIRED = {
    "run": ("config", "seed"),
    "training": ("step",),
    "evaluation": (
        *("task", "encoding", "positions", "seed", "step", "length", "correct"),
        *("tokens", "exact", "rows", "input_blind", "train_max_length"),
    ),
    "place": (
        *("task", "encoding", "positions", "seed", "step", "length", "rows"),
        *("train_max_length", "first_place", *places.COLUMNS.values()),
    ),
}
SAME_EXAMPLES = ("rows", "position_draws", "eval_seed", "set_hash")
"""Fields that say on which examples and positions a length was scored."""
_SCORE = (
    *("run_id", "test_encoding", "test_positions", "step", "length"),
    *SAME_EXAMPLES,
)
# Of rows that agree in these, the latest counts.
KEYS = {
    "run": ("run_id",),
    "training": ("run_id", "step"),
    "evaluation": _SCORE,
    "place": _SCORE,
    "damaged": ("source", "line"),
}
_ARROW = {
    "text": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "flag": pa.bool_(),
    "integers": pa.list_(pa.int64()),
    "numbers": pa.list_(pa.float64()),
}
_PYTHON = {"text": str, "integer": int, "number": int | float, "flag": bool}
_ITEMS = {"integers": {int}, "numbers": {int, float}}
_LISTS = {n: _ITEMS[f[0]] for n, f in FIELDS.items() if f[0] in _ITEMS}
_CHECKED = {n: _PYTHON[f[0]] for n, f in FIELDS.items() if f[0] in _PYTHON}


def new_row(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Make a row of plain Python values, complete and checked.

    `None` is dropped, `time` is added; an evaluation's `accuracy` is computed;
    `test_encoding` and `test_positions` are those of training unless given.

    Raises:
        ValueError: for an unknown kind, an absent field of `REQUIRED`, a value of
            another type than `FIELDS` says, or counts that cannot be.
    """
    if kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}{hint}")
    row = {"kind": kind} | {k: _plain(v) for k, v in fields.items() if v is not None}
    if absent := [name for name in ("run_id", *REQUIRED[kind]) if name not in row]:
        raise ValueError(f"{kind} row lacks {absent}; it has {sorted(row)}")
    row["time"] = _utc(row.get("time"))
    check_types(row)
    if kind in _TESTED:
        row.setdefault("test_encoding", row["encoding"])
        row.setdefault("test_positions", row["positions"])
    if kind == "place":
        _check_lists(row)
    if kind == "evaluation":
        _check_counts(row)
        row["accuracy"] = row["correct"] / row["tokens"]
    return row


def check_types(row: Mapping[str, Any]) -> None:
    """Raise ValueError, naming field and value, where `row` is not as `FIELDS` says."""
    if row.get("kind") not in _ALL:
        raise ValueError(f"kind must be one of {KINDS}, got {row.get('kind')!r}")
    for name, items in _LISTS.items() if row["kind"] in _BY_PLACE else ():
        value = row.get(name, [])
        if not isinstance(value, list) or not items.issuperset(map(type, value)):
            raise ValueError(f"{name} must be a list of {FIELDS[name][0]}, got {value}")
    for name, value in row.items():
        python = _CHECKED.get(name)
        if python is None or value is None or type(value) is python is str:
            continue  # quickly: millions of values pass here
        flag_as_number = isinstance(value, bool) and python is not bool
        too_large = python is int and isinstance(value, int) and abs(value) >= 2**63
        if flag_as_number or too_large or not isinstance(value, python):
            raise ValueError(
                f"{name} must be of type {FIELDS[name][0]} ({FIELDS[name][2]}), "
                f"got {value!r}"
            )


def _check_counts(row: Mapping[str, Any]) -> None:
    for part, whole in (("correct", "tokens"), ("exact", "rows")):
        if not 0 <= row[part] <= row[whole] or row[whole] == 0:
            raise ValueError(
                f"{part} must lie in 0..{whole}, and {whole} above 0, got "
                f"{part}={row[part]}, {whole}={row[whole]} at length {row['length']}"
            )
    given = row.get("accuracy", row["correct"] / row["tokens"])
    if abs(given - row["correct"] / row["tokens"]) > 1e-5:
        raise ValueError(
            f"accuracy {given} is not correct / tokens = {row['correct']} / "
            f"{row['tokens']} at length {row['length']}; leave it out, it is computed"
        )


def _check_lists(row: Mapping[str, Any]) -> None:
    sizes = {name: len(row[name]) for name in _LISTS}
    if len(set(sizes.values())) > 1 or row["first_place"] < 1:
        raise ValueError(
            f"lists by place must be of one size, and first_place from 1 up, got sizes "
            f"{sizes} and first_place={row['first_place']} at length {row['length']}"
        )


def _plain(value: Any) -> Any:
    """Turn arrays of one element into Python numbers, and larger ones into lists."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # numpy and jax
        return value.tolist()
    return value


def _utc(time: str | None) -> str:
    if time is None:
        moment = datetime.datetime.now(datetime.UTC)
    else:
        moment = datetime.datetime.fromisoformat(time)
        if moment.tzinfo is None:
            raise ValueError(f"time must name its zone, got {time!r}; add +00:00")
    return moment.astimezone(datetime.UTC).isoformat(timespec="microseconds")


def to_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Make a table with one column for each field that any of `rows` has."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({n: _column(n, [row.get(n) for row in rows]) for n in names})


def _column(name: str, values: list) -> pa.Array:
    declared = FIELDS.get(name, ("", (), ""))[0]
    if declared == "json":
        return _as_text(values)
    if declared:
        return pa.array(values, _ARROW[declared])
    if any(isinstance(v, dict | list) for v in values):
        return _as_text(values)
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # rows disagree
        return _as_text(values)


def _as_text(values: list) -> pa.Array:
    texts = [v if isinstance(v, str | None) else json.dumps(v) for v in values]
    return pa.array(texts, pa.string())


def concatenate(
    tables: Sequence[pa.Table], kind: str, names: Sequence[str] | None = None
) -> pa.Table:
    """Join tables of one kind of rows over the union of their columns.

    The columns that `FIELDS` gives the kind come first, also where no row has them;
    then those others that some row has. Where tables disagree on the type of a field
    that is not in `FIELDS`, integers and numbers become numbers, and all else text.

    Args:
        tables: of rows of the kind.
        kind: which.
        names: fields of `FIELDS` that are wanted, and no others, or `EVERY`; text of
            `REPEATED` is then dictionary-encoded, which takes a tenth of the memory.
    """
    lean = names is not None
    if lean and tuple(names) != EVERY:
        types = {name: _lean(name) for name in FIELDS if name in names}
        parts = [pa.schema(types).empty_table(), *tables]
        return pa.concat_tables([_fit(t, pa.schema(types)) for t in parts])
    declared = {
        name: _lean(name) if lean else _ARROW[field[0]]
        for name, field in FIELDS.items()
        if kind in field[1]
    }
    types: dict[str, set] = {}
    for table in tables:
        for field in table.schema:
            if field.name not in FIELDS and table[field.name].null_count < len(table):
                types.setdefault(field.name, set()).add(field.type)
    schema = pa.schema(declared | {name: _common(types[name]) for name in types})
    return pa.concat_tables([schema.empty_table(), *(_fit(t, schema) for t in tables)])


def _lean(name: str) -> pa.DataType:
    plain = _ARROW[FIELDS[name][0]]
    return pa.dictionary(pa.int32(), plain) if name in REPEATED else plain


def _common(types: set) -> pa.DataType:
    if len(types) == 1:
        return next(iter(types))
    return pa.float64() if types == {pa.int64(), pa.float64()} else pa.string()


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        _as_type(table[field.name], field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if pa.types.is_dictionary(wanted):
        return pc.cast(column, wanted.value_type).dictionary_encode()
    return pc.cast(column, wanted)


def in_order(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort rows by some columns, ascending."""
    keys = pa.table({name: _sortable(table[name]) for name in names})
    return table.take(pc.sort_indices(keys, [(name, "ascending") for name in names]))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Puts, in place of dictionary-encoded text, where it stands among all of it."""
    if not pa.types.is_dictionary(column.type):
        return column
    encoded = column.unify_dictionaries().combine_chunks()
    values = np.array(encoded.dictionary.to_pylist(), object)
    rank = np.empty(len(values), np.int64)
    rank[np.argsort(values)] = np.arange(len(values))
    if not len(rank):
        return encoded.indices
    return pc.take(pa.array(rank), encoded.indices)


def last_of_each(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Keep, of rows that agree in the columns `names`, the last; the order stays."""
    numbered = table.select(names).append_column("row", pa.array(np.arange(len(table))))
    last = numbered.group_by(names).aggregate([("row", "max")])["row_max"]
    return table.take(np.sort(last.to_numpy()))
