"""A folder that cannot be written: one line that names it, and what to do about it."""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence

CODE = os.EX_IOERR  # 74
"""Exit code where a folder cannot be written: a person has to do something first."""

_REMEDIES = {
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "free space, or have the quota raised",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EROFS: "make it writable",
    errno.EIO: "look after its disk",
    errno.ENOTDIR: "remove the file that is where a folder should be",
    errno.EEXIST: "remove the file that is where a folder should be",
    errno.ENOENT: "look whether the folder above it is there and can hold folders",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ELOOP: "remove the links that lead to each other",
}
"""Of the errors that mean that a folder cannot be written, what helps."""


class StorageError(Exception):
    """A folder cannot be written; what was written before is whole."""


@contextlib.contextmanager
def explained(
    folder: pathlib.Path, runs: Sequence[pathlib.Path] | None = None
) -> Iterator[None]:
    """Turns errors of writing into a `StorageError`, and clears what was cut off.

    Args:
        folder: a run's workdir, or a study's.
        runs: of a study, the folders of the runs that are being written.

    Raises:
        StorageError: if the folder could not be written.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        number = _number(error, folder)
        if number is None or (number == errno.ENOENT and folder.exists()):
            raise  # a file that is missing in a folder is another matter
        path = getattr(error, "filename", None) or folder
        told = f"{path} cannot be written ({os.strerror(number)})."
        remedy = _REMEDIES[number].capitalize()
        if runs is None:
            told = f"{told}{_of_run(remedy, _cleared(folder))}"
        else:
            for run in runs:
                _cleared(run)
            told += f" {remedy}; the same command then goes on, and nothing is lost."
        raise StorageError(told) from error


def _cleared(run: pathlib.Path) -> list[int]:
    """Removes what was cut off of a run's checkpoints; returns the steps of others."""
    checkpoints = run / "checkpoints"
    # Unlike that of pathlib, this is False too where a name is too long for a folder.
    there = os.path.isdir(run)
    names = [path.name for path in checkpoints.glob("*")] if there else []
    for name in names:
        if "orbax-checkpoint-tmp" in name:  # it would only take the space that is short
            shutil.rmtree(checkpoints / name, ignore_errors=True)
    return sorted(int(name) for name in names if name.isdigit())


def _of_run(remedy: str, steps: list[int]) -> str:
    if not steps:
        return f" {remedy}, or choose another --workdir; the same command then starts."
    return (
        f" Its checkpoints of steps {steps} are untouched. {remedy}; the same command "
        f"then goes on from step {steps[-1]}."
    )


def _number(error: BaseException | None, folder: pathlib.Path) -> int | None:
    """Returns the number of a system's error of writing in the folder, if it is one."""
    if error is None:
        return None
    if isinstance(error, OSError) and error.errno is not None:
        path = error.filename
        elsewhere = path is not None and not _within(path, folder)
        return error.errno if error.errno in _REMEDIES and not elsewhere else None
    text = str(error)  # libraries in C++ have errors of their own
    for number in _REMEDIES:
        if os.strerror(number) in text:
            return number
    return _number(error.__cause__ or error.__context__, folder)


def _within(path: str | bytes | int, folder: pathlib.Path) -> bool:
    if isinstance(path, int):
        return True
    absolute = pathlib.Path(os.path.abspath(os.fsdecode(path)))
    folder = pathlib.Path(os.path.abspath(folder))
    return absolute.is_relative_to(folder) or folder.is_relative_to(absolute)
