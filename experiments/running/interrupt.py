"""What ends training early; Ctrl-C is heard between dispatches, so nothing is lost."""

import signal
import threading
from collections.abc import Callable
from types import TracebackType


class StoppedError(Exception):
    """A run was asked to stop, and its state is on disk."""


class DivergedError(Exception):
    """Training stopped before a step that is not finite; the message says more."""


class Interrupt:
    """While entered, the first Ctrl-C or SIGTERM sets `asked`; the second one kills.

    Outside the main thread, where signals cannot be caught, it does nothing.

    Args:
        tell: called once, when asked.
    """

    def __init__(self, tell: Callable[[], None]):
        self.asked = False
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

    def _hear(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._tell()
