"""What every task of the catalogue must do, whatever it asks."""

import concurrent.futures
import dataclasses
import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.tasks import TASKS, Level
from tests.tasks.samples import LENGTHS, SHORT, UNOPTIMIZED, big_batch, draw, sampler

BATCH_FIELDS = ("tokens", "targets", "target_mask", "score_mask", "lengths")


def assert_same_rows(batch, other):
    """Equal rows, up to the padding that the wider of the two batches adds."""
    for name in BATCH_FIELDS:
        first, second = getattr(batch, name), getattr(other, name)
        if first.ndim == 2:
            width = min(first.shape[1], second.shape[1])
            assert not first[:, width:].any()
            assert not second[:, width:].any()
            first, second = first[:, :width], second[:, :width]
        np.testing.assert_array_equal(first, second, err_msg=name)


def rows(batch, part):
    return jax.tree.map(lambda array: array[part], batch)


def test_catalogue_holds_the_15_tasks_by_level():
    levels = {level: [] for level in Level}
    for name, task in TASKS.items():
        levels[task.level].append(name)
    assert levels == {
        Level.REGULAR: [
            "even_pairs",
            "modular_arithmetic",
            "parity_check",
            "cycle_navigation",
        ],
        Level.DETERMINISTIC_CONTEXT_FREE: [
            "stack_manipulation",
            "reverse_string",
            "modular_arithmetic_brackets",
            "solve_equation",
        ],
        Level.CONTEXT_SENSITIVE: [
            "duplicate_string",
            "missing_duplicate_string",
            "odds_first",
            "binary_addition",
            "binary_multiplication",
            "compute_sqrt",
            "bucket_sort",
        ],
    }
    with pytest.raises(TypeError, match="assignment"):
        TASKS["even_pairs"] = TASKS["parity_check"]


@pytest.mark.parametrize(
    ("name", "input_vocab", "output_vocab", "output_length_of_40"),
    [
        ("even_pairs", 2, 2, 1),
        ("modular_arithmetic", 8, 5, 1),
        ("parity_check", 2, 2, 1),
        ("cycle_navigation", 3, 5, 1),
        ("stack_manipulation", 5, 3, 41),
        ("reverse_string", 2, 2, 40),
        ("modular_arithmetic_brackets", 10, 5, 1),
        ("solve_equation", 11, 5, 1),
        ("duplicate_string", 2, 2, 80),
        ("missing_duplicate_string", 4, 2, 1),
        ("odds_first", 2, 2, 40),
        ("binary_addition", 3, 3, 41),
        ("binary_multiplication", 3, 3, 40),
        ("compute_sqrt", 2, 2, 20),
        ("bucket_sort", 5, 5, 40),
    ],
)
def test_alphabets_and_output_lengths_are_the_published_ones(
    name, input_vocab, output_vocab, output_length_of_40
):
    task = TASKS[name]()
    assert (task.input_vocab, task.output_vocab) == (input_vocab, output_vocab)
    assert task.placeholder == input_vocab
    assert task.num_symbols == input_vocab + 1
    assert task.output_length(40) == output_length_of_40
    used = big_batch(name)
    assert set(np.unique(used.tokens)) == set(range(input_vocab + 1))
    assert set(np.unique(used.targets[used.target_mask])) == set(range(output_vocab))


@pytest.mark.parametrize("name", TASKS)
def test_documentation_is_complete(name):
    task = TASKS[name]
    assert task.title
    assert task.summary
    assert "\n" not in task.summary
    for section in ("Examples:", "References:", "Departures:", "2207.02098"):
        assert section in task.__doc__
    for field in dataclasses.fields(task):
        assert f"{field.name}: " in task.__doc__


def test_titles_are_distinct():
    assert len({task.title for task in TASKS.values()}) == len(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_rows_do_not_depend_on_padding_batch_size_or_split(name):
    in_big_batch = rows(big_batch(name), slice(len(SHORT)))
    assert_same_rows(in_big_batch, draw(name, 64, 0, SHORT))
    # The same rows in two halves, each placed by its first row, of two keys at once.
    task = TASKS[name]()

    @functools.partial(jax.jit, compiler_options=UNOPTIMIZED)
    @functools.partial(jax.vmap, in_axes=(0, None, None))
    def sample(rng, lengths, first_row):
        return task.sample(rng, lengths, max_length=40, first_row=first_row)

    keys = jnp.stack([jax.random.key(1), jax.random.key(0)])
    halves = [sample(keys, jnp.asarray(SHORT[i : i + 4]), i) for i in (0, 4)]
    joined = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *halves)
    assert_same_rows(in_big_batch, rows(joined, 1))
    assert (joined.tokens[0] != joined.tokens[1]).any()


@pytest.mark.parametrize("name", TASKS)
def test_rows_are_the_same_without_compilation(name):
    task = TASKS[name]()
    eager = task.sample(jax.random.key(0), jnp.asarray(SHORT[:4]), max_length=4)
    in_big_batch = rows(big_batch(name), slice(4))
    assert_same_rows(in_big_batch, jax.tree.map(np.asarray, eager))


@pytest.mark.parametrize("name", TASKS)
def test_batches_follow_from_the_key_alone(name):
    """Fault B19: a sampler that reads a global generator ignores its key."""
    lengths = np.full(8, 24)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    batch = draw(name, 64, 7, lengths)
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    np.testing.assert_equal(before[1], after[1])

    random.seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert_same_rows(batch, draw(name, 64, 7, lengths))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert_same_rows(batch, pool.submit(draw, name, 64, 7, lengths).result())
    old_style = sampler(name, 64)(jax.random.PRNGKey(7), jnp.asarray(lengths))
    assert_same_rows(batch, jax.tree.map(np.asarray, old_style))

    other = draw(name, 64, 8, lengths)
    assert (batch.tokens != other.tokens).any(axis=1).sum() >= 7
    assert len({tuple(tokens) for tokens in batch.tokens}) == len(lengths)


@pytest.mark.parametrize("name", TASKS)
def test_lengths_without_examples_are_refused(name):
    task, rng = TASKS[name](), jax.random.key(0)
    for length in (0, -1, 2**16 + 1):
        with pytest.raises(ValueError, match=f"no example of length {length}"):
            task.check_length(length)
    for length in (1, 2, 3, 40, 500):
        task.check_length(length)
    with pytest.raises(ValueError, match="no example of length 0"):
        task.sample(rng, jnp.asarray([1]), max_length=0)
    with pytest.raises(ValueError, match="lengths run from 0 to 5"):
        task.sample(rng, jnp.asarray([5, 0]), max_length=8)
    with pytest.raises(ValueError, match="lengths run from 2 to 9"):
        task.sample(rng, jnp.asarray([2, 9]), max_length=8)
    with pytest.raises(ValueError, match="one axis"):
        task.sample(rng, jnp.asarray([[2]]), max_length=8)


@pytest.mark.parametrize("name", TASKS)
def test_longer_inputs_never_take_fewer_tokens(name):
    counts = [TASKS[name]().num_tokens(length) for length in range(1, 200)]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("name", "setting", "bad"),
    [
        ("modular_arithmetic", "modulus", 1),
        ("modular_arithmetic_brackets", "modulus", 1),
        ("modular_arithmetic_brackets", "modulus", 2**14 + 1),
        ("solve_equation", "modulus", 0),
        ("cycle_navigation", "cycle_length", 1),
        ("reverse_string", "vocab_size", 1),
        ("duplicate_string", "vocab_size", 2**16 + 1),
        ("odds_first", "vocab_size", -2),
        ("bucket_sort", "vocab_size", 1),
    ],
)
def test_settings_without_meaning_are_refused(name, setting, bad):
    with pytest.raises(ValueError, match=f"{setting}={bad}"):
        TASKS[name](**{setting: bad})


def test_every_length_of_the_big_batch_is_covered():
    assert {1, 2, 3, 40, 500} <= set(LENGTHS.tolist())
