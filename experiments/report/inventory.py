"""What runs a report is made of: their configs, seeds, versions and devices."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from experiments.report import run_configs
from experiments.report.run_configs import Flat


@dataclasses.dataclass(frozen=True)
class Origin:
    """What some runs have in common besides their config.

    Attributes:
        name: a letter, to refer to it.
        device: what they ran on.
        versions: of packages, by name.
        commit: of the code; followed by "with changes" if files differed from it.
        runs: their ids.
    """

    name: str
    device: str
    versions: Mapping[str, str]
    commit: str
    runs: tuple[str, ...]


def origins(run_rows: pa.Table) -> list[Origin]:
    """Groups runs by device, versions and commit, the most common first.

    Args:
        run_rows: rows of kind "run", one a run.
    """
    groups: dict[tuple[str, str, str], list[str]] = {}
    names = ("run_id", "device", "versions", "git_commit", "git_dirty")
    columns = (run_rows[name].to_pylist() for name in names)
    for run_id, device, versions, commit, dirty in zip(*columns, strict=True):
        code = (commit or "unknown") + (" with changes" if dirty else "")
        key = device or "unknown", versions or "{}", code
        groups.setdefault(key, []).append(run_id)
    found = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        Origin(_letters(place), device, _mapping(versions), code, tuple(runs))
        for place, ((device, versions, code), runs) in enumerate(found)
    ]


def _mapping(text: str) -> dict[str, str]:
    value = json.loads(text)
    return value if isinstance(value, dict) else {"versions": str(value)}


def _letters(place: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    letters = ""
    place += 1
    while place:
        place, digit = divmod(place - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def shared_and_varying(configs: Sequence[Flat]) -> tuple[dict[str, Any], list[str]]:
    """Tells which fields all configs share, with their values, and which vary."""
    varying = run_configs.differing(configs, free=True)
    first = configs[0] if configs else {}
    shared = {name: value for name, value in first.items() if name not in varying}
    return shared, varying
