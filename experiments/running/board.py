"""Points of curves in a file that TensorBoard reads, each on disk when written.

tensorboardX's own writer hands points to a thread: if the disk is full, the thread dies
and the next points wait for it for ever. Here the one who writes meets the error.
"""

import os
import pathlib
import time
from collections.abc import Mapping

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary


class Board:
    """A new file of events; those of earlier processes stay beside it.

    Args:
        folder: where TensorBoard looks, made if absent.
        purge_step: points of earlier files from this step on are not shown.

    Raises:
        OSError: if the folder cannot be written.
    """

    def __init__(self, folder: pathlib.Path, purge_step: int):
        folder.mkdir(parents=True, exist_ok=True)
        # Its name has the second; a process started again within it needs another.
        self._writer = EventsWriter(str(folder / "events"), f".{os.getpid()}")
        started = SessionLog(status=SessionLog.START)
        for event in (
            Event(step=purge_step, file_version="brain.Event:2"),
            Event(step=purge_step, session_log=started),
        ):
            self._writer.write_event(event)
        self._writer.flush()

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Writes a point of several curves.

        Args:
            step: steps taken.
            values: by the curve's name, such as `train/loss`.

        Raises:
            OSError: if it cannot be written.
        """
        points = [Summary.Value(tag=tag, simple_value=v) for tag, v in values.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=points))
        self._writer.write_event(event)
        self._writer.flush()

    def close(self) -> None:
        """Releases the file."""
        self._writer.close()
