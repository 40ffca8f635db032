"""A Hugging Face checkpoint as the model of a config: scored, changed, trained on."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from rich.console import Console

from configs import base, pretrained
from configs.studies import extension
from experiments.building import build
from experiments.evaluate import evaluate_run
from experiments.replay import replay
from experiments.results import store as results
from experiments.running import workdir
from experiments.running.first_params import untrained
from experiments.running.opening import open_run
from experiments.running.run import run_experiment
from experiments.study import sweep
from ropejax.encodings import ALiBi, Encoding, LogScale, Sinusoidal
from ropejax.encodings.distance_maps import Rectified
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.length_scaling import DynamicNTK
from ropejax.encodings.yarn_map import YaRNScaling
from ropejax.evaluation import evaluate
from ropejax.masks import Causal, Lambda
from ropejax.nn.from_hf import (
    decoder_from_hf,
    open_checkpoint,
    spec_from_hf,
    trained_length,
)
from ropejax.nn.parameters import named
from ropejax.nn.patterns import with_encodings
from ropejax.positions import Consecutive
from ropejax.tasks import NextSymbol
from ropejax.training import init_state
from tests.compiled_programs import kept_in

QUIET = Console(quiet=True)
SYMBOLS, TRAINED = 13, 16
HF = {
    "model_type": "llama",
    "vocab_size": SYMBOLS,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "max_position_embeddings": TRAINED,
    "tie_word_embeddings": True,
}
SHAPES = {
    "input_layernorm": (8,),
    "self_attn.q_proj": (8, 8),
    "self_attn.k_proj": (4, 8),
    "self_attn.v_proj": (4, 8),
    "self_attn.o_proj": (8, 8),
    "post_attention_layernorm": (8,),
    "mlp.gate_proj": (12, 8),
    "mlp.up_proj": (12, 8),
    "mlp.down_proj": (8, 12),
}
LLAMA3 = {
    **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0},
    **{"high_freq_factor": 4.0, "original_max_position_embeddings": 8},
}


def save_checkpoint(folder, **changes):
    """A folder of random weights; `changes` are of its config."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens": (SYMBOLS, 8), "model.norm": (8,)}
    config = HF | changes
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{n}": shape for n, shape in SHAPES.items()}
    draw = lambda shape: rng.normal(0, 0.5, shape).astype(np.float32)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {f"{name}.weight": draw(shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    with kept_in(tmp_path_factory.mktemp("compiled")):
        yield


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A folder with a checkpoint and a text; tests write elsewhere."""
    folder = tmp_path_factory.mktemp("pretrained")
    save_checkpoint(folder / "llama")
    save_checkpoint(folder / "llama3", rope_scaling=LLAMA3)
    text = np.random.default_rng(1).integers(0, SYMBOLS - 2, 300)
    np.save(folder / "tokens.npy", text.astype(np.int32))
    return folder


def config_of(there, name="llama", **changes):
    """The config of a checkpoint: `encoding__options="scale=2"`."""
    argument = f"checkpoint={there / name},text={there / 'tokens.npy'}"
    config = pretrained.get_config(f"{argument},trained={TRAINED}")
    config.eval.lengths = "8,24"
    config.eval.buckets = ""
    config.eval.samples = 4
    flat = {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(flat)
    return config


def model_of(config):
    return build.build(config).recipe.model


def test_a_run_of_no_steps_scores_the_checkpoint_and_keeps_no_copy(there, tmp_path):
    scores = run_experiment(config_of(there), tmp_path, console=QUIET, summary=False)
    spec, params = decoder_from_hf(*open_checkpoint(there / "llama"))
    task = NextSymbol(path=str(there / "tokens.npy"), held_out=0.0, vocab_size=SYMBOLS)
    same = evaluate(spec, params, task, Consecutive(), [8, 24], samples=4, draws=1)
    for length, score in scores.items():
        np.testing.assert_allclose(score.loss, same[length].loss, rtol=1e-5)
        assert score.correct == same[length].correct
    assert not workdir.has_checkpoints(tmp_path)
    rows = results.read(tmp_path).to_pylist()
    assert [(row["length"], row["step"]) for row in rows] == [(8, 0), (24, 0)]

    run, state = open_run(tmp_path)
    assert run.experiment.recipe.model == spec
    jax.tree.map(np.testing.assert_array_equal, state.params, params)
    assert not jax.tree.leaves(state.opt_state)  # nothing that training would need
    again = evaluate_run(tmp_path, console=QUIET, lengths_text="8")
    assert again[8] == scores[8]
    yarn = evaluate_run(
        tmp_path,
        console=QUIET,
        lengths_text="24",
        fields={"encoding.name": "yarn", "encoding.options": "scale=2"},
    )
    assert yarn[24].loss != scores[24].loss
    with pytest.raises(ValueError, match="pretrained cannot differ at test"):
        evaluate_run(tmp_path, console=QUIET, fields={"model.pretrained": "x"})
    with pytest.raises(ValueError, match=r"trains nothing \(train.steps=0\)"):
        replay(tmp_path, 0)


def test_a_run_on_a_mesh_begins_with_parameters_spread_over_it(there):
    config = config_of(there, mesh__fsdp=2, mesh__data=-1, train__batch_size=8)
    experiment = build.build(config)
    state = untrained(config.to_dict(), experiment)
    _, params = decoder_from_hf(*open_checkpoint(there / "llama"))
    jax.tree.map(np.testing.assert_array_equal, state.params, params)
    recipe = experiment.recipe
    asked = recipe.sharding.parameters(recipe.model, params)
    found = jax.tree.map(lambda x: x.sharding, state.params)
    same = jax.tree.map(
        lambda x, a, b: a.is_equivalent_to(b, x.ndim), params, asked, found
    )
    assert jax.tree.all(same)
    kernel = state.params["layers"]["kind_0"]["mlp_in"]["kernel"]
    assert kernel.addressable_shards[0].data.size == kernel.size // 2


def test_a_run_of_no_steps_of_any_config_scores_what_it_begins_with(tmp_path):
    config = base.get_config()
    config.update_from_flattened_dict(
        {
            **{"model.num_layers": 1, "model.embed_dim": 8, "model.num_heads": 2},
            **{"train.steps": 0, "train.max_length": 4, "train.batch_size": 4},
            **{"eval.lengths": "3", "eval.samples": 8, "eval.draws": 1},
        }
    )
    scores = run_experiment(config, tmp_path, console=QUIET, summary=False)
    recipe = build.build(config).recipe
    params = init_state(recipe, 0).params
    same = evaluate(
        recipe.model, params, recipe.task, recipe.positions, [3], samples=8, draws=1
    )
    np.testing.assert_allclose(scores[3].loss, same[3].loss, rtol=1e-5)
    assert open_run(tmp_path)[1].step == 0


def test_what_stands_for_rope_has_its_settings_where_none_are_given(there):
    own = spec_from_hf(HF)
    under = lambda change, spec=own: with_encodings(
        spec, lambda rope: dataclasses.replace(rope, **change)
    )
    rope = own.pattern[0].encoding
    assert (rope.max_wavelength, rope.round_frequencies) == (500.0, True)
    assert model_of(config_of(there)) == own
    assert model_of(config_of(there, encoding__name="rope")) == own

    def encoding(name, options="", checkpoint="llama"):
        changes = {"encoding__name": name, "encoding__options": options}
        return model_of(config_of(there, checkpoint, **changes)).pattern[0].encoding

    yarn = encoding("yarn", "scale=2")
    assert yarn.frequencies == YaRNScaling(scale=2.0, train_length=TRAINED)
    assert (yarn.max_wavelength, yarn.round_frequencies) == (500.0, True)
    assert encoding("yarn", "scale=2, max_wavelength=10").max_wavelength == 10.0
    bent = model_of(
        config_of(
            there, encoding__name="rope", encoding__options="distance=Rectified(8)"
        )
    )
    assert bent == under({"distance": Rectified(8)})
    dynamic = encoding("dynamic_ntk")  # frequencies of the length: none to round
    assert dynamic.frequencies == DynamicNTK(1.0, TRAINED)
    assert not dynamic.round_frequencies
    parts = dict(encoding("compose", "rope=Rotary(), scale=LogScale()").parts)
    assert parts == {"rope": rope, "scale": LogScale(train_length=TRAINED)}
    assert encoding("none") == Encoding()
    assert encoding("alibi") == ALiBi()
    # A method whose layout is another thing than RoPE's.
    assert encoding("sinusoidal") == Sinusoidal(max_wavelength=500.0)

    # The checkpoint's own extension stays, or something stands for it; never neither.
    own3 = spec_from_hf(HF | {"rope_scaling": LLAMA3}).pattern[0].encoding
    assert own3.frequencies != FrequencyMap()
    kept = encoding("rope", "distance=Rectified(8)", "llama3")
    assert kept == dataclasses.replace(own3, distance=Rectified(8))
    yarn3 = encoding("yarn", "scale=2", "llama3").frequencies
    assert yarn3 == YaRNScaling(scale=2.0, train_length=8)  # that before it
    with pytest.raises(ValueError, match="'rerope' has plain frequencies, and the"):
        encoding("rerope", "window=8", "llama3")
    plain = encoding("rope", "frequencies=FrequencyMap()", "llama3")
    assert plain.frequencies == FrequencyMap()


def test_layers_without_rope_stay_without(there, tmp_path):
    no_rope = {"model_type": "smollm3", "num_hidden_layers": 4}
    folder = save_checkpoint(tmp_path / "smollm3", **no_rope)
    spec = model_of(config_of(there, folder, encoding__name="alibi"))
    assert [kind.encoding for kind in spec.pattern] == [ALiBi()] * 3 + [Encoding()]


def test_a_mask_restricts_what_the_checkpoint_sees(there):
    spec = model_of(config_of(there, model__mask="Lambda(2, 5)"))
    assert spec.pattern[0].mask == Causal() & Lambda(2, 5)


def test_further_training_begins_with_the_checkpoint(there, tmp_path):
    config = config_of(
        there,
        encoding__name="position_interpolation",
        encoding__options="scale=2",
        train__steps=2,
        train__max_length=8,
        train__batch_size=2,
        optim__learning_rate=1e-3,
        train__save_every=1,
        train__keep=1,
        eval__lengths="8",
    )
    said = Console(record=True, width=200)
    run_experiment(config, tmp_path / "run", console=said, summary=False)
    assert f"begins with {there / 'llama'}" in said.export_text()
    params = decoder_from_hf(*open_checkpoint(there / "llama"))[1]
    _, first = open_run(tmp_path / "run", step=0)
    jax.tree.map(np.testing.assert_array_equal, first.params, params)
    _, last = open_run(tmp_path / "run")
    assert int(last.step) == 2
    for name, array in named(last.params).items():
        assert not np.array_equal(array, named(params)[name]), name
    assert replay(tmp_path / "run", 1) is False


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({"max_position_embeddings": 64}, 64),
        ({"max_position_embeddings": 64, "rope_scaling": LLAMA3}, 8),
        ({"max_position_embeddings": 64, "rope_parameters": LLAMA3}, 8),
        ({"max_position_embeddings": None, "n_positions": 24}, 24),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_the_trained_length_is_that_of_the_checkpoints_config(
    changes, length, tmp_path
):
    (tmp_path / "config.json").write_text(json.dumps(HF | changes))
    chosen = {"checkpoint": str(tmp_path), "text": "tokens.npy", "trained": ""}
    if length is None:
        with pytest.raises(ValueError, match="it has no such entry.; write trained="):
            pretrained.trained_on(chosen)
        return
    assert pretrained.trained_on(chosen) == length
    assert pretrained.trained_on({**chosen, "trained": "5"}) == 5
    if "n_positions" not in changes:
        assert trained_length(HF | changes) == length


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__pretrained": "absent"}, r"config.json of the checkpoint cannot be"),
        ({"model__kind": "encoder"}, r"is a decoder, got model.kind='encoder'"),
        (
            {"model__num_layers": 3},
            r"num_layers=3: the checkpoint in .* leave this",
        ),
        ({"model__norm": "rms"}, r"model.norm='rms': the checkpoint in"),
        ({"model__dtype": "float8"}, r"model.dtype='float8' is unknown"),
        ({"task__options": ""}, r"those of a made-up language; save the tokens"),
        ({"task__options": f"path={__file__!r}"}, r"are the bytes of .*save the tok"),
        (
            {"task__name": "associative_recall", "task__options": ""},
            r"task.name=associative_recall has 33 symbols, and .* knows 13",
        ),
        ({"encoding__options": "scale=2"}, r"encoding.options='scale=2' are of no met"),
        ({"encoding__name": "yarm"}, r"'yarm' is unknown. Did you mean 'yarn'"),
        ({"encoding__name": "pretrain"}, r"Did you mean 'pretrained'"),
        ({"encoding__name": "t5"}, r"model.pretrained=.*train.init_new=True"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message, there, tmp_path):
    with pytest.raises(ValueError, match=message):
        run_experiment(config_of(there, **changes), tmp_path / "run", console=QUIET)


def test_a_checkpoint_without_rope_keeps_its_encoding(there, monkeypatch):
    bare = with_encodings(spec_from_hf(HF), lambda rope: ALiBi())
    monkeypatch.setattr(build, "checkpoint_spec", lambda config: bare)
    assert model_of(config_of(there)) == bare
    with pytest.raises(ValueError, match="'yarn' stands for RoPE, which the c"):
        model_of(config_of(there, encoding__name="yarn"))


def test_the_encoding_of_a_checkpoint_needs_one(there):
    config = base.get_config()
    config.encoding.name = "pretrained"
    with pytest.raises(ValueError, match="name one in model.pretrained"):
        build.build(config)


def test_the_study_of_extensions_has_each_method_once(there, tmp_path):
    argument = f"checkpoint={there / 'llama'},text={there / 'tokens.npy'}"
    argument += ",scale=3"  # and the trained length that its config tells
    runs, merged = sweep.expand(
        extension.get_config(argument), extension.get_sweep(argument)
    )
    assert (len(runs), merged) == (13, 0)
    models = {}
    for run in runs:
        experiment = build.build(run.config)
        models[run.config["title"]] = experiment.recipe.model
        assert experiment.evaluation.lengths == (4, 8, 16, 24, 32, 40, 48)
    assert len(set(models.values())) == len(models) == len(runs)
    assert models["as trained"] == spec_from_hf(HF)
    leaky = models["Leaky ReRoPE"].pattern[0].encoding.distance
    assert leaky.window + (48 - leaky.window) / leaky.factor == TRAINED
    for argument, message in (
        ("", "checkpoint is missing"),
        ("checkpoint=a,text=b,trained=20", "multiple of 8"),
        ("checkpoint=a,text=b,trained=8,scale=1", "scale at least 2"),
        ("checkpoint=a,text=b,trained=8,samples=half", "samples must be a whole numb"),
        (
            "checkpoint=a,text=b",
            r"a/config.json does not .* \(No such file .*; write",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            extension.get_config(argument)
