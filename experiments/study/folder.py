"""The folder of a study: what is finished in it, and what failed.

study.json          which study this is, and the command that began it
runs/<run_id>/      config, checkpoints and TensorBoard files, as of a run alone
results/            rows of all runs: one store
claims/             who works on what (`claims.py`)
done/<run_id>.json  what is finished, and what it cost; written after its last row
failed/<run_id>.txt why a run was given up
logs/               what workers printed
"""

import json
import os
import pathlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments import lengths
from experiments.building.tested_positions import label_at_test
from experiments.results import store as results
from experiments.results.shards import sync_folder
from experiments.running.workdir import STUDY
from experiments.study.sweep import StudyRun


class StudyFolder:
    """Paths and marks of a study's folder; nothing is made before it is needed.

    Args:
        path: the folder.
        fixed_sets: whether runs are scored on fixed evaluation sets; one that was
            scored on fresh examples is then not finished, and the other way round.
    """

    def __init__(self, path: str | pathlib.Path, *, fixed_sets: bool = False):
        self.path = pathlib.Path(path)
        self._fixed_sets = fixed_sets
        self.results = self.path / "results"
        self.claims = self.path / "claims"
        self.logs = self.path / "logs"
        self._marks: dict[str, dict[str, Any]] = {}  # as last read

    def run(self, run_id: str) -> pathlib.Path:
        """Returns the folder of a run."""
        return self.path / "runs" / run_id

    def check(self, study: str) -> dict[str, Any]:
        """Returns what study.json says of a study; nothing if it is not there.

        Raises:
            ValueError: if the folder holds another study or a single run, or the file
                is damaged.
        """
        if os.path.exists(self.path / "config.json"):
            raise ValueError(
                f"{self.path} holds a single run (config.json), whose results those of "
                f"a study would be mixed with; choose another --workdir for {study!r}."
            )
        path = self.path / STUDY
        if not path.exists():
            return {}
        there = _read(path)
        if there is None or not {"study", "command"} <= there.keys():
            raise ValueError(
                f"{path} cannot be read; remove it, and the same command writes it "
                "again."
            )
        if there["study"] != study:
            raise ValueError(
                f"{self.path} holds the study {there['study']!r}, begun by "
                f"{there['command']!r}; choose another --workdir for {study!r}."
            )
        return there

    def begin(self, study: str, command: str, runs: Sequence[str]) -> None:
        """Writes study.json, or in it the runs that the study has now.

        Args:
            study: its name.
            command: that began it.
            runs: their ids, in the order of the sweep.

        Raises:
            ValueError: as `check`.
        """
        there = self.check(study)
        if there.get("order") != list(runs):
            about = {"study": study, "command": command} | there
            about |= {"runs": len(runs), "order": list(runs)}
            _write_whole(self.path / STUDY, about)

    def finish(self, run: StudyRun, cost: Mapping[str, Any]) -> None:
        """Marks a run as finished; its rows must be on disk."""
        about = {"steps": run.config["train"]["steps"]}
        about |= {"evaluations": list(run.evaluations), "cost": dict(cost)}
        about["fixed_sets"] = self._fixed_sets
        _write_whole(self._mark(run.run_id), about)

    def is_finished(self, run: StudyRun) -> bool:
        """True if all that is asked of a run was done."""
        if self._covers(self._marks.get(run.run_id), run):
            return True
        mark = _read_mark(self._mark(run.run_id))
        if mark is None:
            return False
        self._marks[run.run_id] = mark
        return self._covers(mark, run)

    def finished(self, runs: Iterable[StudyRun]) -> set[str]:
        """Returns the ids of those runs that are finished, by one look at the folder.

        One that was finished a moment ago may be missed; `is_finished` tells.
        """
        try:
            there = set(os.listdir(self.path / "done"))
        except FileNotFoundError:
            return set()
        return {
            run.run_id
            for run in runs
            if self._mark(run.run_id).name in there and self.is_finished(run)
        }

    def costs(self) -> dict[str, dict[str, Any]]:
        """Returns what finished runs cost, by run_id."""
        for path in (self.path / "done").glob("[!.]*.json"):
            mark = self._marks.get(path.stem) or _read_mark(path)
            if mark is not None:
                self._marks[path.stem] = mark
        return {name: mark["cost"] for name, mark in self._marks.items()}

    def reopen_lost(self, runs: Iterable[StudyRun]) -> list[str]:
        """Takes the mark from finished runs whose rows are gone, and returns them.

        They lack rows if a file of results was damaged; what was read of them stays.
        """
        runs = list(runs)
        done = self.finished(runs)
        finished = [run for run in runs if run.run_id in done]
        if not finished:
            return []
        scored = self._scored_lengths()
        lost = [run.run_id for run in finished if not _is_scored(run, scored)]
        for run_id in lost:
            self._marks.pop(run_id, None)
            self._mark(run_id).unlink(missing_ok=True)
        return lost

    def fail(self, run_id: str, why: str) -> None:
        """Notes why a run was given up."""
        path = self.path / "failed" / f"{run_id}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(why)

    def failures(self) -> dict[str, pathlib.Path]:
        """Returns the runs that were given up, and where it says why."""
        return {path.stem: path for path in (self.path / "failed").glob("*.txt")}

    def forget_failures(self) -> None:
        """Lets runs that were given up be tried again."""
        for path in self.failures().values():
            path.unlink(missing_ok=True)

    def _covers(self, mark: Mapping[str, Any] | None, run: StudyRun) -> bool:
        return (
            mark is not None
            and mark["fixed_sets"] == self._fixed_sets
            and mark["steps"] == run.config["train"]["steps"]
            and all(one in mark["evaluations"] for one in run.evaluations)
        )

    def _mark(self, run_id: str) -> pathlib.Path:
        return self.path / "done" / f"{run_id}.json"

    def _scored_lengths(self) -> dict[tuple[str, int, str], set[tuple]]:
        """Returns what each row was scored on, by run, step and test-time positions."""
        try:
            columns = {"evaluation": _SCORED}
            read = results.read_kinds(self.results, ["evaluation"], columns=columns)
        except FileNotFoundError:
            return {}
        table = read["evaluation"]
        names = ("run_id", "step", "test_positions", "set_hash", *_SCORED)
        found: dict[tuple[str, int, str], set[tuple]] = {}
        columns = (table[name].to_pylist() for name in names)
        for run_id, step, positions, content, *rest in zip(*columns, strict=True):
            if (content is not None) == self._fixed_sets:
                found.setdefault((run_id, step, positions), set()).add(tuple(rest))
        return found


_SCORED = ("length", "rows", "position_draws", "eval_seed")


def _is_scored(
    run: StudyRun, scored: Mapping[tuple[str, int, str], set[tuple]]
) -> bool:
    for settings in run.evaluations:
        tested = label_at_test({**run.config, "eval": settings})
        rows = scored.get((run.run_id, run.config["train"]["steps"], tested), set())
        same = (settings["samples"], settings["draws"], settings["seed"])
        wanted = lengths.parse(settings["lengths"])
        if any((length, *same) not in rows for length in wanted):
            return False
    return True


def _read(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns a JSON object; None if the file is not there, or damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _read_mark(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns a mark; of a damaged one None, so that its run is looked into again."""
    found = _read(path)
    whole = {"steps", "evaluations", "cost", "fixed_sets"}
    return found if found is not None and whole <= found.keys() else None


def _write_whole(path: pathlib.Path, about: Mapping[str, Any]) -> None:
    """Writes a JSON file, whole or not at all, and on disk on return."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(temporary, "w") as file:
        json.dump(about, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
