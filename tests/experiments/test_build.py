"""Configs become the objects that they name, and what cannot be is refused at once.

Faults B12 (odd head width), B15 (positions past a table), B23 (settings that are lost).
"""

import dataclasses
import math
import pathlib
import re

import jax
import pytest
from ml_collections import ConfigDict

from configs import base, che
from experiments import lengths
from experiments.building import (
    blocks,
    methods,
    model_parts,
    optimizers,
    options,
    overrides,
    progressive,
    weighting,
)
from experiments.building import build as build_module
from experiments.building import masks as masks_module
from experiments.building import mesh as mesh_module
from experiments.building.build import build
from experiments.building.methods import make_encoding, make_positions
from ropejax.encodings import ENCODINGS, ALiBi, Encoding, LogScale, Rotary, compose
from ropejax.encodings.distance_maps import Rectified
from ropejax.encodings.interpolation import NTKAware
from ropejax.masks import Causal
from ropejax.positions import POSITIONS, Consecutive, EvenlySpaced, Randomized
from ropejax.tasks import TASKS
from ropejax.training import Uniform
from ropejax.training.curriculum import Increasing


def config_with(**changes) -> ConfigDict:
    """The base config, quick to check, with fields changed: `model__num_layers=2`."""
    config = base.get_config()
    config.eval.lengths = "1:50"
    for name, value in changes.items():
        group, _, field = name.partition("__")
        config[group][field] = value
    return config


# What a config means


@pytest.mark.fast
def test_the_base_config_is_the_published_model():
    """As in google-deepmind/randomized_positional_encodings@e8c6474."""
    experiment = build(base.get_config())
    recipe, evaluation = experiment.recipe, experiment.evaluation
    assert recipe.model.dims == (8, 8, 8, 64, 5, False)
    assert recipe.model.settings.mlp_dim == 4 * 64
    assert recipe.model.settings.activation is jax.nn.relu
    assert not recipe.model.settings.pre_norm
    assert recipe.model.settings.dropout == 0.1
    assert recipe.batch_size == 128
    assert recipe.curriculum == Uniform(max_length=40)
    assert recipe.buckets[-1] == 40
    assert evaluation.lengths == tuple(range(1, 501))
    assert evaluation.samples == 512
    assert evaluation.positions == recipe.positions == Consecutive()


@pytest.mark.parametrize("task", TASKS)
def test_every_task_builds_with_lengths_to_500(task):
    experiment = build(che.get_config(f"task={task}"))
    assert type(experiment.recipe.task) is TASKS[task]
    assert experiment.evaluation.lengths[-1] == 500


@pytest.mark.parametrize(
    "encoding", ["none", "sinusoidal", "learned", "rope", "transformer_xl", "alibi"]
)
def test_randomized_positions_are_drawn_as_published_for_each_encoding(encoding):
    config = che.get_config(f"encoding={encoding}")
    config.eval.lengths = "50"
    recipe = build(config).recipe
    assert type(recipe.model.pattern[0].encoding) is ENCODINGS[encoding]
    # The table in the docstring of `Randomized`.
    per_layer = encoding in ("rope", "transformer_xl", "alibi")
    assert recipe.positions.per_layer == per_layer
    assert recipe.positions.distances == (encoding in ("transformer_xl", "alibi"))
    assert recipe.positions.max_position == 2048
    assert not recipe.positions.per_sequence


def test_options_override_what_was_published():
    config = config_with(encoding__name="alibi", positions__name="randomized")
    config.positions.options = "distances=False, max_position=1e3"
    assert make_positions(config) == Randomized(
        max_position=1000, per_layer=True, distances=False
    )
    config.positions.as_published = False
    assert make_positions(config) == Randomized(max_position=1000)


def test_published_alibi_breaks_ties():
    assert build(che.get_config("encoding=alibi")).recipe.model.pattern[0].encoding == (
        ALiBi(tie_break=True)
    )


def test_options_reach_task_encoding_curriculum_and_test_positions():
    experiment = build(
        config_with(
            task__name="modular_arithmetic",
            task__options="modulus=7",
            encoding__options="max_wavelength=5e5, layout=interleaved, "
            "frequencies=NTKAware(8)",
            train__curriculum="increasing",
            train__curriculum_options="every=20, sample_all=False",
            eval__positions="evenly_spaced",
            eval__options="max_position=512",
        )
    )
    recipe = experiment.recipe
    assert recipe.task.modulus == 7
    assert recipe.model.num_outputs == 7
    assert recipe.model.pattern[0].encoding == Rotary(
        max_wavelength=5e5, layout="interleaved", frequencies=NTKAware(8)
    )
    assert recipe.curriculum == Increasing(max_length=40, every=20, sample_all=False)
    assert experiment.evaluation.positions == EvenlySpaced(max_position=512)
    assert recipe.positions == Consecutive()


def test_a_causal_model_gets_a_causal_mask():
    model = build(config_with(model__causal=True)).recipe.model
    assert model.dims.causal
    assert model.pattern[0].mask == Causal()
    assert build(config_with()).recipe.model.pattern[0].mask is None


def test_plain_dicts_do_as_well_as_config_dicts():
    config = config_with(model__num_kv_heads=2)
    recipes = [build(c).recipe for c in (config, config.to_dict())]
    # Optimizers are functions, made anew each time.
    same = recipes[0].optimizer
    one, other = (dataclasses.replace(r, optimizer=same) for r in recipes)
    assert one == other
    assert one.model.dims.num_kv_heads == 2


def test_every_field_of_the_config_is_read():
    """A field that nothing reads would do nothing (fault B23)."""
    elsewhere = {  # read by experiments/running
        *("study", "title", "log_every", "save_every", "keep", "steps_per_dispatch"),
        *("init_from", "init_new"),
        *mesh_module.AXES,  # read as a whole
        # Beside the fields.
        *(f"{field}_options" for field in (*weighting.CATALOGUES, "pattern")),
        *(f"{field}_options" for field in model_parts.CATALOGUES),
    }
    modules = build_module, blocks, methods, optimizers, progressive, weighting
    modules += mesh_module, masks_module, model_parts
    source = "".join(pathlib.Path(m.__file__).read_text() for m in modules)
    for path in overrides.all_fields(base.get_config()):
        name = path.split(".")[-1]
        assert name in elsewhere or re.search(rf"\.{name}\b|\"{name}\"", source), path


# What cannot be


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"task__name": "reverse_strings"},
            "task.name='reverse_strings' .*'reverse_str",
        ),
        (
            {"encoding__name": "rop"},
            "encoding.name='rop' is unknown. Did you mean 'rope'",
        ),
        # As tables write them.
        ({"encoding__name": "RoPE"}, r"'RoPE' is unknown. Did you mean 'rope'\?"),
        ({"encoding__name": "Transformer-XL"}, "Did you mean 'transformer_xl'"),
        ({"encoding__options": "Max-Wavelength=5"}, "cannot read 'Max-Wave"),
        ({"encoding__options": "maxWavelength=5"}, r"mean 'max_wavelength'\?"),
        # Settings beside a name have a field of their own.
        (
            {"eval__positions": "evenly_spaced(max_position=64)"},
            "eval.positions='evenly_spaced.*has the name alone, evenly_spaced; give "
            "its settings as eval.options='max_position=64'",
        ),
        (
            {"train__curriculum": "increasing(every=2)"},
            "settings as train.curriculum_options='every=2'",
        ),
        ({"encoding__name": "rope()"}, "name alone, rope; .* encoding.options=''"),
        ({"model__dtype": "float32(1)"}, "name alone, float32; it has no settings"),
        ({"positions__name": "random"}, "positions.name='random' .*'randomized'"),
        ({"train__curriculum": "unifrom"}, "train.curriculum='unifrom' .*'uniform'"),
        ({"model__activation": "geluu"}, "model.activation='geluu' .*'gelu'"),
        ({"model__dtype": "float16"}, "model.dtype='float16' .*'bfloat16'"),
        ({"eval__positions": "evenly"}, "eval.positions='evenly' .*'evenly_spaced'"),
        (
            {"encoding__options": "max_wavelenght=5"},
            "encoding.options: Rotary has no setting 'max_wavelenght'. Did you mean "
            "'max_wavelength'",
        ),
        ({"encoding__options": "layout=halff"}, "layout must be one of .* 'half'"),
        ({"encoding__options": "distance=Rectifid(4)"}, "'Rectifid' .*'Rectified'"),
        (
            {"encoding__options": "distance=5"},
            "distance must be an object of class Distance .one of Rectified, .*, got 5",
        ),
        ({"encoding__options": "layout"}, "cannot read 'layout'"),
        ({"encoding__options": "layout=half)("}, "cannot read"),
        ({"encoding__options": "layout=open('x')"}, "class='open' is unknown"),
        ({"encoding__options": "layout=a.b"}, "cannot read 'a.b'"),
        (
            {"encoding__options": "max_wavelength=wide"},
            "max_wavelength must be a number",
        ),
        ({"task__options": "modulus=3"}, "ReverseString has no setting 'modulus'"),
        ({"eval__options": "max_position=9"}, "name it in eval.positions"),
        (
            {"positions__name": "randomized", "positions__options": "max_position=2.5"},
            "max_position must be an integer, got 2.5",
        ),
        (
            {"positions__name": "randomized", "positions__options": "sort=1"},
            "sort must be True or False, got 1",
        ),
        ({"train__curriculum_options": "min_length=50"}, "min_length must lie in"),
        (
            {"train__curriculum_options": "max_length=8"},
            "train.max_length=40; set that",
        ),
        ({"eval__lengths": "5:1"}, "cannot read '5:1' in eval.lengths"),
        ({"eval__lengths": ""}, "cannot read '' in eval.lengths"),
        ({"eval__buckets": "8,40"}, "the largest of eval.buckets, 40, must hold .* 50"),
        ({"eval__samples": 100}, "eval.draws=8 must divide eval.samples=100"),
        ({"train__steps": -1}, "train.steps must be at least 0, got -1"),
        ({"train__log_every": 0}, "train.log_every must be at least 1, got 0"),
        ({"train__steps": 2**31}, "train.steps must be at most 2147483647, got"),
        ({"train__batch_size": 10**12}, "train.batch_size must be at most 2147483647"),
        ({"train__steps_per_dispatch": 10**9}, "dispatch must be at most 1048576, got"),
        ({"train__batch_size": -1}, "train.batch_size must be at least 1, got -1"),
        ({"optim__learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"optim__warmup_steps": 10**6}, "warmup_steps must be in 0"),
        (
            {"optim__max_grad_norm": -1.0},
            r"^optim\.max_grad_norm must be positive, or 0 for no clipping, got -1\.0",
        ),
        # Numbers of the optimizer that train nothing sensible.
        ({"optim__b1": -0.1}, r"optim\.b1 must be in \[0, 1\), got -0.1; usual"),
        ({"optim__b2": 1.5}, r"optim\.b2 must be in \[0, 1\), got 1.5; usual"),
        ({"optim__eps": -1.0}, r"optim\.eps must be positive, got -1.0; usual"),
        ({"optim__weight_decay": -0.1}, r"optim\.weight_decay must not be negative"),
        ({"optim__learning_rate": math.inf}, r"optim\.learning_rate .* finite .* inf"),
        ({"optim__max_grad_norm": math.nan}, r"optim\.max_grad_norm .* finite .* nan"),
        # Seeds that overflow, or are the same as a smaller one.
        ({"train__seed": 2**31}, r"train\.seed must be in 0 \.\. 2147483647 .*choose"),
        ({"train__seed": -1}, r"train\.seed must be in .* got -1"),
        ({"train__length_seed": 2**32}, r"train\.length_seed must be .* 4294967296"),
        ({"eval__seed": 2**32 + 1}, r"eval\.seed must be .* got 4294967297"),
        ({"model__dropout": 1.0}, r"^model\.dropout rate must be in \[0, 1\), got 1.0"),
        # The field that is wrong is named as the config names it.
        ({"model__embed_dim": 0}, r"^model\.embed_dim must be at least 1, got 0"),
        ({"model__embed_dim": -16}, r"^model\.embed_dim must be at least 1, got -16"),
        ({"model__num_layers": 0}, r"^model\.num_layers must be at least 1, got 0"),
        ({"model__mlp_factor": 0}, r"^model\.mlp_factor must be at least 1, got 0"),
        ({"model__remat": "ful"}, r"^model\.remat must be one of .*'full'"),
        ({"model__input_injection": "x"}, r"^model\.input_injection must be one of"),
        ({"train__nonfinite": "ignore"}, r"^train\.nonfinite must be one of"),
        (
            {"train__accumulate": 3},
            r"^train\.accumulate=3 must divide train\.batch_size=128",
        ),
        # A remedy that can be followed.
        (
            {"train__curriculum": "fixed", "train__curriculum_options": "min_length=2"},
            r"Fixed has no setting 'min_length'\. Its settings: none\.",
        ),
        *(
            (
                {
                    "encoding__name": "learned",
                    "positions__name": scheme,
                    "positions__options": settings,
                },
                "training with Learned and .* positions: they are fractions, .* choose "
                "an encoding that computes with positions",
            )
            for scheme, settings in (
                ("equal_mean", ""),
                ("equal_mean", "max_position=4096"),
                ("random_floats", ""),
                ("evenly_spaced", "rounded=False"),
            )
        ),
        # Sizes that do not fit (fault B12: width 40 and 8 heads are 5 channels a head).
        ({"model__embed_dim": 40}, "head_dim=5 times .* is 5; make it even"),
        ({"model__num_heads": 6}, "model.num_heads=6 must divide model.embed_dim=64"),
        ({"model__num_heads": 0}, "model.num_heads=0 must divide"),
        (
            {"model__num_kv_heads": 3},
            r"model\.num_kv_heads=3 must be at least 1 and divide model\.num_heads=8",
        ),
        (
            {"model__num_kv_heads": 0},
            r"model\.num_kv_heads=0 must be at least 1 and divide model\.num_heads=8",
        ),
        # Positions that are not there (fault B15).
        (
            {"encoding__name": "learned", "encoding__options": "max_position=90"},
            "test inputs of 50 symbols are 100 tokens, at consecutive positions up to "
            "99, but Learned has positions below 90 only",
        ),
        (
            {"encoding__name": "learned", "encoding__options": "max_position=60"},
            "training inputs of 40 symbols are 80 tokens, .* below 60 only",
        ),
        (
            {
                "encoding__name": "learned",
                "positions__name": "randomized",
                "positions__options": "max_position=4096",
            },
            "positions up to 4095, but Learned has positions below 2048 only",
        ),
        (
            {"positions__name": "randomized", "positions__options": "max_position=79"},
            "training inputs of 40 symbols are 80 tokens: .* max_position=79",
        ),
        (
            {"positions__name": "randomized", "positions__options": "max_position=99"},
            "test inputs of 50 symbols are 100 tokens: .* max_position=99",
        ),
        # Parts that do not go together.
        (
            {"positions__name": "randomized", "positions__options": "distances=True"},
            "RoPE is no function of distances; give positions instead",
        ),
        (
            {"encoding__options": "distance=Rectified(8)"},
            "for keys up to the query only; set model.causal=True",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(changes, message, monkeypatch):
    def compiled(*_, **__):
        raise AssertionError("something was compiled")

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiled)
    with pytest.raises(ValueError, match=message):
        build(config_with(**changes))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scale=4, truncate=false", "YaRN.truncate must be True or False, got 'false'"),
        ("scale=4, scale=8", "gives scale twice; give it once"),
        ("**x", "cannot read 'YaRN.*write name=value"),
        ("scale=4, factor=2", "YaRN has no setting 'factor'. .*Its settings: .*scale"),
        ("train_length=12.5", "YaRN.train_length must be an integer, got 12.5"),
        ("max_wavelength=True", "YaRN.max_wavelength must be a number, got True"),
        ("max_wavelength=1e999", "YaRN.max_wavelength must be a finite number, got in"),
        ("beta_fast=fast", "YaRN.beta_fast must be a number, got 'fast'"),
        ("attention_factor=one", "YaRN.attention_factor must be a number, got 'one'"),
        ("4", "1 values without a name, YaRN takes at most 0; write name=value"),
    ],
)
def test_settings_of_an_object_are_checked_like_others(text, message):
    config = config_with(encoding__name="compose")
    config.encoding.options = f"rope=YaRN({text})"
    with pytest.raises(ValueError, match=f"^encoding.options: .*{message}"):
        make_encoding(config)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_wavelength=True", "max_wavelength must be a number, got True"),
        ("max_wavelength=-1e999", "max_wavelength must be a finite number, got -inf"),
        (
            "frequencies=Rectified(5)",
            "frequencies .*Map .one of Chain.*YaRNSc.*, got",
        ),
        ("distance=YaRNScaling(5)", "distance .* Distance .*Rectified.*, got YaRNScal"),
        ("distance=Rectifeid", "got 'Rectifeid'. Did you mean 'Rectified'"),
        ("distance=Rectified", r"got 'Rectified'. Write Rectified\(\.\.\.\), with its"),
        ("distance=Rectified(5, window=6)", "gives window twice"),
        ("distance=Rectified(5, False, 1)", "3 values without a name, Rectified takes"),
        ("frequencies=Chain((NTKAware(2), Leaky()))", r"Chain.maps\[1\] must .*Freque"),
        ("frequencies=Chain(NTKAware(2))", r"Chain.maps must be values in parentheses"),
    ],
)
def test_parts_of_another_kind_are_refused_with_what_fits(text, message):
    with pytest.raises(ValueError, match=f"encoding.options: .*{message}"):
        make_encoding(config_with(encoding__options=text))


@pytest.mark.fast
def test_whole_numbers_inside_objects_become_integers():
    config = config_with(encoding__options="distance=Rectified(1e2)")
    window = make_encoding(config).distance.window
    assert (window, type(window)) == (100, int)


def changed_dict(path, value) -> dict:
    """The base config as a plain dictionary, with a field set, or taken away by ..."""
    config = base.get_config().to_dict()
    group, _, name = path.rpartition(".")
    inside = config[group] if group else config
    inside[name] = value
    if value is ...:
        del inside[name]
    return config


@pytest.mark.fast
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("train.learning_rat", 1e-3, "no field 'train.learning_rat'. Did you mean"),
        ("train.learning_rate", 1e-3, "Did you mean optim.learning_rate?"),
        ("modle", {"causal": True}, "no field 'modle.causal'. Did you mean model.caus"),
        (
            "train",
            3,
            "config.train is a group of fields; set one of train.accumulate, ",
        ),
        ("train.nonfinite", ..., "lacks train.nonfinite; start from configs.base.get"),
        ("train", {}, "lacks train.accumulate, .*, train.steps_per.*; start from"),
        ("optim", ..., "lacks optim.b1, .*, optim.learning_rate, .*; start from"),
        ("train.steps", "5", "train.steps must be a number, got '5'"),
        ("train.steps", None, "train.steps must be a number, got None"),
        ("train.steps", 2.5, "train.steps must be an integer, got 2.5"),
        (
            "train.steps",
            2e4,
            "train.steps must be an integer, got 20000.0; write 20000",
        ),
        ("train.seed", True, "train.seed must be a number, got True"),
        ("model.num_kv_heads", 2.0, "model.num_kv_heads must be an integer.* write 2"),
        ("optim.b1", "0.9", "optim.b1 must be a number, got '0.9'"),
        ("optim.eps", math.nan, "optim.eps must be a finite number, got nan"),
        ("model.causal", 1, "model.causal must be True or False, got 1"),
        ("task.name", 7, "task.name must be a name, got 7"),
        ("eval.positions", 7, "eval.positions must be a name, got 7"),
    ],
)
def test_dictionaries_have_the_fields_of_the_base_config(path, value, message):
    config = changed_dict(path, value)
    with pytest.raises(ValueError, match=message):
        build(config)
    with pytest.raises(ValueError, match=message):
        build(ConfigDict(config))


@pytest.mark.fast
def test_fields_without_a_value_whole_rates_and_the_largest_seed_are_taken():
    config = changed_dict("optim.learning_rate", 1)
    config["train"] |= {"seed": 2**31 - 1, "length_seed": None}
    config["eval"]["lengths"] = "5"
    experiment = build(config)
    assert (experiment.seed, experiment.length_seed) == (2**31 - 1, None)
    assert experiment.learning_rate(0) == 1


def test_an_unknown_field_set_in_code_is_refused():
    config = base.get_config()
    config.train.learning_rat = 1.0  # not locked
    with pytest.raises(
        ValueError, match=r"'train\.learning_rat'.*optim\.learning_rate"
    ):
        build(config)
    config = base.get_config()
    config.lock()
    with pytest.raises((AttributeError, KeyError), match="learning_rat"):
        config.optim.learning_rat = 1.0
    with pytest.raises(KeyError, match="learning_rate"):
        config.train.update({"learning_rate": 1.0})  # a known one in the wrong section


# Text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1:5", (1, 2, 3, 4, 5)),
        ("7", (7,)),
        ("1,2, 10:12", (1, 2, 10, 11, 12)),
        ("10:30:10,20,5", (5, 10, 20, 30)),
        ("10:25:10", (10, 20)),
    ],
)
def test_lengths_include_both_ends(text, wanted):
    assert lengths.parse(text) == wanted


@pytest.mark.parametrize("text", ["0:5", "a", "1:2:3:4", "1;2", "1:5:0", "5:", "-3"])
def test_unreadable_lengths_are_refused(text):
    with pytest.raises(ValueError, match="cannot read"):
        lengths.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:1000000000", r"are 1000000000 and more, .* at most 1048576, .*: 1:.*:1000"),
        ("1:900000,2:900000", "are 1799999 and more"),
        ("1:10000000000", "10000000000 is longer than any input .* at most 2147483647"),
        ("5,2147483648", "2147483648 is longer"),
    ],
)
def test_more_lengths_than_can_be_scored_are_refused_before_they_are_made(
    text, message
):
    with pytest.raises(ValueError, match=message):
        lengths.parse(text)
    assert len(lengths.parse("1:1000000000:1000")) == 10**6


def test_options_are_read_as_the_arguments_of_a_call():
    classes = {"Rectified": Rectified}
    text = "a=1, b=-2.5e3, c=name, d=(1, x), e=True, f=Rectified(window=8), h=None"
    text += ", g='t, ='"
    assert options.parse(text, "here", classes) == {
        "a": 1,
        "b": -2500.0,
        "c": "name",
        "d": (1, "x"),
        "e": True,
        "f": Rectified(8),
        "g": "t, =",
        "h": None,
    }
    assert options.parse("  ", "here") == {}


@pytest.mark.parametrize("text", ["a=1, a=2", "**b", "a=1; b=2", "a=f(", "1"])
def test_unreadable_options_are_refused(text):
    with pytest.raises(ValueError, match="here: cannot read"):
        options.parse(text, "here")


def test_settings_change_without_touching_the_others():
    rope = Rotary(max_wavelength=500.0, layout="interleaved")
    changed = options.change(rope, {"distance": Rectified(8)}, "here")
    assert changed == dataclasses.replace(rope, distance=Rectified(8))
    with pytest.raises(ValueError, match="'distanse'.*'distance'"):
        options.change(rope, {"distanse": Rectified(8)}, "here")


def test_name_and_settings_are_split():
    assert options.split("randomized(max_position=5, sort=False)", "x") == (
        "randomized",
        "max_position=5, sort=False",
    )
    assert options.split("consecutive", "x") == ("consecutive", "")
    with pytest.raises(ValueError, match="cannot read 'a b'"):
        options.split("a b", "x")


@pytest.mark.parametrize("name", POSITIONS)
def test_every_scheme_can_be_named(name):
    config = config_with(positions__as_published=False)
    assert make_positions(config, name) == POSITIONS[name]()


def test_compose_puts_encodings_together_by_name():
    config = config_with(
        encoding__name="compose",
        encoding__options="rope=Rotary(), scale=LogScale(count=all)",
    )
    encoding = build(config).recipe.model.pattern[0].encoding
    scale = LogScale(count="all", train_length=80)
    assert encoding == compose(rope=Rotary(), scale=scale)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "needs parts"),
        ("rope=3", "must be an encoding"),
        ("rope=Rotray()", "Rotary"),
    ],
)
def test_compositions_that_are_none_are_refused(options, message):
    config = config_with(encoding__name="compose", encoding__options=options)
    with pytest.raises(ValueError, match=message):
        build(config)


def test_layer_patterns_are_chosen_by_name():
    config = config_with(
        model__causal=True,
        model__num_layers=4,
        model__pattern="rnope_swa",
        model__pattern_options="window=3, every=2",
    )
    kinds = build(config).recipe.model.pattern
    assert [kind.encoding for kind in kinds] == [Rotary(), Encoding()]
    config.model.pattern = "rnope"
    with pytest.raises(ValueError, match="rnope_swa"):
        build(config)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_builds_by_its_name_or_says_that_it_is_causal(encoding):
    """Building traces the model at the longest training and test inputs."""
    config = config_with(encoding__name=encoding, train__max_length=6)
    config.eval.lengths = "1:8"
    if ENCODINGS[encoding]().causal_only:
        with pytest.raises(ValueError, match=r"model\.causal=True"):
            build(config)
        config.model.causal = True
    wanted = ENCODINGS[encoding]()
    if hasattr(wanted, "train_length"):  # in tokens: 6 symbols, and 6 of the answer
        wanted = dataclasses.replace(wanted, train_length=12)
    assert build(config).recipe.model.pattern[0].encoding == wanted
