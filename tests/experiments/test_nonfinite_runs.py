"""A run that diverges: it stops, its step is kept, and replaying it says where."""

import io

import numpy as np
import pytest
from rich.console import Console

from configs import base
from experiments import replay
from experiments.building.build import build
from experiments.running.interrupt import DivergedError
from experiments.running.nonfinite import batch_of, diverged, tell_of_counted
from experiments.running.opening import read_run
from experiments.running.run import run_experiment
from ropejax.training import NonFiniteError, Progress, init_state
from ropejax.training.step import StepMetrics


def config(policy, **changes):
    made = base.get_config()
    made.update_from_flattened_dict(
        {
            "task.name": "even_pairs",
            "model.num_layers": 1,
            "model.embed_dim": 8,
            "model.num_heads": 2,
            "model.dropout": 0.0,
            "optim.learning_rate": 1e30,  # the second step cannot be finite
            "train.steps": 4,
            "train.batch_size": 4,
            "train.max_length": 5,
            "train.buckets": 1,
            "train.steps_per_dispatch": 4,
            "train.nonfinite": policy,
            "eval.lengths": "5",
            "eval.samples": 8,
        }
    )
    named = {name.replace("__", "."): value for name, value in changes.items()}
    made.update_from_flattened_dict(named)
    return made


def run(policy, folder, **changes):
    console = Console(file=io.StringIO(), width=200)
    made = config(policy, **changes)
    run_experiment(made, folder, console=console, summary=False)
    return console.file.getvalue()


IN_PARTS = {
    "model__loops": 2,
    "train__progressive_weight": 0.5,
    "train__accumulate": 2,
}
"""Loops over all layers, and over parts of the batch."""


def test_a_step_that_stopped_training_is_kept_and_replayed(tmp_path, capsys):
    advice = r"(?s)step 1 .*experiments\.replay.*In another workdir, train with"
    with pytest.raises(DivergedError, match=advice):
        run("stop", tmp_path, **IN_PARTS)
    kept = np.load(tmp_path / "nonfinite" / "step_1.npz")
    made = read_run(tmp_path).experiment
    state = init_state(made.recipe, made.seed)._replace(step=np.int32(1))
    batch, _, _ = batch_of(made.recipe, state)
    for name, array in batch._asdict().items():
        np.testing.assert_array_equal(kept[name], array)
    assert replay.main([f"--workdir={tmp_path}"]) == 1
    shown = capsys.readouterr().out
    assert "step 1: 4 rows" in shown
    (first,) = [line for line in shown.splitlines() if line.startswith("First: ")]
    assert "/ropejax/nn/" in first
    assert "looped.py" not in first
    assert "and 3 more parameters, " in shown
    assert replay.main([f"--workdir={tmp_path}", "--step=0"]) == 0
    assert "Everything is finite." in capsys.readouterr().out


def test_counted_steps_are_told_and_training_goes_on(tmp_path):
    shown = run("count", tmp_path)
    for step in (1, 2, 3):
        assert f"step {step}: loss or gradient not finite" in shown
        assert (tmp_path / "nonfinite" / f"step_{step}.npz").exists()
    assert not (tmp_path / "nonfinite" / "step_0.npz").exists()


@pytest.mark.parametrize(
    ("not_finite", "told"),
    [
        ([8, 8, 2], "and 3 more parameters, 3 of them not finite"),
        ([1, 0], "and 2 more parameters, 1 of them not finite"),
        ([0, 0], "and 2 more parameters, with smaller gradients"),
    ],
)
def test_gradients_that_are_not_finite_are_not_called_small(not_finite, told):
    assert replay.told_of_others(not_finite) == told


def test_the_first_ten_batches_are_kept_and_no_other_one_is_named(tmp_path):
    made = build(config("skip"))
    state = init_state(made.recipe, made.seed)
    count = 14
    metrics = StepMetrics(*[np.full(count, np.nan)] * len(StepMetrics._fields))
    console = Console(file=io.StringIO(), width=300)
    progress = Progress(count, metrics, state, 1.0)
    tell_of_counted(tmp_path, made.recipe, progress, console)
    said = console.file.getvalue().splitlines()
    for step in range(count):
        path = tmp_path / "nonfinite" / f"step_{step}.npz"
        assert path.exists() == (step < 10)
        kept = f"in {path}" if step < 10 else "not kept, after 10 others"
        assert said[step].endswith(f"its batch is {kept}")
    # Where training stops, its batch is kept whatever was there before.
    error = NonFiniteError(12, state._replace(step=np.int32(12)))
    told = str(diverged(tmp_path, made.recipe, error))
    assert f"The batch is in {tmp_path / 'nonfinite' / 'step_12.npz'}." in told
    assert (tmp_path / "nonfinite" / "step_12.npz").exists()


def test_a_run_that_never_diverged_has_nothing_to_replay(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        replay.replay(tmp_path)
