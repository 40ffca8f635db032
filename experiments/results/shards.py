"""Files of a results folder: locked JSONL sources, immutable shards, compaction.

What makes it safe to stop at any moment, and to run several at a time:

* a writer locks (flock) its JSONL file while it lives; compaction takes files whose
  lock it gets, so those of writers that closed them or died;
* a shard appears whole, by `os.replace`, after it was read back and its checksums
  were verified; its name is a hash of what it holds;
* a row is known by its source and its line there, so a source that is still there
  beside its shard is not counted twice; a shard says how many bytes of each source it
  holds, and a source is deleted once a shard that can be read in full holds all of it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.results import schema as results_schema

Held = dict[str, int]  # source: bytes, counted from its start

_METADATA = b"ropejax.sources"
_BATCH_FILES = 200  # locked at once
_BATCH_BYTES = 128 * 2**20  # of JSONL in a shard; bounds memory


class ResultsWarning(UserWarning):
    """Something in a results folder could not be read, and was left out."""


def create_locked(path: pathlib.Path) -> int:
    """Create `path` for appending, with a lock that lasts as long as this process.

    Returns:
        The file descriptor.
    """
    while True:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        with contextlib.suppress(OSError):  # no locks here: compaction leaves it alone
            fcntl.flock(file, fcntl.LOCK_EX)
        if is_still_at(path, file):
            sync_folder(path.parent)
            return file
        os.close(file)  # a compaction took it, empty, before it was locked


def is_still_at(path: pathlib.Path, file: int) -> bool:
    """Tell whether the open `file` is what `path` names now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def sync_folder(folder: pathlib.Path) -> None:
    """Put a folder's list of names on disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


Columns = Mapping[str, Sequence[str]]  # by kind of rows


def read_store(
    store: pathlib.Path,
    kinds: Sequence[str],
    *,
    columns: Columns = MappingProxyType({}),
    run_ids: Sequence[str] | None = None,
) -> dict[str, pa.Table]:
    """Read rows of some kinds in one results folder, with `source` and `line`.

    A row that two files hold comes twice. A compaction that ends meanwhile moves rows
    from sources to shards: then reading starts again.

    Args:
        store: the folder.
        kinds: of rows.
        columns: the only ones to read, of some kinds; see `schema.concatenate`.
        run_ids: read rows of these runs alone.
    """
    while True:
        shards = sorted(store.glob("*.parquet"))
        tables: dict[str, list[pa.Table]] = {kind: [] for kind in kinds}
        for shard in shards:
            for kind in kinds:
                table = _read_shard(shard, kind, columns.get(kind), run_ids)
                tables[kind] += [] if table is None else [table]
        for source in sorted(store.glob("*.jsonl")):
            with contextlib.suppress(FileNotFoundError):
                rows = _read_source(source)[0]
                for kind in kinds:
                    alike = [row for row in rows if _is_wanted(row, kind, run_ids)]
                    tables[kind].append(results_schema.to_table(alike))
        if sorted(store.glob("*.parquet")) == shards:
            return {
                kind: _of_kind(tables[kind], kind, store, columns.get(kind))
                for kind in kinds
            }


def _is_wanted(
    row: Mapping[str, Any], kind: str, run_ids: Sequence[str] | None
) -> bool:
    of_run = run_ids is None or row.get("run_id") in run_ids
    return row["kind"] == kind and of_run


def _of_kind(
    tables: Sequence[pa.Table],
    kind: str,
    store: pathlib.Path,
    names: Sequence[str] | None,
) -> pa.Table:
    table = results_schema.concatenate(tables, kind, names)
    place = table.schema.get_field_index("store")
    where = pa.array(np.zeros(len(table), np.int32))
    column = pa.DictionaryArray.from_arrays(where, pa.array([str(store)]))
    lean = pa.types.is_dictionary(table["store"].type)
    return table.set_column(
        place, "store", column if lean else pc.cast(column, pa.string())
    )


def _read_source(source: pathlib.Path) -> tuple[list[dict[str, Any]], int]:
    """Parse the lines of `source`; return its size too."""
    data = source.read_bytes()
    rows = []
    for line, text in enumerate(_lines(data), start=1):
        row = _parse(text)
        if row["kind"] == "damaged":
            said = describe_damage(source, line, row["text"])
            warnings.warn(said, ResultsWarning, stacklevel=4)
        rows.append(row | {"source": source.name, "line": line})
    return rows, len(data)


def describe_damage(source: pathlib.Path, line: int, text: str) -> str:
    """Says where text was found that is no row, for people."""
    return (
        f"{source}, line {line} is not a row, and is left out: its writing was cut "
        f"off, or goes on ({len(text)} characters: {text[:60]!r}...)"
    )


def _lines(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n") if data else []


def _parse(text: bytes) -> dict[str, Any]:
    try:
        row = json.loads(text)
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        results_schema.check_types(row)
    except ValueError:  # also of JSON and of UTF-8
        return {"kind": "damaged", "text": text.decode(errors="backslashreplace")}
    return row


def _read_shard(
    shard: pathlib.Path,
    kind: str | None,
    names: Sequence[str] | None = None,
    run_ids: Sequence[str] | None = None,
) -> pa.Table | None:
    """Read the rows of one kind, or all, with checksums; warn and give None if not."""
    try:
        _sources(shard)
        filters = [] if kind is None else [("kind", "=", kind)]
        filters += [] if run_ids is None else [("run_id", "in", list(run_ids))]
        there = pq.read_schema(shard).names
        every = names is None or tuple(names) == results_schema.EVERY
        wanted = there if every else [n for n in names if n in there]
        lean = [n for n in wanted if n in results_schema.REPEATED]
        return pq.read_table(
            shard,
            columns=None if every else wanted,
            read_dictionary=[] if names is None else lean,
            filters=filters or None,
            page_checksum_verification=True,
        )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        warnings.warn(
            f"{shard} cannot be read, and is left out: {error}",
            ResultsWarning,
            stacklevel=4,
        )
        return None


def _sources(shard: pathlib.Path) -> Held:
    metadata = pq.read_schema(shard).metadata or {}
    if _METADATA not in metadata:
        raise ValueError("it is not a shard that experiments.results.store wrote")
    return json.loads(metadata[_METADATA])


def _extend(held: Held, more: Held) -> None:
    for name, extent in more.items():
        held[name] = max(held.get(name, 0), extent)


def compact_store(store: pathlib.Path) -> list[pathlib.Path]:
    """Fold the sources of one results folder that no writer holds into shards."""
    _remove_leftovers(store)
    shards = []
    for batch in _batches(store):
        with contextlib.ExitStack() as locks:
            free = [source for source in batch if _lock(source, locks)]
            shards += _compact_batch(store, free)
    return shards


def _batches(store: pathlib.Path) -> Iterator[list[pathlib.Path]]:
    batch: list[pathlib.Path] = []
    size = 0
    for source in sorted(store.glob("*.jsonl")):
        with contextlib.suppress(FileNotFoundError):
            size += source.stat().st_size
            batch.append(source)
        if len(batch) == _BATCH_FILES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _lock(path: pathlib.Path, locks: contextlib.ExitStack) -> bool:
    """Lock `path` until `locks` closes; False if another holds it, or it has gone."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    locks.callback(os.close, file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return is_still_at(path, file)


def _compact_batch(
    store: pathlib.Path, sources: Sequence[pathlib.Path]
) -> list[pathlib.Path]:
    held = _held_safely(store, {source.name for source in sources})
    rows, extents = [], {}
    for source in sources:
        if source.stat().st_size > held.get(source.name, 0):
            new_rows, extents[source.name] = _read_source(source)
            rows += new_rows
    shards = [_write_shard(store, rows, extents)] if extents else []
    _extend(held, extents)
    for source in sources:  # one may have grown, where locks do nothing
        if source.stat().st_size <= held.get(source.name, 0):
            os.unlink(source)
    if sources:
        sync_folder(store)
    return shards


def _held_safely(store: pathlib.Path, names: set[str]) -> Held:
    """Tell what shards hold of the sources `names`, after reading those in full."""
    held: Held = {}
    for shard in store.glob("*.parquet"):
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            sources = _sources(shard)
            if names & sources.keys() and _read_shard(shard, None) is not None:
                _extend(held, sources)
    return held


def _write_shard(
    store: pathlib.Path, rows: list[dict[str, Any]], extents: Held
) -> pathlib.Path:
    rows.sort(key=lambda row: row["kind"])  # so that one kind is read alone
    table = results_schema.to_table(rows)
    described = json.dumps(extents, sort_keys=True)
    table = table.replace_schema_metadata({_METADATA: described})
    digest = hashlib.sha256(described.encode()).hexdigest()[:16]
    shard = store / f"shard-{digest}.parquet"
    temporary = store / f"{shard.name}.{secrets.token_hex(4)}.tmp"
    with os.fdopen(create_locked(temporary), "wb") as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        file.flush()
        os.fsync(file.fileno())
        back = _read_shard(temporary, None)
        if back is None or (len(back), back.schema) != (len(table), table.schema):
            raise OSError(f"{temporary} does not read back as it was written")
        os.replace(temporary, shard)
    sync_folder(store)
    return shard


def _remove_leftovers(store: pathlib.Path) -> None:
    """Delete the unfinished shards of compactions that have died."""
    for temporary in store.glob("*.tmp"):
        with contextlib.ExitStack() as locks:
            if _lock(temporary, locks):
                os.unlink(temporary)
