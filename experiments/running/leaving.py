"""How one of several processes ends, so that none waits for ever for one that is gone.

A process that is killed takes its connections with it: the others' next sum over
processes fails, within half a minute, and they end with exit code `RESTART`. If the
first process is killed, JAX itself ends the others at once, by SIGABRT with a message.
A process that is silent but not dead is noticed by its heartbeats (--heartbeat_s), and
then JAX ends all of them.
"""

import os
import sys
import threading

from experiments.running.interrupt import RESTART

GRACE_S = 5.0
"""How long a process that fails waits for the others to end with it."""

_SIGNS = (
    "gloo",
    "nccl",
    "unavailable",
    "deadline_exceeded",
    "aborted",
    "cancelled",
    "heartbeat",
    "connection closed",
    "connection reset",
    "broken pipe",
)
"""In messages of JAX and its transports, where another process cannot be reached."""


class LostError(Exception):
    """Another process of the run has ended, or cannot be reached."""


def lost(error: BaseException) -> LostError | None:
    """Returns what to tell if an error came of another process, else None.

    Args:
        error: what JAX raised.
    """
    if not _several():
        return None
    import jax

    if not isinstance(error, jax.errors.JaxRuntimeError):
        return None
    text = str(error)
    if not any(sign in text.lower() for sign in _SIGNS):
        return None
    reason = text.strip().split("\n")[0][:200]
    return LostError(
        f"process {jax.process_index()} of {jax.process_count()} has lost another one, "
        f"whose log may say why ({reason}). Start all of them again with the same "
        "command; it goes on from the newest checkpoint."
    )


def before_exit(code: int) -> None:
    """Sees to it that a process that fails alone does not wait for the others.

    Args:
        code: what it ends with.
    """
    if code and _several():
        timer = threading.Timer(GRACE_S, _end, (code,))
        timer.daemon = True
        timer.start()


def end_alone(code: int = RESTART) -> None:
    """Ends this process here and now: nothing waits for a process that is gone."""
    _end(code)


def _end(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _several() -> bool:
    """Whether this process has joined others; False as long as JAX is not imported."""
    jax = sys.modules.get("jax")
    return (
        jax is not None and jax.distributed.is_initialized() and jax.process_count() > 1
    )
