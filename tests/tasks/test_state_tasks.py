"""Tasks beside the benchmark at long lengths, in place, and their distributions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.tasks import MORE_TASKS, groups
from ropejax.tasks.groups import GENERATORS
from tests.tasks import number_oracles, state_oracles
from tests.tasks.samples import UNOPTIMIZED, row

LENGTHS = np.array([1, 2, 3] * 10 + [8] * 400 + [40] * 60 + [500] * 60)
FAIR = {"p_write": 0.25, "p_read": 0.25, "p_ignore": 0.5}


@functools.cache
def drawn(name):
    """A batch of `LENGTHS` of the task as it is by default, as numpy arrays."""
    sample = jax.jit(
        functools.partial(MORE_TASKS[name]().sample, max_length=500),
        compiler_options=UNOPTIMIZED,
    )
    return jax.tree.map(np.asarray, sample(jax.random.key(0), jnp.asarray(LENGTHS)))


def inputs_of(name, length):
    task = MORE_TASKS[name]()
    tokens = drawn(name).tokens[length == LENGTHS]
    return tokens[:, : task.input_length(length)].tolist()


ORACLES = vars(state_oracles) | vars(number_oracles)


@pytest.mark.parametrize(
    "name",
    [
        *("word_problem", "flip_flop", "dyck", "mode"),
        *("multiplication", "summation", "polynomial", "lego", "count"),
    ],
)
def test_answers_are_exact_at_any_length(name):
    task, batch = MORE_TASKS[name](), drawn(name)
    for index, length in enumerate(LENGTHS.tolist()):
        inputs, targets, scored = row(task, batch, index, length)
        assert targets == ORACLES[name](task, inputs, length)
        assert scored == [True] * len(targets)


IS_ASKED = {
    "word_problem": lambda inputs, answers: [True] * len(inputs),
    "flip_flop": lambda inputs, answers: [symbol == 3 for symbol in inputs],
    "associative_recall": lambda inputs, answers: [answer >= 0 for answer in answers],
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("word_problem", {"group_name": "S3"}),
        ("word_problem", {"group_name": "A4", "symbols": "generators"}),
        ("flip_flop", FAIR),
        ("associative_recall", {"num_keys": 3}),
    ],
)
def test_each_answer_in_place_is_that_of_the_row_cut_there(name, options):
    """Of the same row, and read at its symbols, of which some ask nothing."""
    task = MORE_TASKS[name](**options, answers="each")
    last = MORE_TASKS[name](**options)
    lengths = np.array([1, 2, 3, 4, 8, 9])
    both = jax.jit(
        lambda rng: [one.sample(rng, lengths, max_length=9) for one in (task, last)],
        compiler_options=UNOPTIMIZED,
    )
    batch, other = jax.tree.map(np.asarray, both(jax.random.key(3)))
    assert task.in_place
    assert task.left_to_right == (name != "word_problem")  # there what is read follows
    assert task.num_tokens(9) == 9
    for index, length in enumerate(lengths.tolist()):
        count = int(task.input_length(length))
        assert batch.lengths[index] == count
        inputs = batch.tokens[index, :count].tolist()
        assert inputs == other.tokens[index, :count].tolist()
        answers = ORACLES[name](task, inputs, length)
        asked = np.zeros(9, bool)
        asked[:count] = IS_ASKED[name](inputs, answers)
        np.testing.assert_array_equal(batch.target_mask[index], asked)
        np.testing.assert_array_equal(batch.score_mask[index], asked)
        wanted = np.zeros(9, int)
        wanted[:count] = answers
        np.testing.assert_array_equal(batch.targets[index], np.where(asked, wanted, 0))
        assert answers[-1] == other.targets[index, count]
        assert not batch.tokens[index, count:].any()


@pytest.mark.fast
@pytest.mark.parametrize("name", GENERATORS)
def test_groups_are_those_of_their_names(name):
    """Elements and products, of tuples that were found in another way."""
    elements, generators = state_oracles.group(name)
    assert list(groups.elements(name)) == elements
    found = [elements[number] for number in groups.generator_numbers(name)]
    assert found == generators
    table = groups.table(name)
    for p in range(0, len(elements), 7):  # p first, and then q
        products = [tuple(q[i] for i in elements[p]) for q in elements]
        assert [elements[r] for r in table[p]] == products
    commutes = np.array_equal(table, table.T)
    assert commutes == (name == "Z60")


def test_instructions_have_their_probabilities():
    """FFL(0.8), but for the first and the last, which are given."""
    drawn_ones = [row[2:-1:2] for row in inputs_of("flip_flop", 500)]
    share = np.bincount(np.ravel(drawn_ones), minlength=5) / np.size(drawn_ones)
    np.testing.assert_allclose(share, [0, 0, 0.1, 0.1, 0.8], atol=0.012)


def test_the_bracket_asked_for_is_at_any_distance_alike():
    counts = np.zeros(8)
    for inputs in inputs_of("dyck", 8):
        counts[7 - innermost_open(inputs)] += 1
    np.testing.assert_allclose(counts / 400, [1 / 4, 0] * 4, atol=0.09)


def test_brackets_open_and_close_alike_between_the_bounds():
    """Before the one asked for, whose depth leaves room for what it encloses."""
    opened = {depth: [] for depth in range(9)}
    for inputs in inputs_of("dyck", 500):
        depth = 0
        for symbol in inputs[: innermost_open(inputs)]:
            opened[depth].append(symbol < 4)
            depth += 1 if symbol < 4 else -1
    assert all(opened[0])
    assert not any(opened[8])
    assert all(len(each) > 500 for each in opened.values())
    between = np.concatenate([opened[depth] for depth in range(1, 8)])
    assert np.mean(between) == pytest.approx(0.5, abs=0.02)


def innermost_open(inputs):
    """The place of the bracket that closes next, of four kinds."""
    places = []
    for place, symbol in enumerate(inputs):
        if symbol < 4:
            places.append(place)
        else:
            places.pop()
    return places[-1]
