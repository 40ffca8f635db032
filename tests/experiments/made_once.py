"""Folders that are made once for all the processes that run tests side by side."""

import fcntl
import os
import pathlib
from collections.abc import Callable

import pytest


def made_once(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    make: Callable[[pathlib.Path], None],
) -> pathlib.Path:
    """Returns a folder that the first process to ask has filled; others wait for it.

    Args:
        tmp_path_factory: pytest's.
        name: the folder's.
        make: fills it; it is empty.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # then each process has a folder in it
        base = base.parent
    folder, done = base / name, base / f"{name}.done"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
