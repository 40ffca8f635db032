"""A test-time scheme has what is not said of it from training, and says so."""

import pathlib

import pytest

from configs import arithmetic, base
from experiments.building.build import build
from experiments.building.methods import make_positions
from experiments.building.tested_positions import label_at_test, make_tested
from experiments.evaluate import changed_evaluation, scored_at
from experiments.running import workdir
from experiments.running.opening import Run
from ropejax.positions import (
    POSITIONS,
    Abacus,
    Coupled,
    EqualMean,
    EvenlySpaced,
    RandomFloats,
    Randomized,
    Shifted,
)

pytestmark = pytest.mark.fast


def config_with(name="randomized", options="max_position=64, per_sequence=True"):
    """A small config that is trained at some positions."""
    config = base.get_config()
    config.train.max_length = 4
    config.eval.lengths = "2,8"
    config.positions.name, config.positions.options = name, options
    config.positions.as_published = False
    return config


TRAINED = Randomized(max_position=64, per_sequence=True)


@pytest.mark.parametrize(
    ("text", "scheme", "label"),
    [
        # Of the same scheme everything, of another its range of positions.
        (("randomized", ""), TRAINED, None),
        (("randomized", "max_position=64"), TRAINED, None),
        (("evenly_spaced", ""), EvenlySpaced(64), "evenly_spaced(max_position=64)"),
        (("random_floats", ""), RandomFloats(64), "random_floats(max_position=64)"),
        (("equal_mean", ""), EqualMean(64), "equal_mean(max_position=64)"),
        (("consecutive", ""), POSITIONS["consecutive"](), "consecutive"),
        (("shifted", "offset=3"), POSITIONS["shifted"](3), "shifted(offset=3)"),
        # What is given wins.
        (
            ("evenly_spaced", "max_position=128"),
            EvenlySpaced(128),
            "evenly_spaced(max_position=128)",
        ),
        (
            ("randomized", "max_position=128"),
            Randomized(128, per_sequence=True),
            "randomized(max_position=128, per_sequence=True)",
        ),
        (
            ("randomized", "per_sequence=False"),
            Randomized(64),
            "randomized(per_sequence=False, max_position=64)",
        ),
        (
            ("evenly_spaced", "rounded=False"),
            EvenlySpaced(64, rounded=False),
            "evenly_spaced(rounded=False, max_position=64)",
        ),
    ],
)
def test_what_is_not_said_is_as_in_training_and_stands_in_the_label(
    text, scheme, label
):
    config = config_with()
    tested = make_tested(config, TRAINED, *text)
    assert tested.scheme == scheme
    assert tested.label == label
    if label is not None:  # the label alone says what was used
        name, _, settings = tested.label.rstrip(")").partition("(")
        assert make_positions(config, name, settings) == scheme


@pytest.mark.parametrize(
    ("trained", "name", "wanted"),
    [
        # Defaults in training are as ever: results from before keep their labels.
        (Randomized(per_sequence=True), "evenly_spaced", "evenly_spaced"),
        (EqualMean(), "evenly_spaced", "evenly_spaced"),
        (EqualMean(99), "evenly_spaced", "evenly_spaced(max_position=99)"),
        (RandomFloats(99.0), "randomized", "randomized(max_position=99)"),
        (Abacus(base=Randomized(50)), "pose", "pose(max_position=50)"),
        (Abacus(max_offset=9), "abacus", None),
    ],
)
def test_the_range_is_that_of_any_scheme_that_has_one(trained, name, wanted):
    assert make_tested(config_with(), trained, name).label == wanted


def test_a_range_that_another_scheme_cannot_have_is_asked_for():
    with pytest.raises(
        ValueError,
        match=r"eval.positions: the training positions' max_position must be an "
        r"integer, got 9.5. Set max_position in eval.options",
    ):
        make_tested(config_with(), RandomFloats(9.5), "randomized")


def test_configs_and_the_command_take_over_alike():
    config = config_with()
    config.eval.positions = "evenly_spaced"
    experiment = build(config)
    assert experiment.evaluation.positions == EvenlySpaced(64)
    assert experiment.evaluation.label == "evenly_spaced(max_position=64)"
    plain = workdir.plain(config)
    run = Run(plain, experiment, pathlib.Path("run"))
    assert run.test_positions == label_at_test(plain) == experiment.evaluation.label
    for text, label in (
        ("randomized", None),
        ("evenly_spaced(max_position=32)", "evenly_spaced(max_position=32)"),
    ):
        evaluation, found = changed_evaluation(run, None, text, {})
        assert found == evaluation.label == label
        trained = "randomized(max_position=64, per_sequence=True)"
        assert scored_at(run, found) == (
            f"positions: {label} (trained with {trained})"
            if label
            else f"positions: as trained, {trained}"
        )
    assert run.score_labels(5, positions=None)["test_positions"] == (
        "randomized(max_position=64, per_sequence=True)"
    )
    config.eval.positions = None
    assert (
        label_at_test(workdir.plain(config)) == (run.score_labels(5)["test_positions"])
    )


def test_a_published_draw_of_training_is_that_of_the_test():
    config = config_with(options="max_position=64")
    config.positions.as_published = True
    recipe = build(config).recipe
    assert recipe.positions == Randomized(64, per_layer=True)  # of RoPE
    tested = make_tested(config, recipe.positions, "randomized", "max_position=99")
    assert tested.scheme == Randomized(99, per_layer=True)
    # That it is published is in the config, and so it was never in the label.
    assert tested.label == "randomized(max_position=99)"


@pytest.mark.parametrize(
    ("trained", "text", "scheme"),
    [
        (Abacus(max_offset=9, per_sequence=True), "max_offset=0", Abacus(max_offset=0)),
        (Shifted(5, 9, False), "offset=5, max_random_offset=0", Shifted(5)),
        (Coupled(), "random_start=False", Coupled(random_start=False)),
    ],
)
def test_how_to_draw_is_not_taken_over_where_nothing_is_drawn(trained, text, scheme):
    name = type(trained).__name__.lower()
    tested = make_tested(config_with(), trained, name, text)
    assert tested == (scheme, f"{name}({text})")


def test_the_shipped_addition_is_scored_under_the_name_it_always_was():
    """Results of before then stand in one row with those of now."""
    evaluation = build(arithmetic.get_config("method=abacus")).evaluation
    assert evaluation.positions == Abacus(max_offset=0)
    assert evaluation.label == "abacus(max_offset=0)"
