"""Trainings that share a run_id in several folders, told apart by their configs.

A run_id leaves out what may change while a run goes on, such as `train.steps`. So two
studies may each have a run of one name, trained for other steps: two models. Where
results of several folders are read together, those get the name of their folder.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence

import pyarrow as pa

from experiments.running.workdir import FREE, completed, flat

_TELLING = frozenset({"study", "train.steps"})
"""Fields of `FREE` that make another training of a run in another folder."""


def told_apart(
    stores: Sequence[pathlib.Path], tables: Sequence[Mapping[str, pa.Table]]
) -> list[dict[str, pa.Table]]:
    """Renames the runs whose name belongs to another training in another folder.

    Copies of a run keep one name, and so do runs without a stored config.

    Args:
        stores: results folders.
        tables: what was read in each, by kind; "run" is needed if there are several.

    Returns:
        The tables, with `name (folder)` for `name` where that is needed.
    """
    if len(stores) == 1:
        return [dict(tables[0])]
    latest = [_latest_configs(one["run"]) for one in tables]
    places: dict[str, list[int]] = {}
    for at, configs in enumerate(latest):
        for run_id in configs:
            places.setdefault(run_id, []).append(at)
    names: list[dict[str, str]] = [{} for _ in stores]
    for run_id, where in places.items():
        trainings: dict[str, list[int]] = {}
        for at in where if len(where) > 1 else ():
            trainings.setdefault(_training(latest[at][run_id]), []).append(at)
        if len(trainings) > 1:
            folders = _folder_names([stores[ats[0]] for ats in trainings.values()])
            for folder, ats in zip(folders, trainings.values(), strict=True):
                for at in ats:
                    names[at][run_id] = f"{run_id} ({folder})"
    return [
        {kind: _renamed(table, new) for kind, table in one.items()}
        for one, new in zip(tables, names, strict=True)
    ]


def stored_name(run_id: str) -> str:
    """Returns the name of a run in its folder, without that of the folder."""
    return run_id.partition(" (")[0]


def _latest_configs(run_rows: pa.Table) -> dict[str, str]:
    """The config of each run as text; of several rows, the latest counts."""
    rows = run_rows.sort_by([("time", "ascending")])
    columns = (rows[name].to_pylist() for name in ("run_id", "config"))
    return dict(zip(*columns, strict=True))


def _training(config: str) -> str:
    """What of a config makes its model, as text."""
    fields = {
        name: value
        for name, value in flat(completed(json.loads(config))).items()
        if name in _TELLING or not name.startswith(FREE)
    }
    return json.dumps(fields, sort_keys=True)


def _folder_names(stores: Sequence[pathlib.Path]) -> list[str]:
    """The names of the folders around results; whole paths if names are alike."""
    folders = [store.parent for store in stores]
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(f) for f in folders]


def _renamed(table: pa.Table, new: Mapping[str, str]) -> pa.Table:
    if not new or "run_id" not in table.column_names:
        return table
    at = table.column_names.index("run_id")
    ids = [new.get(name, name) for name in table["run_id"].to_pylist()]
    column = pa.array(ids, pa.string())
    if pa.types.is_dictionary(table["run_id"].type):
        column = column.dictionary_encode()
    return table.set_column(at, "run_id", column)
