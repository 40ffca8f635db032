"""Runs that begin with the parameters of another one: fine-tuning, longer contexts."""

import json
import shutil

import jax
import numpy as np
import pytest
from rich.console import Console

from configs import base
from experiments.replay import _state_before
from experiments.results import store as results
from experiments.running import init_from, workdir
from experiments.running.opening import open_run
from experiments.running.run import run_experiment
from ropejax.nn.parameters import named
from ropejax.training import start_from, train
from tests.compiled_programs import kept_in

QUIET = Console(quiet=True)
TINY = {
    "task.name": "reverse_string",
    "model.num_layers": 2,
    "model.embed_dim": 8,
    "model.num_heads": 2,
    "model.dropout": 0.0,
    "train.steps": 4,
    "train.batch_size": 4,
    "train.max_length": 4,
    "train.buckets": 1,
    "train.steps_per_dispatch": 2,
    "train.save_every": 2,
    "eval.lengths": "2",
    "eval.samples": 4,
    "eval.draws": 1,
}


def tiny(**changes):
    """The smallest config, with fields changed: `train__steps=30`."""
    config = base.get_config()
    named = {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(TINY | named)
    return config


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    with kept_in(tmp_path_factory.mktemp("compiled")):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with RoPE on 4 symbols; tests must not write there."""
    folder = tmp_path_factory.mktemp("source") / "run-0"
    run_experiment(tiny(), folder, console=QUIET, summary=False)
    return folder


def extended(source, **changes):
    """Goes on with YaRN on twice the length."""
    given = {
        "train__init_from": str(source),
        "encoding__name": "yarn",
        "encoding__options": "scale=2, train_length=8",
        "train__max_length": 8,
        "model__pattern": "rnope_swa",
        "model__pattern_options": "every=2",
        "model__causal": True,
    }
    return tiny(**(given | changes))


def leaves(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def test_a_run_goes_on_from_another_with_another_encoding_and_length(source, tmp_path):
    """Bit for bit what the library makes of those parameters, and once only read."""
    copied = shutil.copytree(source, tmp_path / "source")
    folder = tmp_path / "run"
    run_experiment(extended(copied, train__steps=2), folder, console=QUIET)
    _, began = open_run(folder, step=0)
    _, there = open_run(source)
    # Of layers alike there, the second has no positions here, and its own stack.
    assert len(began.params["layers"]) == 2
    for kind in (0, 1):
        stack = began.params["layers"][f"kind_{kind}"]
        wanted = jax.tree.map(lambda x, at=kind: x[at][None], there.params["layers"])
        assert leaves(stack) == leaves(wanted["kind_0"])
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(began.opt_state))
    shutil.rmtree(copied)
    config = extended(copied, train__keep=1)
    run_experiment(config, folder, console=QUIET, summary=False)
    run, state = open_run(folder)
    given = {"steps_per_dispatch": 2, "params": began.params}
    straight = train(run.experiment.recipe, steps=4, **given)
    assert leaves(state.params) == leaves(straight.params)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(began.params))
    assert workdir.steps_of_checkpoints(folder)[::3] == [0]  # it stays
    assert leaves(_state_before(run, 0).params) == leaves(began.params)
    (row,) = results.read(folder, "run").to_pylist()
    origin = json.loads(row["init_from"])
    assert origin == init_from.origin(folder)
    assert (origin["step"], origin["folder"]) == (4, str(copied))
    assert origin["run_id"].startswith("reverse_string-rope-consecutive-seed0-")


def test_a_run_that_was_scored_before_any_step_is_trained_later(source, tmp_path):
    """As one that was trained at once, and without a word of a rate that rises."""
    given = {"train__init_from": str(source), "optim__final_fraction": 0.1}
    later, at_once = tmp_path / "later", tmp_path / "at_once"
    run_experiment(tiny(train__steps=0, **given), later, console=QUIET, summary=False)
    said = Console(record=True, width=200)
    for folder, console in ((later, said), (at_once, QUIET)):
        config = tiny(train__steps=2, **given)
        run_experiment(config, folder, console=console, summary=False)
    assert "rises again" not in said.export_text()
    shutil.copytree(later, tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / workdir.CHECKPOINTS)
    config = workdir.plain(tiny(train__steps=0, **given))
    (tmp_path / "killed" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="no checkpoint"):  # the seed's are others
        open_run(tmp_path / "killed")
    states = [open_run(folder)[1] for folder in (later, at_once)]
    assert leaves(states[0].params) == leaves(states[1].params)


def test_a_step_of_a_run_and_the_seed_may_be_named(source, tmp_path):
    text = f"{source.parent}/run-{{seed}}/checkpoints/2"
    alike = {"model__pattern": "alike", "model__pattern_options": ""}
    config = workdir.plain(extended(text, **alike))
    assert init_from.source_of(config) == (source, 2)
    run_experiment(config, tmp_path, console=QUIET, summary=False)
    states = [open_run(tmp_path, step=0), open_run(source, step=2)]
    assert leaves(states[0][1].params) == leaves(states[1][1].params)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train__init_from": "SOURCE/none"}, r"init_from='.*none': .* holds no run"),
        ({"train__init_from": "SOURCE/checkpoints/3"}, r"of steps \[2, 4\] only"),
        (
            {"model__embed_dim": 16},
            r"are not those of this model: .*embed.*8\] there, ",
        ),
        ({"encoding__name": "t5", "encoding__options": ""}, "table: absent there"),
        ({"task__name": "bucket_sort"}, r"readout/bias: float32\[2\] there"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    source, tmp_path, changes, message
):
    given = {
        name: str(value).replace("SOURCE", str(source))
        for name, value in changes.items()
    }
    if "model__embed_dim" in given:
        given["model__embed_dim"] = 16
    with pytest.raises(ValueError, match=message):
        run_experiment(extended(source, **given), tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()


def test_parameters_that_the_other_run_lacks_may_be_new(source, tmp_path):
    """A learned factor on logits is put on a model that was trained without."""
    alike = {"model__pattern": "alike", "model__pattern_options": ""}
    ssmax = alike | {"model__row_scale": "ssmax", "train__steps": 2}
    with pytest.raises(ValueError, match=r"row_scale/s: absent .* train.init_new=True"):
        run_experiment(extended(source, **ssmax), tmp_path, console=QUIET)
    config = extended(source, **ssmax, train__init_new=True)
    run_experiment(config, tmp_path, console=QUIET, summary=False)
    run, began = open_run(tmp_path, step=0)
    there, here = named(open_run(source)[1].params), named(began.params)
    usual = named(run.experiment.recipe.model.init(jax.random.key(0)))
    (new,) = here.keys() - there.keys()
    np.testing.assert_array_equal(here[new], usual[new])  # it is no random number
    for name, leaf in there.items():
        np.testing.assert_array_equal(here[name], leaf)
    with pytest.raises(ValueError, match="init_new=True is for runs that begin with"):
        run_experiment(tiny(train__init_new=True), tmp_path / "x", console=QUIET)


def test_a_run_cannot_begin_with_itself(tmp_path):
    with pytest.raises(ValueError, match="is this run's own workdir"):
        run_experiment(extended(tmp_path), tmp_path, console=QUIET)


def test_without_it_a_run_keeps_the_name_that_it_had():
    config = workdir.plain(tiny())
    lacking = {**config, "train": dict(config["train"])}
    del lacking["train"]["init_from"], lacking["train"]["init_new"]
    assert workdir.config_hash(lacking) == workdir.config_hash(config)
    assert workdir.completed(lacking) == config
    other = workdir.plain(extended("x"))
    assert workdir.config_hash(other) != workdir.config_hash(config)


def test_parameters_of_another_model_are_refused_by_the_library(source):
    run, state = open_run(source)
    params = {"other": state.params}
    with pytest.raises(ValueError, match=r"the parameters are not those of this model"):
        start_from(run.experiment.recipe, params)
