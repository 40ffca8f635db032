"""Finds what `experiments.analysis` drew of trained runs, for the report to show."""

import dataclasses
import json
import os
import pathlib
import shlex
from collections.abc import Sequence

from experiments.results.store import Folders
from experiments.results.walk import walk


@dataclasses.dataclass(frozen=True)
class Analysis:
    """The pictures of one run.

    Attributes:
        run: the name of its folder, and what it is.
        pictures: PNG files, in order of name.
    """

    run: str
    pictures: tuple[pathlib.Path, ...]


def find(dirs: Folders) -> list[Analysis]:
    """Finds `analysis/*.png` beside `analysis/analysis.json`, at or under `dirs`."""
    found: dict[pathlib.Path, Analysis] = {}
    for top in [dirs] if isinstance(dirs, str | os.PathLike) else dirs:
        for numbers in sorted(_numbers(top)):
            folder = numbers.parent.resolve()
            pictures = tuple(sorted(folder.glob("[!.]*.png")))
            whole = tuple(p for p in pictures if not p.name.endswith(".tmp.png"))
            if whole:
                found[folder] = Analysis(_name(numbers), whole)
    return list(found.values())


def _numbers(top: str | os.PathLike) -> list[pathlib.Path]:
    name = "analysis.json"
    there = [f for f, files in walk(top) if f.name == "analysis" and name in files]
    return [folder / name for folder in there]


def command(stores: Sequence[pathlib.Path]) -> str:
    """Returns the command that analyses the first run or study there; empty if none.

    Args:
        stores: results folders.
    """
    for folder in (store.parent for store in stores):
        if (folder / "config.json").exists() or any(folder.glob("runs/*/config.json")):
            return shlex.join(["python", "-m", "experiments.analysis", _shown(folder)])
    return ""


def _shown(folder: pathlib.Path) -> str:
    """The path from here, if the folder lies below."""
    here = pathlib.Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _name(numbers: pathlib.Path) -> str:
    folder = numbers.resolve().parents[1].name
    try:
        about = json.loads(numbers.read_text())
        return f"{folder}: {about['title']}, step {about['step']}"
    except (ValueError, KeyError, TypeError):
        return folder
