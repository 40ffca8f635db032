"""A run that is not trained to its end is scored as what it is."""

import io

import pytest
from rich.console import Console

from configs import base
from experiments.evaluate import evaluate_run
from experiments.results import store as results
from experiments.running import workdir
from experiments.running.run import run_experiment

STEPS = 2


def tiny():
    config = base.get_config()
    config.update_from_flattened_dict(
        {
            "task.name": "even_pairs",
            "model.num_layers": 1,
            "model.embed_dim": 4,
            "model.num_heads": 1,
            "train.steps": STEPS,
            "train.batch_size": 2,
            "train.max_length": 3,
            "train.buckets": 1,
            "eval.lengths": "3",
            "eval.samples": 2,
            "eval.draws": 1,
        }
    )
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_experiment(tiny(), folder, console=Console(quiet=True), summary=False)
    return folder


def said(folder, **settings):
    console = Console(file=io.StringIO(), width=300)
    evaluate_run(folder, console=console, **settings)
    return console.file.getvalue()


def test_a_finished_run_says_so(run):
    text = said(run, lengths_text="4")
    assert f"scoring step {STEPS}, the end of training" in text
    assert "NOT finished" not in text


def test_an_unfinished_run_says_at_which_step_of_how_many_it_is_scored(run):
    config = workdir.plain(tiny())
    config["train"]["steps"] = 50  # extended, and stopped before a new checkpoint
    workdir.write_config(run, config)
    text = said(run, lengths_text="5")
    assert f"scoring step {STEPS} of 50: training is NOT finished" in text
    rows = [row for row in results.read(run).to_pylist() if row["length"] == 5]
    assert [row["step"] for row in rows] == [STEPS]


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_a_seed_that_would_repeat_another_is_refused(run, seed):
    with pytest.raises(ValueError, match=f"--seed must be in 0 .. 2147483647.*{seed}"):
        evaluate_run(run, changes={"seed": seed}, console=Console(quiet=True))
