"""A recipe whose parts do not go together is refused when it is put together."""

import dataclasses

import pytest

from ropejax.encodings import Learned, Rotary, compose
from ropejax.evaluation import evaluate
from ropejax.nn import LayerKind
from ropejax.positions import Abacus, BiPE, Consecutive, Coupled, CoupledLevels
from ropejax.tasks import BucketSort, EvenPairs, ReverseString
from ropejax.tasks.flip_flop import FlipFlop
from ropejax.tasks.passkey import Passkey
from ropejax.training import init_state, train
from tests.training.tiny import tiny_recipe

pytestmark = pytest.mark.fast


def model_with(encoding):
    return dataclasses.replace(tiny_recipe().model, pattern=(LayerKind(encoding),))


def wide_model():
    """One of six symbols, which looks ahead."""
    return dataclasses.replace(tiny_recipe().model, num_symbols=6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": 1e-3}, r"optimizer must be like ropejax.training.adam\(1e-3\)"),
        ({"model": None}, r"model must be like TransformerSpec\(...\), got None"),
        ({"buckets": [4]}, "largest bucket, 4, must hold"),
        # Rows of 0, 1 and 2 would be one segment, and all of them digits of a number.
        (
            {"positions": BiPE()},
            r"separators=\(10, 11\) of BiPE positions names 10, 11",
        ),
        ({"positions": Abacus()}, "digits=.* names 3, .*Reverse String has .* 0 .. 2;"),
        (
            {"positions": Coupled(separators=(2,), placeholder=9)},
            "placeholder=.* names 9, and",
        ),
        ({"positions": CoupledLevels(separators=(-1, 2))}, "separators=.* names -1,"),
        (
            {"positions": Abacus((0, 1), base=BiPE(separators=(3,)))},
            r"separators=\(3,\) of Abacus positions names 3, and",
        ),
        ({"buckets": (4, 6.0)}, "buckets must be a tuple of a whole number each"),
        (
            {"task": Passkey()},
            r"lengths from 1 on \(.*Uniform has a min_length\): Passkey has no example",
        ),
        (
            {"task": FlipFlop(answers="each"), "model": wide_model()},
            "answers of Flip-Flop are seen further on .* set dims.causal=True",
        ),
        ({"task": BucketSort()}, "num_symbols=3 must be at least 6 for Bucket Sort"),
        (
            {"task": ReverseString(vocab_size=3)},
            "num_symbols=3 must be at least 4 .* num_symbols=4 and num_outputs=3",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(tiny_recipe(), **changes)


def test_arguments_of_training_of_another_kind_are_named():
    recipe = tiny_recipe()
    params = init_state(recipe, 0).params
    other = init_state(tiny_recipe(encoding="t5"), 0)
    for given, message in (
        ({"saver": "runs/a"}, r"saver must be like .*Checkpoints\(folder\), got 'runs"),
        ({"start": params}, "start must be a TrainState, got a dict; .* as params"),
        ({"params": other.params}, "kind_0/table: .* there, absent here"),
        ({"params": other}, "A whole state was given; give its params"),
    ):
        with pytest.raises(ValueError, match=message):
            train(recipe, steps=1, **given)
    with pytest.raises(ValueError, match="kind_0/table: .* there, absent here"):
        recipe.model.bind(other.params)


def test_what_is_scored_is_a_task_at_positions():
    recipe = tiny_recipe()
    for task, positions, message in (
        (
            EvenPairs,
            Consecutive(),
            r"task must be a Task, such as EvenPairs\(\), got",
        ),
        (EvenPairs(), Consecutive, "positions must be a PositionScheme, such as Cons"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(recipe.model, {}, task, positions, [3])


def test_a_model_may_know_more_symbols_than_the_task_has():
    larger = tiny_recipe("bucket_sort").model
    assert tiny_recipe("even_pairs", model=larger).task == EvenPairs()


def test_outputs_are_counted_apart_from_symbols():
    recipe = tiny_recipe("bucket_sort")
    fewer = dataclasses.replace(recipe.model, num_outputs=2)
    with pytest.raises(ValueError, match="num_outputs=2 must be at least 5 for Bucket"):
        dataclasses.replace(recipe, model=fewer)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 1.5),
        ("steps", True),
        ("steps_per_dispatch", 2.0),
        ("save_every", "5"),
        ("seed", 0.5),
        ("length_seed", 0.5),
    ],
)
def test_numbers_that_are_not_whole_train_nothing(name, value):
    numbers = {"steps": 1} | {name: value}
    with pytest.raises(ValueError, match=f"^{name} must be a whole number, got"):
        train(tiny_recipe(), **numbers)


def test_buckets_in_a_list_are_those_in_a_tuple():
    """A list could not be a static argument, which a recipe is."""
    recipe = tiny_recipe()
    listed = dataclasses.replace(recipe, buckets=list(recipe.buckets))
    assert listed == recipe
    assert hash(listed) == hash(recipe)


@pytest.mark.parametrize(
    "encoding",
    [
        Learned(max_position=15, stream="digit"),
        compose(Rotary(), Learned(max_position=15, stream="digit")),
    ],
)
def test_streams_must_fit_their_table_as_positions_must(encoding):
    """Batches of 6 symbols are 12 tokens: digits to 12, and 3 more with an offset."""
    positions = Abacus(digits=(0, 1), max_offset=3)
    with pytest.raises(ValueError, match="digits up to 15, but a table of 15 rows"):
        tiny_recipe(model=model_with(encoding), positions=positions)
    enough = Learned(max_position=16, stream="digit")
    assert tiny_recipe(model=model_with(enough), positions=positions)


def test_a_learned_table_must_hold_the_longest_batch():
    with pytest.raises(ValueError, match="12 tokens, .* below 11 only"):
        tiny_recipe(model=model_with(Learned(11)), positions=Consecutive())
    assert tiny_recipe(model=model_with(Learned(12)), positions=Consecutive())
