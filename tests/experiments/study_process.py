"""Runs the study command in processes that start fast and may be killed.

They are forked from a server that has imported everything but started no device, so
a start costs a fraction of a new interpreter's.
"""

import io
import multiprocessing
import os
import pathlib
import sys
from collections.abc import Sequence

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["experiments.study", "experiments.study.work", "experiments.study.list"]
)
ROOT = pathlib.Path(__file__).parents[2]


def start(
    config: str, folder: pathlib.Path, cache: pathlib.Path, *more: str
) -> multiprocessing.Process:
    """Starts `python -m experiments.study`; what it prints goes to `folder`.log."""
    words = [f"--config={config}", f"--workdir={folder}", f"--compile_cache={cache}"]
    log = folder.with_suffix(".log")
    process = CONTEXT.Process(target=_run, args=([*words, *more], log))
    process.start()
    return process


def _run(words: Sequence[str], log: pathlib.Path) -> None:
    from experiments import command
    from experiments.study import __main__ as study

    os.chdir(ROOT)
    with open(log, "a") as file:
        sys.stdout = sys.stderr = io.TextIOWrapper(file.buffer, line_buffering=True)
        sys.argv = ["study", *words]
        command.run(study.main)
