"""What a study's folder holds of other settings than the study has now."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.running import workdir
from experiments.running.extending import raised_again
from experiments.study.folder import StudyFolder
from experiments.study.sweep import StudyRun

SAMPLE = 20
"""Runs of other settings that are looked into: enough to find what was changed."""
SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Others:
    """Runs in the folder that the study, as its file is now, does not have.

    Attributes:
        count: how many they are.
        fields: fields in which they differ from the study's runs most like them, each
            with a value there and one here.
        begins: how many runs the study has that the folder does not.
    """

    count: int
    fields: Mapping[str, tuple[Any, Any]]
    begins: int

    def __str__(self) -> str:
        shown = [
            f"{name} is {there!r} there and {here!r} here"
            for name, (there, here) in list(self.fields.items())[:SHOWN]
        ]
        more = len(self.fields) - len(shown)
        shown += [f"and {more} fields more"] if more else []
        return f"{self.count} runs that this study does not have: {'; '.join(shown)}"


def others(folder: StudyFolder, runs: Sequence[StudyRun]) -> Others | None:
    """Returns what the folder holds besides a study's runs; None if it is nothing.

    A longer training and fields that alter none (`workdir.FREE`) make no other run.

    Args:
        folder: the study's.
        runs: the study's, as its file is now.
    """
    there = {path.parent.name: path for path in folder.run("").glob("*/config.json")}
    here = {run.run_id for run in runs}
    left = sorted(there.keys() - here)
    if not left:
        return None
    flat = [workdir.flat(run.config) for run in runs]
    fields: dict[str, tuple[Any, Any]] = {}
    for run_id in left[:SAMPLE]:
        found = workdir.read_config(there[run_id].parent)
        if found is not None:
            fields |= _difference(workdir.flat(found), flat)
    return Others(len(left), fields, len(here - there.keys()))


def extended(folder: StudyFolder, runs: Sequence[StudyRun]) -> str:
    """Says how many runs go on for more steps than their schedule had; empty if none.

    Args:
        folder: the study's.
        runs: the study's, as its file is now.
    """
    said = [
        text
        for run in runs
        if (text := raised_again(_config_there(folder, run.run_id), run.config))
    ]
    return f"{len(said)} runs are extended: {said[0]}" if said else ""


def _config_there(folder: StudyFolder, run_id: str) -> dict[str, Any] | None:
    """The config in a run's folder; one that cannot be read is for later to tell."""
    try:
        return workdir.read_config(folder.run(run_id))
    except ValueError:
        return None


def _difference(
    found: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Where a config differs from that of the runs which is most like it."""
    alike = [run for run in runs if run["task.name"] == found["task.name"]] or runs
    differing = [
        {
            name: (found.get(name), run.get(name))
            for name in sorted(found.keys() | run.keys())
            if found.get(name) != run.get(name) and not name.startswith(workdir.FREE)
        }
        for run in alike
    ]
    return min(differing, key=len)
