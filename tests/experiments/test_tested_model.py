"""Another model or task at test time: whatever needs no other parameters."""

import functools

import pytest

from configs import base
from experiments.building.build import build
from experiments.building.tested_model import make_tested_model, merged
from experiments.running import workdir
from ropejax.encodings import LogScale, Rotary, YaRN, compose
from ropejax.encodings.distance_maps import Rectified
from ropejax.tasks.addition import Addition

pytestmark = pytest.mark.fast


@functools.cache
def trained_with(**changes):
    """A small config, plain, and its objects."""
    config = base.get_config()
    small = {"train__max_length": 4, "eval__lengths": "2", "model__num_layers": 2}
    named = {n.replace("__", "."): value for n, value in (small | changes).items()}
    config.update_from_flattened_dict(named)
    return workdir.plain(config), build(config).recipe


ROPE = {}
ADDITION = {"task__name": "addition", "model__kind": "decoder"}


@pytest.mark.parametrize(
    ("trained", "fields", "options", "encoding", "label"),
    [
        (ROPE, {}, "", Rotary(), None),
        (ROPE, {"encoding.name": "rope"}, "", Rotary(), None),
        (ROPE, {}, "max_wavelength=10000", Rotary(), None),
        (
            {"encoding__options": "layout='half'", "model__causal": True},
            {},
            "distance=Rectified(6)",
            Rotary(layout="half", distance=Rectified(6)),
            "rope(layout='half', distance=Rectified(6))",
        ),
        # Trained lengths are those of training: 8 tokens.
        (
            ROPE,
            {"encoding.name": "yarn", "encoding.options": "scale=4"},
            "",
            YaRN(scale=4, train_length=8),
            "yarn(scale=4)",
        ),
        (
            ROPE,
            {
                "encoding.name": "compose",
                "encoding.options": "rope=Rotary(), scale=LogScale(count=all)",
            },
            "",
            compose(rope=Rotary(), scale=LogScale(train_length=8, count="all")),
            "compose(rope=Rotary(), scale=LogScale(count=all))",
        ),
        # Of parts put together, one more, and another one.
        (
            {"encoding__name": "compose", "encoding__options": "rope=Rotary()"},
            {},
            "scale=LogScale(count=all), rope=Rotary(max_wavelength=5e2)",
            compose(
                rope=Rotary(max_wavelength=5e2),
                scale=LogScale(train_length=8, count="all"),
            ),
            "compose(rope=Rotary(max_wavelength=500.0), scale=LogScale(count=all))",
        ),
    ],
)
def test_an_encoding_may_be_another_one(trained, fields, options, encoding, label):
    tested = make_tested_model(*trained_with(**trained), fields, options)
    assert tested.model.pattern[0].encoding == encoding
    assert tested.label == label


def test_layers_loops_and_normalizers_may_differ_and_stand_in_the_label():
    fields = {
        "model.loops": 3,
        "model.normalizer": "entmax",
        "model.normalizer_options": "alpha=2.0",
        "model.pattern": "hwfa",
    }
    config, trained = trained_with(model__causal=True)
    tested = make_tested_model(config, trained, fields)
    assert tested.model.loops == 3
    assert tested.model.settings.normalizer.alpha == 2.0
    assert len(tested.model.pattern) == 2
    assert tested.task is trained.task
    assert tested.label == (
        "rope(loops=3, normalizer='entmax', "
        "normalizer_options='alpha=2.0', pattern='hwfa')"
    )


def test_a_task_may_have_other_settings_and_trained_lengths_stay():
    options = "rope=Rotary(), scale=LogScale(count=all)"
    config, trained = trained_with(
        **ADDITION, encoding__name="compose", encoding__options=options
    )
    fields = {"task.options": "operands=3", "model.loops": 2}
    tested = make_tested_model(config, trained, fields)
    assert tested.task.task == Addition(operands=3)
    assert tested.model.pattern == trained.model.pattern
    assert tested.label == f"compose({options}, task_options='operands=3', loops=2)"


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (
            {"encoding.name": "t5"},
            "",
            "encoding.name: what was .*table",
        ),
        ({"model.row_scale": "ssmax"}, "", "absent there"),
        ({"model.num_layers": 3}, "", r"--config.model.num_layers: what was trained"),
        ({}, "trainable=layer", r"--encoding_options='trainable=layer': what was tr"),
        ({}, "layuot=half", "no setting 'layuot'. Did you mean 'layout"),
        ({}, "layout", r"--encoding_options: cannot read 'layout'"),
        ({"encoding.options": ""}, "layout=half", "are both given"),
        ({"model.lops": 2}, "", r"no field 'model.lops'.*--config.model.loops"),
        ({"model.loops": "2"}, "", "model.loops must be a number, got '2'"),
        ({"model.loops": 0}, "", "model.loops"),
        ({"model.dropout": 0.1}, "", "cannot differ at test: it is a matter of train"),
        ({"model.kind": "decoder"}, "", "cannot differ at test"),
        ({"positions.name": "shifted"}, "", "cannot differ at test; set --positions"),
        ({"eval.samples": 4}, "", "cannot differ at test; set --lengths"),
        ({"train.steps": 4}, "", "only fields of task, encoding and model can"),
        (
            {"task.name": "bucket_sort"},
            "",
            "would have 6 symbols, .* with 3",
        ),
        ({"task.name": "revers"}, "", "task.name='revers' is unknown"),
    ],
)
def test_what_cannot_be_at_test_is_refused(fields, options, message):
    with pytest.raises(ValueError, match=message):
        make_tested_model(*trained_with(), fields, options)


def test_settings_are_merged_as_text():
    assert (
        merged("a=1, b=Rectified(512)", "b=half, c=(1, 2)") == "a=1, b=half, c=(1, 2)"
    )
    assert merged("", "a=1") == "a=1"
