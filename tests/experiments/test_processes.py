"""Two processes train as one does, also if they are killed at random and started again.

The small supervisor here does what a scheduler does: it starts both processes again,
whatever they ended with, until both end well.
"""

import contextlib
import functools
import json
import os
import random
import shutil
import signal
import socket
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from configs import base
from experiments.evaluate import evaluate_run
from experiments.results import store as results
from experiments.running import processes
from experiments.running.interrupt import RESTART
from experiments.running.nonfinite import batch_of
from experiments.running.opening import open_run, read_run
from experiments.running.run import run_experiment
from experiments.running.storage import StorageError
from ropejax.training import init_state
from tests.experiments.made_once import made_once
from tests.experiments.process_pair import (
    HEARTBEAT_S,
    SMALL,
    saved_steps,
    start,
    start_together,
    start_training,
    training_words,
)

STEPS = 48
PATIENCE_S = HEARTBEAT_S + 60
"""A process must have ended so long after another one was killed; mostly within 1 s."""

STARTED_S = 300
"""So long may a pair take to its next checkpoint, on a machine that has other work."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder of compiled programs, so that a new start need not compile again."""
    return made_once(tmp_path_factory, "compiled", lambda folder: None)


def train(folder, compiled, steps=STEPS):
    return start_training(folder, compiled, [f"train.steps={steps}"])


@pytest.fixture(scope="module")
def straight(tmp_path_factory, compiled):
    """The folder of a run of two processes that nobody disturbed."""

    def make(folder):
        with train(folder / "run", compiled) as pair:
            codes = pair.wait(2 * STARTED_S)
            assert codes == [0, 0], "\n".join(pair.said())

    return made_once(tmp_path_factory, "straight", make) / "run"


def numbers(folder: Path) -> list[bytes]:
    """Every array of the newest state, bit for bit."""
    _, state = open_run(folder)
    leaves = jax.tree.leaves((state.step, state.params, state.opt_state))
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def rows(folder: Path, kind: str, *names: str) -> list[tuple]:
    """What was stored, without what depends on the clock."""
    found = results.read(folder, kind).to_pylist()
    return sorted(tuple(row[name] for name in names) for row in found)


def assert_same_end(folder: Path, wanted: Path) -> None:
    assert saved_steps(folder)[-1] == saved_steps(wanted)[-1]
    assert numbers(folder) == numbers(wanted)
    curve = ("step", "loss", "accuracy", "grad_norm", "mean_length", "learning_rate")
    assert rows(folder, "training", *curve) == rows(wanted, "training", *curve)
    scores = ("step", "length", "loss", "correct", "tokens", "exact", "rows")
    assert rows(folder, "evaluation", *scores) == rows(wanted, "evaluation", *scores)
    assert not list((folder / "checkpoints").glob("*tmp*"))


# Together


def train_here(folder, steps):
    """Trains in this process, on its eight devices."""
    config = base.get_config()
    config.update_from_flattened_dict(SMALL | {"train.steps": steps})
    run_experiment(config, folder, console=Console(quiet=True))


def assert_close(folder: Path, wanted: Path) -> None:
    """Two runs agree but for the order in which numbers were added up."""
    (_, one), (_, two) = open_run(folder), open_run(wanted)
    assert int(one.step) == int(two.step)
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=2e-5)
    jax.tree.map(close, one.params, two.params)
    for kind, *names in (
        ("training", "step", "loss"),
        ("evaluation", "step", "length", "tokens", "rows", "correct", "loss"),
    ):
        found = (rows(one, kind, *names) for one in (folder, wanted))
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder of the same run, in one process."""
    make = lambda folder: train_here(folder / "run", STEPS)
    return made_once(tmp_path_factory, "alone", make) / "run"


def test_two_processes_train_and_score_as_one_does(straight, alone):
    assert saved_steps(straight)[-1] == STEPS
    assert_close(straight, alone)


def test_a_run_goes_on_with_another_number_of_processes(
    tmp_path, straight, alone, compiled
):
    """What two began one ends, and what one began two end."""
    ended_by_one = shutil.copytree(straight, tmp_path / "one")
    ended_by_two = shutil.copytree(alone, tmp_path / "two")
    train_here(ended_by_one, STEPS + 4)
    with train(ended_by_two, compiled, STEPS + 4) as pair:
        assert pair.wait(STARTED_S) == [0, 0], "\n".join(pair.said())
    assert saved_steps(ended_by_one)[-1] == saved_steps(ended_by_two)[-1] == STEPS + 4
    assert_close(ended_by_one, ended_by_two)


def test_two_processes_score_a_run_together(tmp_path, alone):
    """As one device does, each half of the rows; only the first writes and speaks."""
    folder, here = (shutil.copytree(alone, tmp_path / name) for name in ("two", "one"))
    words = ["-m", "experiments.evaluate", f"--workdir={folder}", "--lengths=3"]
    words += ["--samples=12", "--draws=1", "--mesh=data=4,fsdp=2"]
    with start_together(words, tmp_path / "logs") as pair:
        assert pair.wait(STARTED_S) == [0, 0], "\n".join(pair.said())
    first, second = pair.said()
    assert "scoring step" in first
    assert "scoring step" not in second
    changes = {"samples": 12, "draws": 1}
    quiet = Console(quiet=True)
    evaluate_run(here, lengths_text="3", changes=changes, console=quiet)
    assert_close(folder, here)
    assert (3, 12) in rows(folder, "evaluation", "length", "rows")


def test_processes_that_are_asked_for_other_scores_are_refused(tmp_path, alone):
    words = ["-m", "experiments.evaluate", f"--workdir={alone}", "--mesh=data=8"]
    own = ([], ["--samples=8"])
    with start_together(words, tmp_path / "logs", own) as pair:
        assert pair.wait(STARTED_S) == [2, 2], "\n".join(pair.said())
    for text in pair.said():
        assert "changes.samples is 'absent' in process 0 and 8 in process 1" in text


def test_only_the_first_process_speaks_and_writes_rows(straight):
    first, second = sorted(straight.with_name("run.logs").iterdir())
    assert "accuracy" in first.read_text()
    assert "accuracy" not in second.read_text()
    assert len(list((straight / "results").iterdir())) == 1


def test_processes_that_disagree_are_refused_by_name(tmp_path):
    folder = tmp_path / "run"
    own = ((), ("--config.train.seed=1",))
    with start_training(folder, per_process=own) as pair:
        codes, said = pair.wait(STARTED_S), pair.said()
    assert codes == [2, 2], "\n".join(said)
    for text in said:
        assert "train.seed is 0 in process 0 and 1 in process 1" in text
    assert not folder.exists()


def test_processes_under_slurm_find_each_other_and_not_one_workdir(tmp_path):
    """By what `srun` says, here of a job whose number gives a port that is free."""
    first_port, ports = 61440, 2**12  # JAX takes the job's number modulo that many
    with socket.socket() as found:
        draw = random.Random(os.getpid())
        while True:
            job = draw.randrange(ports)
            with contextlib.suppress(OSError):
                found.bind(("127.0.0.1", first_port + job))
                break
    told = [
        {
            "SLURM_JOB_ID": str(job),
            "SLURM_STEP_NODELIST": "127.0.0.1",
            "SLURM_STEP_NUM_NODES": "1",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(at),
            "SLURM_LOCALID": str(at),
        }
        for at in range(2)
    ]
    words = [*training_words(tmp_path / "run"), "--distributed"]
    own = ((), (f"--workdir={tmp_path / 'own'}",))  # as if on a disk of its own host
    with start(words, tmp_path / "logs", own, told) as pair:
        codes, said = pair.wait(STARTED_S), pair.said()
    assert codes == [2, 2], "\n".join(said)
    for text in said:
        assert "the workdir is not shared: process 0 on " in text
        assert f"has written a file in {tmp_path / 'run'}, but process 1 on " in text
        assert f"does not find it in its {tmp_path / 'own'}. Give all" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]


def test_what_fails_in_one_process_ends_the_others_too(monkeypatch):
    """As if the other one of two had met an error, or this one."""
    theirs = "null"
    monkeypatch.setattr(processes, "gathered", lambda text: [theirs, text])
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with processes.failing_together():
        pass
    with pytest.raises(ValueError, match=r"^too small$"), processes.failing_together():
        raise ValueError("too small")
    theirs = json.dumps([True, "a folder of another config"])
    told = "^in process 0: a folder of another config$"
    with pytest.raises(ValueError, match=told), processes.failing_together():
        pass
    theirs = json.dumps([False, "no space left"])
    told = "^in process 0: no space left$"
    with pytest.raises(StorageError, match=told), processes.failing_together():
        pass


def test_other_versions_and_settings_of_jax_are_refused_by_name(monkeypatch):
    def as_if_two(text):
        other = json.loads(text) | {"orbax-checkpoint": "0.1", "jax_enable_x64": True}
        return [text, json.dumps(other)]

    monkeypatch.setattr(processes, "gathered", as_if_two)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="the processes disagree") as refused:
        processes.check_agreement({})
    told = str(refused.value)
    assert "'0.1' in process 1" in told
    assert "jax_enable_x64 is False in process 0 and True in process 1" in told


def test_what_is_missing_or_misspelt_is_named(monkeypatch):
    with pytest.raises(ValueError, match="HOST:PORT"):
        processes.initialize("localhost")
    with pytest.raises(ValueError, match="heartbeat_s must be at least 1 second"):
        processes.initialize("localhost:1234", heartbeat_s=0)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="JAX_NUM_PROCESSES must be a number"):
        processes.initialize("localhost:1234")


@pytest.mark.slow
def test_the_batch_of_a_step_that_is_not_finite_is_kept_by_the_first(tmp_path):
    """Whole, though no process has all of it."""
    folder, fields = tmp_path / "run", ["optim.learning_rate=1e30", "train.steps=4"]
    policy = ["train.nonfinite=skip"]
    with start_training(folder, tmp_path / "compiled", [*fields, *policy]) as pair:
        assert pair.wait(2 * STARTED_S) == [0, 0], "\n".join(pair.said())
    run = read_run(folder)
    state = init_state(run.experiment.recipe, 0)
    kept = sorted((folder / "nonfinite").iterdir())
    assert "step_0.npz" not in [path.name for path in kept]
    for path in kept:
        step = np.int32(path.stem.removeprefix("step_"))
        batch, *_ = batch_of(run.experiment.recipe, state._replace(step=step))
        for name, array in batch._asdict().items():
            np.testing.assert_array_equal(np.load(path)[name], array)


# Disturbed


def steps_done(folder: Path) -> int:
    return max(saved_steps(folder), default=0)


def wait_for_a_moment(pair, folder: Path, draw: random.Random, early: bool) -> bool:
    """Returns at some moment, and True if training has gone on since the start.

    Args:
        pair: the processes, just started.
        folder: their workdir.
        draw: source of the moment.
        early: it may be before they have even found each other.
    """
    before = steps_done(folder)
    if early and draw.random() < 0.25:
        end = time.monotonic() + draw.uniform(0.2, 12.0)
        pair.wait_until(lambda: time.monotonic() > end, 60)
    else:
        goal = before + draw.randint(1, 5)
        pair.wait_until(lambda: steps_done(folder) >= goal, STARTED_S)
        time.sleep(draw.uniform(0.0, 0.15))
    assert len(pair.running()) == 2, "\n".join(pair.said())
    return steps_done(folder) > before


def check_left_alone(code: int | None, said: str) -> None:
    """A process that lost the other has ended, and says why."""
    assert code in {RESTART, -signal.SIGABRT}, said
    if code == RESTART:
        assert "has lost another one" in said
    else:  # JAX's own word, or that of its transport
        assert "another task died" in said or "gloo::" in said


def kill(pair, folder: Path, draw: random.Random) -> str:
    """`kill -9` of one process or of both; the other one ends by itself."""
    training = wait_for_a_moment(pair, folder, draw, early=True)
    victims = draw.choice([(0,), (1,), (0, 1)])
    pair.send(signal.SIGKILL, *victims)
    # One that waits for the other to start does so for minutes: a scheduler ends it.
    codes = pair.wait(PATIENCE_S if training else 3)
    for at in {0, 1} - set(victims):
        if training or codes[at] is not None:
            check_left_alone(codes[at], pair.said()[at])
    return f"killed {victims} at step {steps_done(folder)}"


def freeze(pair, folder: Path, draw: random.Random) -> str:
    """One process stands still, its connections open; the other one ends by itself."""
    wait_for_a_moment(pair, folder, draw, early=False)
    victim = draw.randrange(2)
    pair.send(signal.SIGSTOP, victim)
    end = time.monotonic() + PATIENCE_S
    pair.wait_until(lambda: time.monotonic() > end, 2 * PATIENCE_S)
    check_left_alone(pair.processes[1 - victim].poll(), pair.said()[1 - victim])
    return f"froze {victim} at step {steps_done(folder)}"


def preempt(pair, folder: Path, draw: random.Random) -> str:
    """SIGTERM to one: both save the same step, and ask to be started again."""
    wait_for_a_moment(pair, folder, draw, early=False)
    pair.send(signal.SIGTERM, draw.randrange(2))
    codes, said = pair.wait(PATIENCE_S), pair.said()
    assert codes == [RESTART, RESTART], "\n".join(said)
    assert RESTART == 75
    for text in said:
        assert f"stopped at step {steps_done(folder)} of" in text
    return f"preempted at step {steps_done(folder)}"


def run_through(folder: Path, compiled: Path, events: list, steps: int) -> list[str]:
    """Trains to the end, disturbed by all events; returns what happened."""
    draw, done = random.Random(7), []
    for event in events:
        with train(folder, compiled, steps) as pair:
            done.append(event(pair, folder, draw))
    with train(folder, compiled, steps) as pair:
        codes = pair.wait(2 * STARTED_S)
        assert codes == [0, 0], "\n".join([*done, *pair.said()])
    return done


def test_kills_change_nothing(tmp_path, straight, compiled):
    """Five, of one process or of both, and a scheduler that wants the machine."""
    events = [kill, kill, preempt, kill, kill, kill]
    done = run_through(tmp_path / "run", compiled, events, STEPS)
    print(*done, sep="\n")
    assert_same_end(tmp_path / "run", straight)


@pytest.mark.slow
def test_a_frozen_process_is_not_waited_for(tmp_path, straight, compiled):
    events = [freeze, freeze]
    run_through(tmp_path / "run", compiled, events, STEPS)
    assert_same_end(tmp_path / "run", straight)


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(tmp_path, compiled):
    """An hour on two cores."""
    steps = 700
    with train(tmp_path / "straight", compiled, steps) as pair:
        assert pair.wait(1200) == [0, 0], "\n".join(pair.said())
    events = [kill] * 100 + [preempt] * 8 + [freeze] * 2
    random.Random(3).shuffle(events)
    done = run_through(tmp_path / "run", compiled, events, steps)
    print(*done, sep="\n")
    assert_same_end(tmp_path / "run", tmp_path / "straight")


def test_one_process_that_is_preempted_asks_to_be_started_again(tmp_path, compiled):
    folder = tmp_path / "run"
    fields = ["train.steps=400", "mesh.data=1", "mesh.fsdp=1"]
    words = training_words(folder, compiled, fields)
    with start(words, tmp_path / "logs", [()]) as alone:
        alone.wait_until(lambda: steps_done(folder) >= 2, STARTED_S)
        alone.send(signal.SIGTERM)
        assert alone.wait(60) == [RESTART], alone.said()
    (said,) = alone.said()
    assert f"stopped at step {steps_done(folder)} of 400, all saved in" in said
