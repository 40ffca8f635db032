"""The results store: JSON lines while a run writes, parquet shards afterwards.

A run appends rows to `<workdir>/results/<run_id>.<when>.<random>.jsonl`, a new file
for each process, each write on disk before `write` returns. `compact` folds the files
that no writer holds into shards, `results/shard-<hash>.parquet`. `read` and `query`
join both and count every row once, whatever moment a writer or a compaction was
killed at (`shards.py` says how); text that is no row, such as a write cut off,
and shards that cannot be read are named in a `ResultsWarning`.

Columns are documented in `schema.FIELDS`. Of rows that say the same thing
again (`schema.KEYS`: a repeated evaluation, the steps that a resumed run
trained twice) the latest counts, so a `run_id` must belong to one run alone. Where
folders that are read together hold unlike trainings of one `run_id`, which
`train.steps` and studies can make, it is shown with the name of its folder.
"""

import json
import os
import pathlib
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from experiments.results import places, same_names
from experiments.results import schema as results_schema
from experiments.results import shards as results_shards
from experiments.results.shards import ResultsWarning as ResultsWarning
from experiments.results.walk import walk

Folders = str | os.PathLike | Iterable[str | os.PathLike]


class ResultsWriter:
    """Appends the rows of one run to a file of its own.

    Args:
        workdir: folder in which `results/` lies: a run's own, or a study's, shared by
            any number of runs and processes.
        run_id: unique to the run; letters, digits and `._=,+-`. A row may name another
            (`run_id=...`): so the members of a population share a writer.
        common: fields that every row has: study, task, encoding, seed...

    Raises:
        ValueError: if `run_id` cannot be a part of a file name.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        run_id: str,
        common: Mapping[str, Any] | None = None,
    ) -> None:
        if not re.fullmatch(r"[\w.=,+-]{1,160}", run_id, re.ASCII):
            raise ValueError(
                f"run_id must be 1 to 160 letters, digits and ._=,+-, got {run_id!r}: "
                "it becomes part of a file name"
            )
        self.folder = pathlib.Path(workdir) / "results"
        self.path: pathlib.Path | None = None  # made with the first row
        self._common = {"run_id": run_id, **(common or {})}
        self._file = -1

    def write(self, kind: str, **fields: Any) -> None:
        """Append one row of `kind`, one of `schema.KINDS`; on disk on return.

        Raises:
            ValueError: for an unknown kind, an absent field of
                `schema.REQUIRED`, or a value of another type than
                `schema.FIELDS` says.
        """
        self._append([results_schema.new_row(kind, self._common | fields)])

    def evaluation(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append evaluation rows, one for each length, in one write.

        Each needs length, correct, tokens, exact, rows and input_blind, and from here
        or from `common` task, encoding, positions, seed, step and train_max_length.
        `accuracy` is computed. `test_positions` and `test_encoding` are those of
        training, unless given.

        Raises:
            ValueError: as `write`, before anything is written.
        """
        new_row = results_schema.new_row
        self._append([new_row("evaluation", self._common | dict(r)) for r in rows])

    def close(self) -> None:
        """Release the file, so that `compact` may fold it into a shard."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> "ResultsWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
        if self._file < 0 or not results_shards.is_still_at(self.path, self._file):
            self._open()
        data = memoryview("".join(lines).encode())
        before = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, before)  # all of these rows, or none
            raise

    def _open(self) -> None:
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        when = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        name = f"{self._common['run_id']}.{when}.{secrets.token_hex(4)}.jsonl"
        self.path = self.folder / name
        self._file = results_shards.create_locked(self.path)


def find_stores(dirs: Folders) -> list[pathlib.Path]:
    """List the results folders at or under `dirs`, each once.

    Raises:
        FileNotFoundError: if one of `dirs` is no folder, or has no results in it.
    """
    stores: dict[pathlib.Path, None] = {}
    for top in [dirs] if isinstance(dirs, str | os.PathLike) else dirs:
        if not os.path.isdir(top):
            raise FileNotFoundError(
                f"{os.fspath(top)!r} is not a folder; name the workdir of a run, or "
                "any folder above several"
            )
        found = [
            folder.resolve()
            for folder, files in walk(top)
            if folder.name == "results"
            and any(name.endswith((".jsonl", ".parquet")) for name in files)
        ]
        if not found:
            raise FileNotFoundError(
                f"no results in {os.fspath(top)!r}: looked for results/*.jsonl and "
                "results/*.parquet, at any depth; a run writes them into its workdir"
            )
        stores.update(dict.fromkeys(sorted(found)))
    return list(stores)


def read(
    dirs: Folders,
    kind: str = "evaluation",
    *,
    latest: bool = True,
    run_ids: Sequence[str] | None = None,
) -> pa.Table:
    """Read the rows of one kind from all results folders at or under `dirs`.

    Args:
        dirs: one folder or several, of runs or of studies.
        kind: "run", "training", "evaluation" or "place", whose rows hold lists; or
            "damaged", for text that is no row.
        latest: of rows that agree in `schema.KEYS[kind]`, keep the latest.
        run_ids: read the rows of these runs alone, which is quick in a large study.

    Returns:
        A table in order of time: first the columns that `schema.FIELDS` gives
        the kind, then whatever else was written.

    Raises:
        FileNotFoundError: if a folder does not exist or has no results.
        ValueError: for an unknown kind.
    """
    return read_kinds(dirs, [kind], latest=latest, run_ids=run_ids)[kind]


def read_kinds(
    dirs: Folders,
    kinds: Sequence[str],
    *,
    latest: bool = True,
    columns: results_shards.Columns = MappingProxyType({}),
    run_ids: Sequence[str] | None = None,
) -> dict[str, pa.Table]:
    """Read the rows of several kinds, each file once; as `read`.

    Args:
        dirs: as for `read`.
        kinds: of rows.
        latest: as for `read`.
        columns: of some kinds, the columns that are needed, or `EVERY` of the schema:
            millions of rows then fit into memory. Those that order rows and tell them
            apart come besides, and text that is repeated is dictionary-encoded.
        run_ids: as for `read`.

    Returns:
        A table a kind.

    Raises:
        FileNotFoundError: if a folder does not exist or has no results.
        ValueError: for an unknown kind.
    """
    known = tuple(results_schema.KEYS)
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"kind must be one of {known}, got {kind!r}")
    stores = find_stores(dirs)
    needed = dict.fromkeys([*kinds, "run"] if len(stores) > 1 else kinds)
    columns = {
        kind: names
        if tuple(names) == results_schema.EVERY
        else list(dict.fromkeys([*names, *results_schema.KEYS[kind], *_PLACE]))
        for kind, names in columns.items()
    }
    found = [
        results_shards.read_store(store, list(needed), columns=columns, run_ids=run_ids)
        for store in stores
    ]
    found = same_names.told_apart(stores, found)
    return {
        kind: _joined([tables[kind] for tables in found], kind, latest, columns)
        for kind in kinds
    }


_PLACE = ("run_id", "time", "source", "line", "store")


def _joined(
    tables: Sequence[pa.Table],
    kind: str,
    latest: bool,
    columns: results_shards.Columns,
) -> pa.Table:
    table = results_schema.concatenate(tables, kind, columns.get(kind))
    table = table.unify_dictionaries()
    # a copied file counts once, unless its run went on in one of the folders
    row = ("source", "line") if kind == "damaged" else ("source", "line", "run_id")
    table = results_schema.last_of_each(table, row)
    order = ("source", "line") if kind == "damaged" else ("time", "source", "line")
    table = results_schema.in_order(table, order)
    return keep_latest(table, kind) if latest else table


def keep_latest(table: pa.Table, kind: str) -> pa.Table:
    """Keep, of rows that agree in `schema.KEYS[kind]`, the latest."""
    return results_schema.last_of_each(table, results_schema.KEYS[kind])


def query(dirs: Folders, sql: str) -> pa.Table:
    """Run duckdb's SQL over the tables of `dirs`, one a kind of rows.

    They are `evaluation`, `training`, `run` and `place`, which here has a row a place:
    see `places.one_row_each`. JSON columns are text that SQL can look into:
    `config->>'$.train.steps'`.

    Raises:
        FileNotFoundError: if a folder does not exist or has no results.
        duckdb.Error: for faulty SQL.
    """
    import duckdb

    stores = find_stores(dirs)
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as database:
        named = [
            kind
            for kind in results_schema.KINDS
            if re.search(rf"\b{kind}\b", sql, re.IGNORECASE)
        ]
        for kind, table in read_kinds(stores, named).items():
            shown = places.one_row_each(table) if kind == "place" else table
            database.register(kind, shown)
        return database.sql(sql).to_arrow_table()


def compact(dirs: Folders) -> list[pathlib.Path]:
    """Fold the JSONL files that no writer holds into parquet shards.

    May be killed at any moment and started again, also several at a time.

    Returns:
        The shards written.

    Raises:
        FileNotFoundError: if a folder does not exist or has no results.
    """
    stores = find_stores(dirs)
    return [shard for store in stores for shard in results_shards.compact_store(store)]
