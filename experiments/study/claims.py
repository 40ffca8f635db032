"""Who works on what in a folder that workers share: claims that outlive nobody.

A claim is a file, made with O_EXCL, so that only one worker has it; its holder touches
it now and then. A claim is *stale*, and may be taken over,

* if its holder gave it back, which sets its time to 0;
* if its holder was on this machine and has ended: it held a lock on the file (flock),
  which is free again. Locks of other machines are not believed, since not every shared
  file system passes them on;
* if its holder was on another machine (or locks do not work here), and has not touched
  it for `stale_s` seconds, by the file system's own clock. On one machine time says
  nothing: a laptop that slept has only old claims, and all their holders alive.

Claims of a name are numbered. Taking over makes the next number, again with O_EXCL, and
the highest number holds. So no file is ever renamed or deleted on the way, where
another worker's might be hit; and a holder that was only asleep sees a higher number
than its own and stops. Files go when the work is done and recorded elsewhere.
"""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import re
import secrets
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

HEARTBEAT_S = 20.0
STALE_S = 600.0


class LostClaimError(Exception):
    """Another worker has taken the work over, having thought this one dead."""


class Holder(NamedTuple):
    """Who has claimed a name.

    Attributes:
        number: of the claim; the highest of a name holds.
        host: name of the machine.
        pid: of the process, there.
        machine: tells machines apart, also those that share a name.
    """

    number: int
    host: str
    pid: int
    machine: str


class Claims:
    """The claims of one folder, as one worker sees and holds them; a context manager.

    Args:
        folder: shared by all workers; made if absent.
        heartbeat_s: seconds between two touches of what is held.
        stale_s: seconds without a touch after which a claim may be taken over.

    Raises:
        ValueError: if claims would grow stale between two touches.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        stale_s: float = STALE_S,
    ):
        if not 0 < heartbeat_s <= stale_s / 3:
            raise ValueError(
                f"heartbeat_s must be above 0 and at most a third of {stale_s=}, so "
                f"that a slow worker is not taken for dead; got {heartbeat_s}."
            )
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stale_s, self._heartbeat_s = stale_s, heartbeat_s
        self._held: dict[str, tuple[pathlib.Path, int]] = {}
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "Claims":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        for name in self.held:
            self.release(name)

    def take(self, name: str) -> bool:
        """Claims a name; False if another worker has it, or got it first.

        A name of letters, digits and `._=,+-`, as a run_id is.
        """
        holder = self.holder(name)
        if holder is not None and not self._is_stale(name, holder):
            return False
        number = 0 if holder is None else holder.number + 1
        path = self._path(name, number)
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with contextlib.suppress(OSError):  # no locks here: the heartbeat must do
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = {"host": socket.gethostname(), "pid": os.getpid(), "machine": machine()}
        os.write(file, json.dumps(about).encode())
        os.fsync(file)
        with self._lock:
            self._held[name] = path, file
        return True

    def release(self, name: str, *, done: bool = False) -> None:
        """Gives a name back; `done` also removes its files, as nobody needs it more."""
        with self._lock:
            path, file = self._held.pop(name)
            self._lost.discard(name)
        if done:
            for number in self._numbers(name):
                with contextlib.suppress(FileNotFoundError):
                    self._path(name, number).unlink()
        else:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, (0, 0))
        os.close(file)

    @property
    def held(self) -> list[str]:
        """The names that this worker holds."""
        return list(self._held)

    def check(self, name: str) -> None:
        """Raises LostClaimError if another worker has taken a held name over."""
        if name in self._lost:
            raise LostClaimError(
                f"{name}: another worker has taken it over, since this one was not "
                f"heard of for {self._stale_s:g} seconds."
            )

    def holder(self, name: str) -> Holder | None:
        """Returns who claimed a name last, stale or not; None if nobody did."""
        numbers = self._numbers(name)
        return self._read(name, max(numbers)) if numbers else None

    def active(self) -> dict[str, Holder]:
        """Returns the names with a claim that is not stale, and their holders."""
        numbers: dict[str, int] = {}
        for match in map(_NAME.fullmatch, os.listdir(self.folder)):
            if match:
                number = max(int(match[2]), numbers.get(match[1], 0))
                numbers[match[1]] = number
        now = functools.cache(self._now)  # one look at the clock for all
        holders = {name: self._read(name, numbers[name]) for name in sorted(numbers)}
        return {
            name: holder
            for name, holder in holders.items()
            if not self._is_stale(name, holder, now)
        }

    def _path(self, name: str, number: int) -> pathlib.Path:
        return self.folder / f"{name}@{number}"

    def _numbers(self, name: str) -> list[int]:
        return [
            int(path.name.rpartition("@")[2])
            for path in self.folder.glob(f"{_escaped(name)}@*")
        ]

    def _read(self, name: str, number: int) -> Holder:
        try:
            about = json.loads(self._path(name, number).read_text())
            return Holder(number, about["host"], about["pid"], about["machine"])
        except (OSError, ValueError, KeyError):
            # Being written just now, or its writer was killed while it wrote.
            return Holder(number, "?", 0, "?")

    def _is_stale(
        self, name: str, holder: Holder, now: Callable[[], float] | None = None
    ) -> bool:
        path = self._path(name, holder.number)
        try:
            touched = path.stat().st_mtime
        except FileNotFoundError:
            return True  # done meanwhile: whoever claims it will find that out
        if touched == 0:
            return True
        if holder.machine == machine() and (free := _is_free(path)) is not None:
            return free
        # One without an author was made by a process that was killed at that moment.
        limit = self._stale_s if holder.pid else 3 * self._heartbeat_s
        return (now or self._now)() - touched > limit

    def _now(self) -> float:
        """The time by the clock that dates claims, which may be another machine's."""
        probe = self.folder / f".clock-{secrets.token_hex(6)}"
        probe.touch()
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink()

    def _beat(self) -> None:
        while not self._stop.wait(self._heartbeat_s):
            self.beat()

    def beat(self) -> None:
        """Touches what is held, and notes what was lost; called by a thread."""
        with self._lock:
            held = dict(self._held)
        for name, (path, _) in held.items():
            with contextlib.suppress(OSError):
                if self._path(name, max(self._numbers(name), default=-1)) != path:
                    self._lost.add(name)
                    continue
                with self._lock:
                    if name in self._held:
                        os.utime(path)


_NAME = re.compile(r"([^@]+)@(\d+)")


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _is_free(path: pathlib.Path) -> bool | None:
    """Tells if no process holds the lock of a claim; None where locks do not work."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    else:
        return True
    finally:
        os.close(file)


def machine() -> str:
    """Returns what processes under one kernel share, and no other machine has."""
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()
