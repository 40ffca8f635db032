"""Two processes with four devices each do what one with eight does."""

import functools
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.building.overrides import load
from experiments.results import store as results
from experiments.running import processes
from experiments.running.run import open_run, run_experiment

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = "configs/quickstart.py:short=yes"
TINY = [
    f"--config.{field}"
    for field in (
        "train.steps=4",
        "train.steps_per_dispatch=2",
        "train.save_every=2",
        "train.batch_size=8",
        "train.max_length=6",
        "model.num_layers=1",
        "model.embed_dim=16",
        "optim.warmup_steps=1",
        "eval.lengths=3,6",
        "eval.buckets=6",
        "eval.samples=16",
        "mesh.data=4",
        "mesh.fsdp=2",
    )
]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def together(folder, per_process=((), ())):
    """Runs the command in two processes; returns exit codes and what they said."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    command = [
        *(sys.executable, "-m", "experiments.main", f"--config={CONFIG}", *TINY),
        *(f"--workdir={folder}", "--distributed", "--num_processes=2"),
        f"--coordinator=127.0.0.1:{free_port()}",
    ]
    started = [
        subprocess.Popen(
            [*command, f"--process_id={number}", *extra],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, extra in enumerate(per_process)
    ]
    try:
        said = [process.communicate(timeout=540)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], said


def test_two_processes_train_as_one_does(tmp_path):
    codes, said = together(tmp_path / "two")
    assert codes == [0, 0], "\n".join(said)
    assert "accuracy" in said[0]
    assert "accuracy" not in said[1]  # only the first one speaks
    assert len(list((tmp_path / "two" / "results").iterdir())) == 1

    run_experiment(load(CONFIG, TINY), tmp_path / "one", summary=False)
    (_, two), (_, one) = open_run(tmp_path / "two"), open_run(tmp_path / "one")
    assert int(two.step) == 4
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=2e-6)
    jax.tree.map(close, two.params, one.params)
    rows = [results.read(tmp_path / name).to_pylist() for name in ("two", "one")]
    fields = ("length", "correct", "tokens", "exact", "rows", "step", "run_id")
    got, wanted = ([{f: row[f] for f in fields} for row in each] for each in rows)
    assert got == wanted
    assert len(got) == 2


def test_processes_that_disagree_are_refused_by_name(tmp_path):
    codes, said = together(tmp_path, ((), ("--config.train.seed=1",)))
    assert codes == [2, 2], "\n".join(said)
    for text in said:
        assert "train.seed is 0 in process 0 and 1 in process 1" in text
    assert not list(tmp_path.iterdir())


def test_what_is_missing_or_misspelt_is_named(monkeypatch):
    with pytest.raises(ValueError, match="HOST:PORT"):
        processes.initialize("localhost")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="JAX_NUM_PROCESSES must be a number"):
        processes.initialize("localhost:1234")
