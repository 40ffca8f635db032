"""Configs of runs, flat and side by side: what they share, and where they differ."""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from experiments.running.workdir import completed
from experiments.running.workdir import flat as flat

Flat = Mapping[str, Any]

# Last parts of the names of fields that make no difference to a trained model, beside
# seed and learning rate, over which runs of a cell may differ.
FREE = frozenset(
    {
        *("seed", "learning_rate", "workdir", "run_id", "name", "study", "group"),
        *("log_every", "save_every", "keep", "steps_per_dispatch"),
    }
)

OPTIMIZER = "optim.name"
"""The name that makes a difference here; those of methods are rows and columns."""


def flat_configs(run_rows: pa.Table) -> dict[str, Flat]:
    """Reads the config of each run by dotted name: `{run_id: {"train.steps": 100}}`.

    Args:
        run_rows: rows of kind "run".
    """
    columns = (run_rows[name].to_pylist() for name in ("run_id", "config"))
    return {run_id: parsed(text) for run_id, text in zip(*columns, strict=True)}


@functools.lru_cache(maxsize=4096)
def parsed(text: str) -> Flat:
    """Returns a stored config, flat, with what those of earlier versions lack."""
    return flat(completed(json.loads(text)))


def differing(configs: Sequence[Flat], *, free: bool = False) -> list[str]:
    """Names the fields in which configs differ, in their order.

    Args:
        configs: flat.
        free: name those of `FREE` too.
    """
    names = dict.fromkeys(name for config in configs for name in config)
    return [
        name
        for name in names
        if (free or name == OPTIMIZER or name.rpartition(".")[2] not in FREE)
        and len({shown(config, name) for config in configs}) > 1
    ]


def shown(config: Flat, name: str) -> str:
    """Returns the value of a field as text; `unset` if it is absent."""
    return str(config[name]) if name in config else "unset"


def dividing(configs: Sequence[Flat]) -> list[str]:
    """Names the fields that make models different, and in which configs differ.

    Those are all but `FREE`, those of evaluation, and titles. A field that a config
    lacks (it may come from an older version) does not count as different there.
    """
    return [
        name
        for name in differing(configs)
        if not name.startswith("eval.")
        and not name.endswith("title")
        and len({shown(config, name) for config in configs if name in config}) > 1
    ]


def described(configs: Sequence[Flat | None], names: Sequence[str]) -> list[str]:
    """Writes some fields of each config: `model.num_layers=2, model.causal=True`.

    What a config lacks, or all of it where it is None, is taken for the most common.
    """
    common: dict[str, str] = {}
    for name in names:
        values = [shown(c, name) for c in configs if c is not None and name in c]
        common[name] = max(sorted(set(values)), key=values.count, default="unset")
    return [
        ", ".join(
            f"{name}={shown(config, name) if name in config else common[name]}"
            for name in names
        )
        for config in ({} if config is None else config for config in configs)
    ]
