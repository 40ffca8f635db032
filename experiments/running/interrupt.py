"""What ends training early; Ctrl-C is heard between dispatches, so nothing is lost."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType

STOPPED = 130
"""Exit code after Ctrl-C, a person's wish."""

RESTART = os.EX_TEMPFAIL  # 75
"""Exit code after SIGTERM, by which schedulers take a machine away, and where another
process of the same run was lost: the same command, started again, goes on."""


STOPPED_BY_HAND = "stopped; the same command goes on from there."


def hush_ctrl_c() -> None:
    """Lets Ctrl-C end this process with one line, also where nothing catches it."""

    def tell(kind, error, trace):
        if issubclass(kind, KeyboardInterrupt):
            print(STOPPED_BY_HAND, file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = tell


class StoppedError(Exception):
    """A run was asked to stop, and its state is on disk.

    Attributes:
        code: what the process should end with: `STOPPED` or `RESTART`.
    """

    def __init__(self, message: str, code: int = STOPPED):
        super().__init__(message)
        self.code = code


class DivergedError(Exception):
    """Training stopped before a step that is not finite; the message says more."""


class Interrupt:
    """While entered, the first Ctrl-C or SIGTERM sets `asked`; a second Ctrl-C kills.

    A second SIGTERM changes nothing: schedulers repeat it, and know of SIGKILL.
    Outside the main thread, where signals cannot be caught, it does nothing.

    Args:
        tell: called once, when asked.

    Attributes:
        asked: whether to stop.
        code: what the process should end with if asked: `STOPPED` or `RESTART`.

    Raises:
        StoppedError: on leaving, if it was asked to stop and nobody did.
    """

    def __init__(self, tell: Callable[[], None]):
        self.asked = False
        self.code = STOPPED
        self._tell = tell
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.asked and error is None:
            raise StoppedError(STOPPED_BY_HAND, self.code)

    def _hear(self, number: int, frame: object) -> None:
        if self.asked:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.asked = True
        self.code = STOPPED if number == signal.SIGINT else RESTART
        self._tell()
