"""Decoder-only models, encoder-decoders and looped layers by config."""

import pytest

from configs import base
from experiments.building.build import build
from ropejax.encodings import Encoding, Rotary
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.tasks import ALL_TASKS, MORE_TASKS, Autoregressive, MaskedText, NextSymbol


def config_with(**changes):
    config = base.get_config()
    named = {name.replace("__", "."): value for name, value in changes.items()}
    small = {"train.max_length": 6, "eval.lengths": "12", "model.num_layers": 2}
    config.update_from_flattened_dict(small | named)
    return config


@pytest.mark.parametrize("name", [*MORE_TASKS, "stack_manipulation"])
def test_tasks_build_for_models_that_read_answers_back(name):
    room = {"train__max_length": 8, "train__buckets": 1}
    if name == "passkey":  # shorter ones have no example
        room["train__curriculum_options"] = "min_length=7"
    config = config_with(task__name=name, model__kind="decoder", **room)
    recipe = build(config).recipe
    assert recipe.task == Autoregressive(ALL_TASKS[name]())
    assert recipe.model.dims.causal
    assert recipe.model.num_symbols == recipe.task.num_symbols
    assert recipe.model.pattern[0].mask is not None


def test_text_is_asked_in_place_whatever_the_model():
    task = lambda **changes: build(config_with(**changes)).recipe.task
    masked = {"task__name": "masked_text"}
    assert task(**masked) == task(**masked, model__kind="decoder") == MaskedText()
    follows = {"task__name": "next_symbol", "task__options": "repeat=0.1"}
    assert task(**follows, model__kind="decoder") == NextSymbol(repeat=0.1)
    assert task(**follows, model__causal=True) == NextSymbol(repeat=0.1)


def test_loops_and_injection_reach_the_model():
    config = config_with(model__loops=3, model__input_injection="layer")
    model = build(config).recipe.model
    assert (model.loops, model.input_injection) == (3, "layer")


def test_an_encoder_decoder_has_an_encoding_of_its_own_for_cross_attention():
    plain = build(config_with(model__kind="encoder_decoder")).recipe
    assert isinstance(plain.model, EncoderDecoderSpec)
    assert plain.model.cross == Encoding()
    assert plain.model.separator == plain.task.placeholder
    options = "cross=Rotary(max_wavelength=100.0)"
    config = config_with(model__kind="encoder_decoder", model__kind_options=options)
    assert build(config).recipe.model.cross == Rotary(max_wavelength=100.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__kind": "decode"}, "Did you mean 'decoder'"),
        ({"model__kind_options": "cross=Rotary()"}, "are of recurrent kinds and"),
        (
            {"model__kind": "encoder_decoder", "model__loops": 2},
            "model.loops=2 is not for model.kind=encoder_decoder",
        ),
        (
            {"model__kind": "encoder_decoder", "model__kind_options": "crossed=1"},
            "no setting 'crossed'; it has cross",
        ),
        (
            {"model__kind": "encoder_decoder", "model__kind_options": "cross=rope"},
            "cross must be an encoding, as in cross=Rotary\\(\\), got 'rope'",
        ),
        (
            {
                "model__kind": "decoder",
                "task__name": "addition",
                "positions__name": "abacus",
                "encoding__name": "learned",
                "encoding__options": "stream=digit, max_position=100",
            },
            "digits up to 119, but a table of 100 rows; set max_position=120",
        ),
        (
            {
                "model__kind": "decoder",
                "task__name": "addition",
                "task__options": "operands=3, running_sums=True",
                "positions__name": "coupled_levels",
                "encoding__name": "learned",
                "encoding__options": "stream=operand, max_position=32",
            },
            "operands up to 32, but a table of 32 rows; set max_position=33",
        ),
        ({"task__name": "next_symbol"}, "which models that look ahead see; set model"),
        (
            {"task__name": "masked_text", "model__kind": "encoder_decoder"},
            "has nothing to decode; set model.kind=decoder or encoder",
        ),
        (
            {"task__name": "masked_text", "task__options": "path=nowhere"},
            "path='nowhere' is no file",
        ),
        (
            {"encoding__name": "learned", "encoding__options": "stream=digit"},
            "no stream 'digit'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(config_with(**changes))
