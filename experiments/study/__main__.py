r"""Runs a whole study: many models, by one command that can be stopped at any moment.

    python -m experiments.study --config=configs/studies/ruoss2023.py:form=mini \
        --workdir=runs/ruoss_mini --workers=2
    python -m experiments.report runs/ruoss_mini

The same command goes on where it was stopped or killed; what was finished is not done
again. Any number of workers, on any machines that share the folder, may work on a study
at the same time. As a Slurm array of sixteen jobs, each of which begins with its own
part of the runs and then helps with the others:

    python -m experiments.study --config=... --workdir=... \
        --shard=$SLURM_ARRAY_TASK_ID/16

--dry-run lists the runs, their order and what they cost, and trains nothing.
"""

import errno
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from experiments import command
from experiments.running import storage
from experiments.study import sweep
from experiments.study.select import select

_PARENT = "ROPEJAX_STUDY_PARENT"
"""Variable by which a worker knows the process that started it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument("--config", metavar="FILE[:ARG]", help="the study")
    parser.add_argument("--workdir", metavar="DIR", help="where everything is written")
    parser.add_argument(
        "--workers",
        type=command.whole_number,
        default=1,
        metavar="N",
        help="processes on this machine",
    )
    parser.add_argument(
        "--shard", default="1/1", metavar="I/N", help="part to begin with: 1/N to N/N"
    )
    parser.add_argument(
        "--members-at-once",
        type=command.whole_number,
        metavar="N",
        help="models of one architecture that a program trains at once; 1: one after "
        "another (default: 1 on a CPU, as many as fit on an accelerator)",
    )
    parser.add_argument(
        "--stale",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="silence after which a worker on another machine counts as dead, and its "
        "runs are taken over (default: %(default)g; on this machine: at once)",
    )
    parser.add_argument(
        "--sets",
        metavar="DIR",
        help="score fixed sets of experiments.evaluation_sets, instead of fresh ones",
    )
    parser.add_argument(
        "--retry", action="store_true", help="try runs that failed before again"
    )
    parser.add_argument(
        "--extend",
        action="store_true",
        help="keep runs of other settings that the folder holds, from before the "
        "study's file was changed, beside those of now",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a part of the runs: task.name=bucket_sort, train.seed=0; given again "
        "with the same field, either value counts",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list runs and costs, and stop"
    )
    given, rest = command.parse(parser, argv)
    for name in ("config", "workdir"):
        if getattr(given, name) is None:
            raise command.UsageError(f"--{name} is missing; --help shows an example.")
    for name in ("workers", "members_at_once", "stale"):
        number = getattr(given, name)
        if number is not None and not number > 0:
            raise command.UsageError(
                f"--{name.replace('_', '-')} must be above 0, got {number}."
            )
    shard = parse_shard(given.shard)
    runs, merged = sweep.load(given.config, rest)
    command.prepare_jax(given.compile_cache)

    from rich.console import Console

    from experiments.study import list as study_list
    from experiments.study.folder import StudyFolder

    console = Console()
    folder = StudyFolder(given.workdir, fixed_sets=given.sets is not None)
    part = select(runs, given.only)
    if given.sets is not None and _PARENT not in os.environ:
        from experiments.study.fixed_sets import check_sets

        check_sets(part, given.sets)
    with storage.explained(folder.path, runs=()):
        if given.dry_run:
            study_list.show(folder, part, merged, shard, given.workers, console)
            return 0
        return _work(given, argv, (runs, part), shard, folder, console)


def _work(given, argv, runs, shard: tuple[int, int], folder, console) -> int:
    """Does what is left of a part of all runs, here or by workers.

    Returns:
        The exit code.
    """
    from experiments.study.work import How, Worker

    runs, part = runs
    study = runs[0].config["study"] or given.config
    words = sys.argv[1:] if argv is None else list(argv)
    said = shlex.join(["python", "-m", "experiments.study", *words])
    folder.check(study)
    if _PARENT in os.environ:
        _end_with_parent(int(os.environ[_PARENT]))
    else:
        _tell_of_others(folder, runs, given.extend, console)
        folder.begin(study, said, [run.run_id for run in runs])
        if given.retry:
            folder.forget_failures()
        if lost := folder.reopen_lost(part):
            console.print(f"{len(lost)} finished runs lack rows, and are scored again")
        if given.workers > 1:
            counts = _spawn(folder, part, given.workers, shard, words, console)
            return _end(folder, part, counts, console)
    how = How(shard, given.members_at_once, given.stale, given.sets)
    counts = Worker(folder, part, how, console).work()
    return _end(folder, part, counts, console)


def _tell_of_others(folder, runs, extend: bool, console) -> None:
    """Says what else the folder holds, and which runs are of fewer steps.

    Raises:
        ValueError: if a changed study would be begun beside it, unasked.
    """
    from experiments.study.changes import extended, others

    if note := extended(folder, runs):
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    found = others(folder, runs)
    if found is None:
        return
    if found.begins and not extend:
        raise ValueError(
            f"{folder.path} holds {found}. The study's file has changed since: "
            f"{found.begins} of its runs would be begun, beside the others. Choose "
            "another --workdir; or --extend, and tables and pictures show them all."
        )
    console.print(
        f"{folder.path} also holds {found}. They stay, and the report shows them.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def parse_shard(text: str) -> tuple[int, int]:
    """Returns (3, 16) for `3/16`.

    Raises:
        ValueError: if it is no such fraction.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(
            f"--shard must be I/N with I from 1 to N, as in 3/16, got {text!r}; "
            "number a Slurm array from 1, as in --array=1-16."
        )
    return int(match[1]), int(match[2])


def _spawn(folder, runs, workers: int, shard: tuple[int, int], words, console):
    """Starts workers, each with a part of the shard to begin with, and waits for them.

    So each compiles other programs than its neighbours, as long as there are enough.
    """
    from experiments.running.interrupt import Interrupt
    from experiments.study.claims import Claims
    from experiments.study.work import count, time_left

    folder.logs.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {_PARENT: str(os.getpid())}
    # Processes that share an accelerator share its memory, rather than the first one
    # taking most of it.
    environment.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / workers:.3f}")
    started, logs = [], []
    for at in range(workers):
        log = folder.logs / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{at}.log"
        own = f"{(shard[0] - 1) * workers + at + 1}/{shard[1] * workers}"
        with open(log, "a") as file:
            # In a process group of its own, so that Ctrl-C reaches it through us alone.
            started.append(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "experiments.study",
                        *words,
                        f"--shard={own}",
                    ],
                    env=environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        logs.append(log)
        console.print(f"worker {at + 1} of {workers}: {log}", soft_wrap=True)
    claims = Claims(folder.claims)  # to look, not to claim
    told = ""

    def pass_on() -> None:
        console.print("stopping after the workers' dispatch; Ctrl-C again: at once")
        _send(started, signal.SIGINT)

    try:
        with Interrupt(pass_on):
            while any(process.poll() is None for process in started):
                time.sleep(2.0)
                counts = count(folder, runs, claims)
                if str(counts) != told:
                    told = str(counts)
                    console.print(f"{told}{time_left(counts)}", highlight=False)
    except KeyboardInterrupt:
        _send(started, signal.SIGKILL)
        raise
    for process, log in zip(started, logs, strict=True):
        if process.returncode == storage.CODE:
            raise storage.StorageError(_reason(log, folder.path))
    for at, process in enumerate(started, start=1):
        if process.returncode not in (0, 1):  # 1: a run failed, which is told below
            console.print(f"worker {at} ended with {process.returncode}; see its log")
    return count(folder, runs, claims)


def _reason(log: pathlib.Path, folder: pathlib.Path) -> str:
    """Why a worker could not write, from its log, which lies on the same disk."""
    *_, last = ["", *log.read_text().splitlines()]
    if last.startswith("error: "):
        return last.removeprefix("error: ")
    full = os.strerror(errno.ENOSPC)
    return (
        f"{folder} cannot be written ({full}, it seems: {log} is cut off). Free space "
        "on its disk; the same command then goes on, and nothing is lost."
    )


def _end_with_parent(parent: int) -> None:
    """Stops this worker, everything saved, soon after the process that started it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _send(processes: Sequence[subprocess.Popen], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _end(folder, part, counts, console) -> int:
    """Says how the study stands; 0 if nothing failed and somebody does what is left."""
    console.print(str(counts), highlight=False)
    if counts.running:
        console.print("the runs that are left are being worked on by other workers")
    elif counts.left:
        console.print("some runs are left; the same command goes on with them")
    elif not counts.failed:
        command_line = shlex.join(
            ["python", "-m", "experiments.report", str(folder.path)]
        )
        console.print(f"{command_line}    makes the report", soft_wrap=True)
    failures = folder.failures() if counts.failed else {}
    own = {run.run_id for run in part} - folder.finished(part)
    for path in sorted(failures[name] for name in failures.keys() & own):
        console.print(f"failed: see {path}; --retry tries again", soft_wrap=True)
    return 1 if counts.failed or (counts.left and not counts.running) else 0


if __name__ == "__main__":
    command.run(main)
