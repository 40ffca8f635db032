"""SIGTERM, by which schedulers take a machine away, at any moment of a command.

In training, `Interrupt` hears it, and saves. At any other moment whatever is done is on
disk already, so the command ends there and then, with the exit code by which a
scheduler starts it again. It does so as by SIGKILL, which everything on disk survives:
an error that is raised in the middle of what is not Python can crash the process.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

from experiments.running.interrupt import RESTART

_GRACE_S = 5.0
"""So long the main thread may take to hear of it; it may be deep in a compilation."""

_MESSAGE = b"stopped by SIGTERM; the same command goes on from there.\n"


def heed_sigterm() -> None:
    """Lets SIGTERM end this process with `RESTART`, from here on.

    Python hears of a signal only when the main thread is back from what it waits for, a
    compilation or other processes, which can take minutes. So a thread is told of it at
    once, and ends the process if the main thread does not.

    Outside the main thread, where signals cannot be caught, and where it is called
    again, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is _leave:
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_end_if_busy, args=(heard,), daemon=True).start()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(Exception):  # it may be in the middle of a print
        sys.stdout.flush()
    _end()


def _end() -> NoReturn:
    os.write(2, _MESSAGE)
    os._exit(RESTART)


def _end_if_busy(heard: int) -> None:
    while number := os.read(heard, 1):
        if number[0] == signal.SIGTERM and signal.getsignal(number[0]) is _leave:
            time.sleep(_GRACE_S)
            _end()
