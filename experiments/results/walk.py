"""Folders under a folder, without what runs keep by the thousand."""

import os
import pathlib
from collections.abc import Iterator

_OF_A_RUN = frozenset({"checkpoints", "tensorboard"})


def walk(top: str | os.PathLike) -> Iterator[tuple[pathlib.Path, list[str]]]:
    """Lists folders and the files in them; checkpoints of runs are not looked into.

    Args:
        top: where to begin.
    """
    for folder, inner, files in os.walk(os.path.abspath(top)):
        if "config.json" in files:  # a run's
            inner[:] = [name for name in inner if name not in _OF_A_RUN]
        yield pathlib.Path(folder), files
