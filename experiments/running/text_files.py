"""The file that a run reads its text from must stay as it is.

Which examples a step sees, and which part is held out, follow from its bytes. So their
hash is kept in the run's folder, and compared when the run is resumed or scored.
"""

import hashlib
import json
import pathlib

from ropejax.tasks import Task
from ropejax.tasks.text import file_bytes

_FILE = "text.json"


def hash_of(task: Task) -> str | None:
    """Returns the SHA-256 of the file that a task reads, None if it reads none."""
    path = getattr(task, "path", "")
    return hashlib.sha256(file_bytes(path)).hexdigest() if path else None


def check(folder: pathlib.Path, task: Task) -> None:
    """Raises ValueError if a run's file is not the one that it was trained on.

    Args:
        folder: the run's workdir.
        task: the run's.
    """
    found = hash_of(task)
    try:
        known = json.loads((folder / _FILE).read_text())
    except (OSError, ValueError):
        return  # of a run that is new, or of an earlier version
    if found is not None and known["sha256"] != found:
        raise ValueError(
            f"{task.path} is not the text that the run in {folder} was trained on "
            f"({known['bytes']} bytes then, {file_bytes(task.path).size} now): other "
            "examples would follow, some of them held out before. Bring it back, or "
            "choose another --workdir."
        )


def record(folder: pathlib.Path, task: Task) -> None:
    """Writes down which file a run is trained on, if it reads one.

    Args:
        folder: the run's workdir, which exists.
        task: the run's.
    """
    found = hash_of(task)
    if found is None or (folder / _FILE).exists():
        return
    about = {"path": task.path, "bytes": file_bytes(task.path).size, "sha256": found}
    temporary = folder / f"{_FILE}.tmp"
    temporary.write_text(json.dumps(about, indent=2) + "\n")
    temporary.replace(folder / _FILE)
