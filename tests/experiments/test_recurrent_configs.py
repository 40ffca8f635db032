"""Recurrent models from configs: what has no effect on them is refused, not ignored."""

import pytest
from rich.console import Console

from configs import base, deletang
from experiments.building.build import build
from experiments.evaluate import evaluate_run
from experiments.results import store as results
from experiments.running.run import run_experiment
from ropejax.nn.recurrent import CELLS, RecurrentSpec, StackRNN
from ropejax.training.population import step_bytes

QUIET = Console(quiet=True)


def lstm(**changes):
    config = base.get_config()
    named = {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(
        {"model.kind": "lstm", "encoding.name": "none"} | named
    )
    return config


@pytest.mark.fast
@pytest.mark.parametrize("architecture", CELLS)
def test_the_published_settings_build(architecture):
    arg = f"architecture={architecture},task=even_pairs"
    experiment = build(deletang.get_config(arg))
    model = experiment.recipe.model
    assert isinstance(model, RecurrentSpec)
    assert isinstance(model.cell, CELLS[architecture])
    assert (model.units, model.num_layers, model.dropout) == (256, 1, 0.0)
    assert experiment.steps == 1_000_000
    assert getattr(model.cell, "cell_width", 8) == 8
    assert deletang.get_config(f"{arg},size=mini").train.steps < 10_000


@pytest.mark.fast
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"encoding__name": "rope"}, "takes no position encoding, .*'rope'"),
        ({"encoding__options": "a=1"}, "No encoding|no setting|encoding.options"),
        ({"positions__name": "randomized"}, "randomized positions would change noth"),
        ({"positions__name": "shifted"}, "leave positions.name consecutive"),
        ({"eval__positions": "evenly_spaced"}, "leave eval.positions consecutive"),
        ({"model__num_heads": 4}, "model.num_heads=4 has no effect on model.kind=lstm"),
        ({"model__causal": True}, "model.causal=True has no effect"),
        ({"model__activation": "gelu"}, "leave it at 'relu'"),
        ({"model__kind_options": "cell_width=4"}, "LSTM has no setting 'cell_width'"),
        ({"model__kind": "lsmt"}, "Did you mean 'lstm'"),
        ({"model__kind": "encoder", "model__kind_options": "a=1"}, "recurrent kinds"),
    ],
)
def test_what_would_change_nothing_is_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        build(lstm(**changes))


@pytest.mark.fast
def test_a_population_of_recurrent_models_knows_its_memory():
    small, large = (
        build(deletang.get_config(f"architecture=lstm,size={size}")).recipe
        for size in ("mini", "full")
    )
    assert 0 < step_bytes(small) < step_bytes(large)


@pytest.mark.fast
def test_settings_of_a_kind_are_read():
    config = lstm(model__kind="stack_rnn", model__kind_options="num_stacks=2")
    assert build(config).recipe.model.cell == StackRNN(num_stacks=2)
    with pytest.raises(ValueError, match="architecture must be one of rnn, lstm"):
        deletang.get_config("architecture=gru")


def test_a_recurrent_run_is_scored_and_named_by_its_architecture(tmp_path):
    config = lstm(
        task__name="even_pairs",
        model__embed_dim=4,
        model__num_layers=1,
        train__steps=2,
        train__batch_size=2,
        train__max_length=4,
        train__buckets=1,
        eval__lengths="3,6",
        eval__samples=4,
        eval__draws=2,
    )
    run_experiment(config, tmp_path, console=QUIET, summary=False)
    rows = results.read(tmp_path).to_pylist()
    assert [row["length"] for row in rows] == [3, 6]
    for row in rows:
        assert (row["encoding"], row["encoding_title"]) == ("lstm", "LSTM")
        assert row["run_id"].startswith("even_pairs-lstm-consecutive-seed0-")
    with pytest.raises(ValueError, match="leave --positions consecutive"):
        evaluate_run(tmp_path, positions="evenly_spaced", console=QUIET)
    with pytest.raises(ValueError, match="for Transformers.*model.kind=lstm"):
        evaluate_run(tmp_path, encoding_options="distance=None", console=QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("architecture", ["rnn", "lstm"])
def test_small_networks_solve_parity_at_lengths_to_500(architecture, seed, tmp_path):
    config = deletang.get_config(
        f"architecture={architecture},task=parity_check,size=mini"
    )
    config.train.seed = seed
    scores = run_experiment(config, tmp_path, console=QUIET, summary=False)
    longer = [one.accuracy for length, one in scores.items() if length > 40]
    assert max(scores) == 500
    assert sum(longer) / len(longer) >= 0.99
