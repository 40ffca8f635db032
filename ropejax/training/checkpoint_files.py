"""What can be seen of a checkpoint's files before its arrays are read.

Arrays are read by many threads at once. Where one of them fails, the others go on, and
print pages of errors of their own when nobody waits for them any more; so what can be
known to be damaged is not read at all.
"""

import errno
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any


class UnreadableError(Exception):
    """The checkpoint may be whole, but this user must not read it."""


def check_readable(checkpoint: pathlib.Path) -> None:
    """Raises `UnreadableError` for the first file that may not be read.

    Args:
        checkpoint: the folder of one step.

    Raises:
        UnreadableError: if there is such a file.
        FileNotFoundError: if one was deleted meanwhile.
    """
    for path in [checkpoint, *sorted(checkpoint.rglob("*"))]:
        wanted = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
        if not os.path.lexists(path):
            raise FileNotFoundError(f"{path} is gone")
        if not os.access(path, wanted):
            raise UnreadableError(
                f"{path} cannot be read ({os.strerror(errno.EACCES)}); make it "
                "readable, or use another workdir."
            )


def check_files(state: pathlib.Path) -> None:
    """Raises an error if the files that describe the arrays are not as written.

    Args:
        state: the folder of the arrays of one step.

    Raises:
        ValueError: if one is no JSON.
        OSError: if one is missing.
    """
    for path in sorted(state.glob("array_metadatas/*")):
        try:
            json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path.relative_to(state)}: {error}") from None
    manifest = state / "manifest.ocdbt"
    if list(state.glob("ocdbt.process_*")) and not manifest.exists():
        raise OSError(f"{manifest.name} is missing")


def check_metrics(found: Any) -> None:
    """Raises ValueError unless these are numbers by name.

    Args:
        found: what a file of metrics holds.
    """
    if not isinstance(found, Mapping):
        raise ValueError(f"a {type(found).__name__}, and not numbers by name")
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is {value!r}, and no number")


def remove(path: pathlib.Path) -> None:
    """Removes a file, or a folder that is in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
