"""Whether the workdir that all processes were given is one folder, which all see.

A folder of a host's own disk has the same name everywhere and is another one on every
host. Each process would then wait for its part of the others' checkpoints for ever.
"""

import json
import os
import pathlib
import socket
import time
import uuid

import jax

from experiments.running import processes
from ropejax.training.checkpoint_agreement import gathered

_PATIENCE_S = 10.0
"""A network's file system may show a new file so late."""


def check_shared(folder: pathlib.Path) -> None:
    """Raises an error in every process unless all of them see the same folder.

    The first one writes a file there, under a name that no other can know, and takes it
    away again when all have looked.

    Args:
        folder: the workdir of this process; the first one makes it if absent.

    Raises:
        ValueError: if another process does not see the file, naming it and its folder.
        StorageError: if the folder cannot be written; in the first process the error
            of the system.
    """
    if jax.process_count() == 1:
        return
    folder = folder.absolute()
    mark = folder / processes.as_the_first(f".seen-by-all.{uuid.uuid4().hex}")
    new = not folder.exists() if processes.is_first() else False
    try:
        with processes.failing_together():
            if processes.is_first():
                folder.mkdir(parents=True, exist_ok=True)
                mark.touch()
        own = [socket.gethostname(), str(folder), _appears(mark)]
        everyone = [json.loads(text) for text in gathered(json.dumps(own))]
    finally:
        if processes.is_first():
            mark.unlink(missing_ok=True)
    lines = [
        f"process {number} on {host} does not find it in its {path}"
        for number, (host, path, sees) in enumerate(everyone)
        if not sees
    ]
    if not lines:
        return
    if new:
        folder.rmdir()
    host, path, _ = everyone[0]
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    raise ValueError(
        f"the workdir is not shared: process 0 on {host} has written a file in {path}, "
        f"but {'; '.join(lines[:5])}{more}. Give all processes the same --workdir, on "
        "a disk that all their hosts see."
    )


def _appears(mark: pathlib.Path) -> bool:
    """Whether a file is there, or comes while one may still hope for it."""
    end = time.monotonic() + _PATIENCE_S
    while not _is_listed(mark):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _is_listed(mark: pathlib.Path) -> bool:
    """Asks for the whole list: a client of NFS remembers that a file was not there."""
    try:
        return mark.name in os.listdir(mark.parent)
    except OSError:
        return False
