"""Recurrent models from configs: what has no effect on them is refused, not ignored."""

import dataclasses
import re

import jax
import pytest
from rich.console import Console

from configs import base, che, deletang
from experiments.building.build import build
from experiments.evaluate import evaluate_run
from experiments.results import store as results
from experiments.running.run import run_experiment
from ropejax.nn.norms import RMSNorm
from ropejax.nn.parameters import named
from ropejax.nn.recurrent import (
    CELLS,
    MIXERS,
    DeltaNet,
    LayeredSpec,
    Mamba,
    RecurrentSpec,
    StackRNN,
)
from ropejax.training.population_size import step_bytes

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
@pytest.mark.parametrize("architecture", MIXERS)
def test_linear_recurrences_are_in_layers_as_transformers_have_them(architecture):
    config = deletang.get_config(f"architecture={architecture},task=parity_check")
    config.model.kind_options = "negative=True"
    config.model.update({"mlp_factor": 3, "num_layers": 2, "remat": "full"})
    config.model.output_norm = True
    model = build(config).recipe.model
    assert isinstance(model, LayeredSpec)
    layer = jax.eval_shape(model.init, jax.random.key(0))["layers"]
    assert {"attention_norm", "attention_output_norm", "mlp_output_norm"} < {*layer}
    assert model.mixer == MIXERS[architecture](negative=True)
    assert (model.dims.embed_dim, model.dims.num_layers) == (256, 2)
    assert model.dims.num_heads == (4 if architecture == "delta_net" else 1)
    assert (model.settings.mlp_dim, model.settings.remat) == (768, "full")
    assert (model.settings.norm, model.settings.pre_norm) == (RMSNorm(), True)


@pytest.mark.fast
@pytest.mark.parametrize("mixer", [DeltaNet(), DeltaNet(gated=True), Mamba()])
def test_what_a_mixer_is_said_to_compute_is_what_its_projections_do_and_more(mixer):
    config = deletang.get_config("architecture=delta_net,task=parity_check")
    model = build(config).recipe.model
    model = dataclasses.replace(model, mixer=mixer)
    shapes = jax.eval_shape(model.init, jax.random.key(0))["layers"]["attention"]
    kernels = sum(
        leaf.size for name, leaf in named(shapes).items() if name.endswith("kernel")
    )
    said = mixer.operations(model.dims)
    assert 2 * kernels * 0.98 < said < 2 * kernels * 1.5


@pytest.mark.fast
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model__kind": "mamba", "model__num_heads": 4}, "nothing: model.num_heads=4"),
        (
            {"model__kind": "delta_net", "model__num_heads": 3},
            "num_heads=3 must divide",
        ),
        (
            {"model__kind": "delta_net", "model__head_dim": 8},
            "nothing: model.head_dim=8. Leave out model.head_dim; or start",
        ),
        (
            {"model__kind": "mamba", "model__kind_options": "beta=2"},
            "no setting 'beta'",
        ),
        ({"model__kind": "delta_nets"}, "Did you mean 'delta_net'"),
        ({"encoding__name": "rope"}, "change nothing: encoding.name='rope'. Set --con"),
        ({"encoding__options": "a=1"}, "No encoding|no setting|encoding.options"),
        ({"positions__name": "shifted"}, "Set --config.positions.name=consecutive;"),
        ({"eval__positions": "evenly_spaced"}, "Set --config.eval.positions=consecut"),
        ({"model__num_heads": 4}, "change nothing: model.num_heads=4. Set --config"),
        ({"model__causal": True}, "--config.model.causal=False; or"),
        ({"model__activation": "gelu"}, "--config.model.activation=relu; or"),
        ({"model__kind_options": "cell_width=4"}, "LSTM has no setting 'cell_width'"),
        ({"model__kind": "lsmt"}, "Did you mean 'lstm'"),
        ({"model__kind": "encoder", "model__kind_options": "a=1"}, "recurrent kinds"),
    ],
)
def test_what_would_change_nothing_is_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        build(lstm(**changes))


@pytest.mark.fast
def test_all_that_has_to_change_is_said_at_once_and_then_it_builds():
    """The first thing one tries: another model under the config at hand."""
    config = che.get_config("task=parity_check,encoding=alibi,positions=randomized")
    config.model.kind = "lstm"
    config.model.num_heads = 4
    with pytest.raises(ValueError, match="these would change nothing") as caught:
        build(config)
    said = str(caught.value)
    assert "configs/deletang.py:architecture=lstm,task=parity_check" in said
    for path, value in re.findall(r"--config\.([\w.]+)=(\S*?);? ", said):
        group, _, name = path.partition(".")
        config[group][name] = type(config[group][name])(value.strip('"'))
    assert isinstance(build(config).recipe.model, RecurrentSpec)


@pytest.mark.fast
def test_a_population_of_recurrent_models_knows_its_memory():
    small, large = (
        build(deletang.get_config(f"architecture=lstm,size={size}")).recipe
        for size in ("mini", "full")
    )
    assert 0 < step_bytes(small) < step_bytes(large)
    # A recurrent model has no logits of pairs: twice as long is twice as much.
    longer = dataclasses.replace(large, buckets=tuple(2 * n for n in large.buckets))
    assert step_bytes(longer) < 2.1 * step_bytes(large)


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
    with pytest.raises(ValueError, match="Encoding has no setting 'distance'"):
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


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MIXERS)
def test_linear_recurrences_learn_parity_with_negative_eigenvalues_alone(
    architecture, tmp_path
):
    scores = {}
    for negative in (True, False):
        config = deletang.get_config(
            f"architecture={architecture},task=parity_check,size=mini"
        )
        config.model.kind_options = f"negative={negative}"
        folder = tmp_path / str(negative)
        scores[negative] = run_experiment(config, folder, console=QUIET, summary=False)
    near = lambda found: [s.accuracy for length, s in found.items() if length <= 40]
    assert min(near(scores[True])) >= 0.99
    assert min(near(scores[False])) < 0.6
