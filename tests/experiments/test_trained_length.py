"""Extensions of RoPE, log n scaling and patterns know the run's own trained length."""

import pytest

from configs import base, quickstart
from experiments import main
from experiments.building import trained_length
from experiments.building.build import make_model
from experiments.building.methods import make_encoding, make_task
from ropejax.encodings import ENCODINGS
from ropejax.nn.patterns import PATTERNS

pytestmark = pytest.mark.fast

OF_40_SYMBOLS = 80  # reverse_string: 40 symbols and as many places for the answer


def config_with(**changes):
    config = base.get_config()
    for name, value in changes.items():
        group, _, field = name.partition("__")
        config[group][field] = value
    return config


def model_of(config):
    task = make_task(config)
    return task, make_model(config, task)


def shown(config):
    return trained_length.notes(config, *model_of(config))


WITH = [name for name, kind in ENCODINGS.items() if hasattr(kind(), "train_length")]


@pytest.mark.parametrize("name", WITH)
def test_the_default_is_what_training_reads_in_tokens(name):
    """Not 40, whatever the task: reading 40 symbols backwards takes 80 tokens."""
    config = config_with(encoding__name=name)
    assert make_encoding(config).train_length == OF_40_SYMBOLS
    config.train.max_length = 10
    assert make_encoding(config).train_length == 20
    config.encoding.options = "train_length=33"
    assert make_encoding(config).train_length == 33


def test_some_methods_have_a_trained_length():
    assert {"yarn", "dynamic_ntk", "log_scale", "longrope"} <= {*WITH}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("rope=YaRN(), scale=LogScale()", [OF_40_SYMBOLS] * 2),
        ("rope=YaRN(train_length=7), scale=LogScale()", [7, OF_40_SYMBOLS]),
        (
            "rope=Rotary(frequencies=Chain((YaRNScaling(2),))), scale=LogScale()",
            [OF_40_SYMBOLS] * 2,
        ),
        ("rope=Rotary(frequencies=YaRNScaling(2, 9))", [9]),
    ],
)
def test_parts_know_it_too(options, wanted):
    config = config_with(encoding__name="compose", encoding__options=options)
    found = trained_length._found(make_encoding(config))
    assert [length for _, length in found] == wanted


def test_a_decoder_reads_its_answer_too():
    config = config_with(model__kind="decoder", encoding__name="yarn")
    task = make_task(config)
    assert make_encoding(config).train_length == task.num_tokens(40) > 40


def test_a_pattern_of_layers_knows_it_too():
    assert PATTERNS["hwfa"]().train_length == 40
    lines = shown(config_with(model__pattern="hwfa"))
    assert lines == [
        "train_length of LogScale is that of this run: 80 tokens, inputs of up to 40 "
        "symbols."
    ]


def test_another_length_is_allowed_and_said_once():
    config = config_with(
        encoding__name="yarn",
        encoding__options="train_length=40",
        model__pattern="hwfa2",
        model__pattern_options="full_layers=2",
    )
    lines = shown(config)
    assert [line for line in lines if line.startswith("note: ")] == [
        "note: train_length=40 of YaRN is not that of this run (80 tokens, inputs of "
        "up to 40 symbols); without it, it would be."
    ]
    assert len(lines) == 2  # and that of LogScale in the full layers


def test_a_token_more_or_less_is_no_slip():
    """The quickstart's, whose measured figures are with 40 rather than 41."""
    assert shown(quickstart.get_config()) == [
        "train_length=40 of LogScale is within a token of that of this run: 41 tokens, "
        "inputs of up to 40 symbols."
    ]


def test_methods_without_one_say_nothing():
    assert shown(config_with()) == []
    assert shown(config_with(model__kind="lstm", encoding__name="none")) == []


def test_the_command_shows_it_before_it_trains(monkeypatch, capsys, tmp_path):
    trained = []
    monkeypatch.setattr(
        "experiments.running.run.run_experiment", lambda *a, **k: trained.append(a)
    )
    argv = ["--config=configs/base.py", "--config.encoding.name=yarn"]
    main.main([*argv, f"--workdir={tmp_path}", "--compile_cache="])
    assert len(trained) == 1
    assert "train_length of YaRN is that of this run: 80 tok" in capsys.readouterr().out
