"""A folder that cannot be written: one line that names it, and what to do about it."""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

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
}
"""Of the errors that mean that a folder cannot be written, what helps."""


class StorageError(Exception):
    """A folder cannot be written; what was written before is whole."""


@contextlib.contextmanager
def explained(folder: pathlib.Path) -> Iterator[None]:
    """Turns errors of writing into a `StorageError`, and clears what was cut off.

    Args:
        folder: a run's workdir.

    Raises:
        StorageError: if the folder could not be written.
    """
    try:
        yield
    except Exception as error:
        number = _number(error, folder)
        if number is None:
            raise
        raise StorageError(_told(error, number, folder)) from error


def _told(error: Exception, number: int, folder: pathlib.Path) -> str:
    checkpoints = folder / "checkpoints"
    names = [path.name for path in checkpoints.glob("*")] if folder.is_dir() else []
    for name in names:
        if "orbax-checkpoint-tmp" in name:  # it would only take the space that is short
            shutil.rmtree(checkpoints / name, ignore_errors=True)
    steps = sorted(int(name) for name in names if name.isdigit())
    kept = f" Its checkpoints of steps {steps} are untouched." if steps else ""
    onwards = f"goes on from step {steps[-1]}" if steps else "starts"
    path = getattr(error, "filename", None) or folder
    other = "" if steps else ", or choose another --workdir"
    return (
        f"{path} cannot be written ({os.strerror(number)}).{kept} "
        f"{_REMEDIES[number].capitalize()}{other}; the same command then {onwards}."
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
    return absolute.is_relative_to(os.path.abspath(folder))
