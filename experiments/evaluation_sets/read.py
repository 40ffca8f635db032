"""Fixed evaluation sets read back, and checked against their hash."""

import json
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow_datasets as tfds

from experiments.evaluation_sets.builder import SPLIT
from experiments.evaluation_sets.content import (
    NAME,
    VERSION,
    FixedSet,
    SetKey,
    content_hash,
    folder_text,
    task_text,
)
from ropejax.tasks import Autoregressive, Task


def read_set(key: SetKey, data_dir: str | pathlib.Path) -> FixedSet:
    """Returns a set whose content is as it was written.

    Args:
        key: which set.
        data_dir: where sets are.

    Raises:
        ValueError: if there is no such set, or it is damaged.
    """
    folder = key.folder(data_dir)
    if not folder.exists():
        raise ValueError(
            f"there is no evaluation set {folder}; make it by: "
            f"{command([key], data_dir)}"
        )
    try:
        about = json.loads((folder / "metadata.json").read_text())
        recorded = about["sha256"]
        check_is_of(key, about, folder)
        source = tfds.builder_from_directory(folder).as_data_source(SPLIT)
        rows = tuple(source[at] for at in range(len(source)))
        found = content_hash(rows)
    except OtherTaskError:
        raise
    except Exception as error:  # whatever readers of JSON and array_record raise
        raise _damaged(key, data_dir, f"it cannot be read ({error})") from error
    if found != recorded:
        raise _damaged(
            key, data_dir, f"its content has the hash {found}, not {recorded}"
        )
    return FixedSet(key, rows, recorded)


class OtherTaskError(ValueError):
    """A folder has the name of a set, and holds examples of another task."""


def check_is_of(key: SetKey, about: Mapping[str, Any], folder: pathlib.Path) -> None:
    """Raises OtherTaskError unless a set's metadata are of the task of its key."""
    task, there = task_text(key.task), about.get("task")
    if there not in (None, task):
        raise OtherTaskError(
            f"{folder} holds examples of {there}, not of {task}, which would have the "
            "same name there; choose another --data-dir for these."
        )


def held_lengths(
    task: Task, data_dir: str | pathlib.Path
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Returns the lengths of which a folder has a set, by samples and seed.

    Args:
        task: the task that a model was trained on.
        data_dir: where sets are.
    """
    own = task.task if isinstance(task, Autoregressive) else task
    start = re.escape(folder_text(own))
    numbers = re.compile(start + r"-length_(\d+)-samples_(\d+)-seed_(\d+)")
    found: dict[tuple[int, int], set[int]] = {}
    for folder in (pathlib.Path(data_dir) / NAME).glob(f"*/{VERSION}"):
        if match := numbers.fullmatch(folder.parent.name):
            length, samples, seed = map(int, match.groups())
            found.setdefault((samples, seed), set()).add(length)
    return {key: tuple(sorted(lengths)) for key, lengths in sorted(found.items())}


def read_sets(
    task: Task,
    lengths: Iterable[int],
    data_dir: str | pathlib.Path,
    *,
    samples: int,
    seed: int,
) -> dict[int, FixedSet]:
    """Returns the sets of a task by length.

    Args:
        task: the task that a model was trained on.
        lengths: input lengths, in symbols.
        data_dir: where sets are.
        samples: examples a set.
        seed: of the examples.

    Raises:
        ValueError: if any is missing, or damaged.
    """
    keys = check_held(task, lengths, data_dir, samples=samples, seed=seed)
    return {key.length: read_set(key, data_dir) for key in keys}


def check_held(
    task: Task,
    lengths: Iterable[int],
    data_dir: str | pathlib.Path,
    *,
    samples: int,
    seed: int,
) -> list[SetKey]:
    """Returns which sets those of a task are, if all are there; reads none.

    Args:
        task: the task that a model was trained on.
        lengths: input lengths, in symbols.
        data_dir: where sets are.
        samples: examples a set.
        seed: of the examples.

    Raises:
        ValueError: if any is missing, with the command that makes them.
    """
    own = task.task if isinstance(task, Autoregressive) else task
    keys = [SetKey(own, length, samples, seed) for length in lengths]
    missing = [key for key in keys if not key.folder(data_dir).exists()]
    if missing:
        raise ValueError(
            f"{data_dir} lacks {len(missing)} of {len(keys)} evaluation sets, such as "
            f"{missing[0].name}; make them by: {command(missing, data_dir)}"
        )
    return keys


def command(keys: Iterable[SetKey], data_dir: str | pathlib.Path) -> str:
    """Returns the command line that makes sets of one task, samples and seed."""
    keys = list(keys)
    lengths = ",".join(_ranges([key.length for key in keys]))
    return " ".join(
        [
            "python -m experiments.evaluation_sets",
            f"--tasks={shlex.quote(task_text(keys[0].task))}",
            f"--lengths={lengths} --samples={keys[0].samples} --seed={keys[0].seed}",
            f"--data-dir={shlex.quote(str(data_dir))}",
        ]
    )


def _ranges(lengths: list[int]) -> list[str]:
    """Returns lengths as text, `first:last` where they follow each other."""
    groups: list[list[int]] = []
    for length in sorted(set(lengths)):
        if groups and length == groups[-1][-1] + 1:
            groups[-1].append(length)
        else:
            groups.append([length])
    return [
        str(group[0]) if len(group) == 1 else f"{group[0]}:{group[-1]}"
        for group in groups
    ]


def _damaged(key: SetKey, data_dir: str | pathlib.Path, why: str) -> ValueError:
    folder = key.folder(data_dir)
    return ValueError(
        f"the evaluation set {folder} is damaged: {why}. Delete that folder, and make "
        f"it again by: {command([key], data_dir)}"
    )
