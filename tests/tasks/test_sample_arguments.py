"""What `Task.sample` takes: keys, whole lengths, known or traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.tasks import ReverseString

TASK = ReverseString()


def sample(lengths, rng=None, max_length=5, **given):
    rng = jax.random.key(3) if rng is None else rng
    return TASK.sample(rng, lengths, max_length=max_length, **given)


@pytest.mark.parametrize(
    ("lengths", "got"),
    [
        (np.array([3.7]), "float64"),
        (jnp.array([3.0]), "float32"),
        ([3, 2.5], "2.5"),
        ([True], "True"),
        (np.array([True]), "bool"),
        (["3"], "'3'"),
        (None, "None"),
    ],
)
def test_lengths_that_are_not_whole_are_refused_rather_than_cut(lengths, got):
    with pytest.raises(ValueError, match=f"lengths must be whole numbers, got {got}"):
        sample(lengths)


def test_traced_lengths_that_are_not_whole_are_refused_too():
    with pytest.raises(ValueError, match="lengths must be whole numbers, got float32"):
        jax.eval_shape(sample, jnp.array([3.7]))
    with pytest.raises(ValueError, match="lengths must be whole numbers, got float32"):
        jax.eval_shape(lambda n: sample([n, 2]), jnp.float32(3.7))


@pytest.mark.parametrize("max_length", [5.0, True, "5", None])
def test_a_longest_length_that_is_no_whole_number_is_refused(max_length):
    with pytest.raises(ValueError, match="max_length must be a whole number, got"):
        sample([2], max_length=max_length)
    with pytest.raises(ValueError, match="length must be a whole number, got"):
        TASK.check_length(max_length)


def test_a_first_row_that_is_no_whole_number_is_refused():
    with pytest.raises(ValueError, match="first_row must be whole numbers, got 1.5"):
        sample([2], first_row=1.5)


def test_a_list_of_traced_lengths_serves_as_an_array_does():
    drawn = jax.jit(lambda n: sample([n, n + 1]))(3)
    jax.tree.map(np.testing.assert_array_equal, drawn, sample(np.array([3, 4])))


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_rows_of_threefry_keys_depend_on_neither_padding_nor_batch(make):
    """The promise of `sample`, which names the keys that do not keep it."""
    padded = sample([4] * 3, make(3), max_length=40)
    exact, alone = sample([4] * 3, make(3)), sample([4], make(3), first_row=2)
    np.testing.assert_array_equal(padded.tokens[:, :8], exact.tokens[:, :8])
    np.testing.assert_array_equal(alone.tokens[0], exact.tokens[2])


def test_keys_of_another_kind_draw_examples_all_the_same():
    batch = sample([4] * 64, jax.random.key(3, impl="rbg"))
    np.testing.assert_array_equal(batch.targets[:, 4:8], batch.tokens[:, 3::-1])
    assert len(np.unique(batch.tokens[:, :4], axis=0)) > 8
