"""A run that diverges: it stops, its step is kept, and replaying it says where."""

import io

import numpy as np
import pytest
from rich.console import Console

from configs import base
from experiments import replay
from experiments.running.interrupt import DivergedError
from experiments.running.nonfinite import batch_of
from experiments.running.run import read_run, run_experiment
from ropejax.training import init_state


def config(policy):
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
    return made


def run(policy, folder):
    console = Console(file=io.StringIO(), width=200)
    run_experiment(config(policy), folder, console=console, summary=False)
    return console.file.getvalue()


def test_a_step_that_stopped_training_is_kept_and_replayed(tmp_path, capsys):
    with pytest.raises(DivergedError, match=r"(?s)step 1 .*experiments\.replay"):
        run("stop", tmp_path)
    kept = np.load(tmp_path / "nonfinite" / "step_1.npz")
    made = read_run(tmp_path).experiment
    state = init_state(made.recipe, made.seed)._replace(step=np.int32(1))
    batch, _, _ = batch_of(made.recipe, state)
    for name, array in batch._asdict().items():
        np.testing.assert_array_equal(kept[name], array)
    assert replay.main([f"--workdir={tmp_path}"]) == 1
    shown = capsys.readouterr().out
    assert "step 1: 4 rows" in shown
    assert "First: " in shown
    assert replay.main([f"--workdir={tmp_path}", "--step=0"]) == 0
    assert "Everything is finite." in capsys.readouterr().out


def test_counted_steps_are_told_and_training_goes_on(tmp_path):
    shown = run("count", tmp_path)
    for step in (1, 2, 3):
        assert f"step {step}: loss or gradient not finite" in shown
        assert (tmp_path / "nonfinite" / f"step_{step}.npz").exists()
    assert not (tmp_path / "nonfinite" / "step_0.npz").exists()


def test_a_run_that_never_diverged_has_nothing_to_replay(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        replay.replay(tmp_path)
