"""Two processes of four CPU devices each: started, killed, looked at from outside."""

import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

ROOT = pathlib.Path(__file__).parents[2]
HEARTBEAT_S = 15
"""Of the pairs: seconds after which a process that says nothing is taken for dead."""

SMALL = {
    "task.name": "reverse_string",
    "model.num_layers": 1,
    "model.embed_dim": 8,
    "model.num_heads": 2,
    "optim.learning_rate": 1e-2,
    "train.batch_size": 8,
    "train.max_length": 4,
    "train.buckets": 1,
    "train.steps_per_dispatch": 2,
    "train.save_every": 2,
    "train.log_every": 2,
    "eval.lengths": "4",
    "eval.buckets": "4",
    "eval.samples": 8,
    "eval.draws": 1,
    "mesh.data": 4,
    "mesh.fsdp": 2,
}
"""A model of a few hundred parameters, dropout on."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclasses.dataclass
class Pair:
    """Two processes and the files that they write to."""

    processes: list[subprocess.Popen]
    logs: list[pathlib.Path]

    def said(self) -> list[str]:
        return [log.read_text(errors="replace") for log in self.logs]

    def running(self) -> list[subprocess.Popen]:
        return [one for one in self.processes if one.poll() is None]

    def wait(self, timeout_s: float) -> list[int | None]:
        """Returns the exit codes, None where a process has not ended in time."""
        end = time.monotonic() + timeout_s
        while self.running() and time.monotonic() < end:
            time.sleep(0.02)
        return [one.poll() for one in self.processes]

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Returns when the condition holds, or a process has ended by itself."""
        end = time.monotonic() + timeout_s
        while not condition() and len(self.running()) == len(self.processes):
            assert time.monotonic() < end, "\n".join(self.said())
            time.sleep(0.02)

    def send(self, number: signal.Signals, *which: int) -> None:
        for at in which or range(len(self.processes)):
            if self.processes[at].poll() is None:
                self.processes[at].send_signal(number)

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *exception: object) -> None:
        for one in self.running():
            one.kill()
        for one in self.processes:
            one.wait()


def start(
    words: Sequence[str],
    logs: pathlib.Path,
    per_process: Sequence[Sequence[str]],
    variables: Sequence[Mapping[str, str]] = ({}, {}),
) -> Pair:
    """Starts Python with the same words, and more words of each process.

    Args:
        words: after `python`.
        logs: folder for what they print, made if absent.
        per_process: what only one of them is told.
        variables: of the environment of each.
    """
    logs.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = str(ROOT)
    paths = [logs / f"{time.time_ns()}.{at}.log" for at in range(len(per_process))]
    started = []
    for path, own, more in zip(paths, per_process, variables, strict=False):
        with open(path, "w") as file:
            started.append(
                subprocess.Popen(
                    [sys.executable, *words, *own],
                    cwd=ROOT,
                    env=environment | more,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )
    return Pair(started, paths)


def start_training(
    folder: pathlib.Path,
    compiled: pathlib.Path | str = "",
    fields: Sequence[str] = (),
    per_process: Sequence[Sequence[str]] = ((), ()),
) -> Pair:
    """Starts the command that trains a small model in `folder`, twice.

    Args:
        folder: the workdir; logs are beside it.
        compiled: where compiled programs are kept.
        fields: `name=value`, over `SMALL`.
        per_process: further words of each.
    """
    words = training_words(folder, compiled, fields)
    return start_together(words, folder.with_name(folder.name + ".logs"), per_process)


def start_together(
    words: Sequence[str],
    logs: pathlib.Path,
    per_process: Sequence[Sequence[str]] = ((), ()),
) -> Pair:
    """Starts a command twice, as two processes that find each other.

    Args:
        words: the command, after `python`.
        logs: folder for what they print.
        per_process: further words of each.
    """
    words = [
        *words,
        *("--distributed", "--num_processes=2"),
        f"--coordinator=127.0.0.1:{free_port()}",
        f"--heartbeat_s={HEARTBEAT_S}",
    ]
    own = [(f"--process_id={at}", *more) for at, more in enumerate(per_process)]
    return start(words, logs, own)


def training_words(
    folder: pathlib.Path,
    compiled: pathlib.Path | str = "",
    fields: Sequence[str] = (),
) -> list[str]:
    """Returns the command, after `python`, that trains a small model in `folder`."""
    named = [*(f"{name}={value}" for name, value in SMALL.items()), *fields]
    module = "tests.experiments.cached_main" if compiled else "experiments.main"
    return [
        *("-m", module, "--config=configs/base.py", f"--workdir={folder}"),
        *(f"--config.{field}" for field in named),
        f"--compile_cache={compiled}",
    ]


def saved_steps(folder: pathlib.Path) -> list[int]:
    """The steps that have a whole checkpoint."""
    names = [path.name for path in (folder / "checkpoints").glob("*")]
    return sorted(int(name) for name in names if name.isdigit())
