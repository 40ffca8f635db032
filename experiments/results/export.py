"""Rows of the results store as one file, for pandas, R or a spreadsheet."""

import json
import pathlib
from collections.abc import Sequence

import pyarrow as pa

from experiments.building.nearest import close_fields
from experiments.results import places, schema
from experiments.results import store as results

FORMATS = (".csv", ".parquet", ".jsonl")
_MANY = ("evaluation", "training", "place")  # rows, of a large study


def with_config(table: pa.Table, run_rows: pa.Table, fields: Sequence[str]) -> pa.Table:
    """Adds fields of each run's config to its rows, as columns `config.<field>`.

    Args:
        table: rows with a `run_id`.
        run_rows: rows of kind "run", one a run.
        fields: `group.field`, such as `train.steps`; what a config lacks is null.

    Raises:
        ValueError: for a field that no config has.
    """
    columns = (run_rows[name].to_pylist() for name in ("run_id", "config"))
    flat = {
        run_id: _flat(json.loads(text))
        for run_id, text in zip(*columns, strict=True)
        if text is not None
    }
    known = sorted({name for config in flat.values() for name in config})
    run_id = table["run_id"].unify_dictionaries().combine_chunks()
    encoded = run_id if hasattr(run_id, "indices") else run_id.dictionary_encode()
    ids = encoded.dictionary.to_pylist()
    for field in fields:
        if field not in known:
            near = close_fields(field, known)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(f"no config here has a field {field!r}{hint}")
        values = [flat.get(run_id, {}).get(field) for run_id in ids]
        column = _column(values).take(encoded.indices)
        table = table.append_column(f"config.{field}", column)
    return table


def _flat(config: dict, before: str = "") -> dict:
    found: dict = {}
    for name, value in config.items():
        path = f"{before}{name}"
        found |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found


def _column(values: list) -> pa.Array:
    try:
        return pa.array(values)
    except pa.ArrowException:  # runs disagree on the type
        return pa.array([v if v is None else json.dumps(v) for v in values])


def write(table: pa.Table, path: pathlib.Path) -> None:
    """Writes a table, in the format of the file's suffix.

    CSV has a head, full precision, and nothing where a value is absent.

    Raises:
        ValueError: if the suffix is none of `FORMATS`.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"{str(path)!r} must end in one of {', '.join(FORMATS)}")
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path, compression="zstd")
    elif path.suffix == ".csv":
        write_csv(table, path)
    else:
        with path.open("w") as file:
            for batch in table.to_batches():
                for row in batch.to_pylist():
                    known = {name: v for name, v in row.items() if v is not None}
                    file.write(json.dumps(known, default=str) + "\n")


def write_csv(table: pa.Table, file: object) -> None:
    """Writes a table as CSV to a path or an open binary file."""
    import pyarrow.csv

    pyarrow.csv.write_csv(table, file)


def rows(
    dirs: results.Folders,
    kind: str = "evaluation",
    *,
    sql: str = "",
    fields: Sequence[str] = (),
) -> pa.Table:
    """Reads rows of one kind, or what SQL makes of all.

    Args:
        dirs: one folder or several, of runs or studies.
        kind: as for `results.read`; of "place", one row a place.
        sql: over the tables that `results.query` names; instead of a kind.
        fields: of the configs, added as columns.

    Raises:
        FileNotFoundError: if a folder does not exist or has no results.
        ValueError: for a field that no config has, or faulty SQL.
    """
    if not sql:
        columns = {kind: schema.EVERY} if kind in _MANY else {}
        kinds = dict.fromkeys([kind, "run"])
        read = results.read_kinds(dirs, kinds, columns=columns)
        table = read[kind]
        if kind == "place":
            table = places.one_row_each(table)
        return with_config(table, read["run"], fields) if fields else table
    import duckdb

    try:
        table = results.query(dirs, sql)
    except duckdb.Error as error:
        raise ValueError(f"sql={sql!r}: {error}") from error
    if fields and "run_id" not in table.column_names:
        raise ValueError("fields need a column run_id in what the SQL gives")
    return with_config(table, results.read(dirs, "run"), fields) if fields else table
