"""Compiled samplers shared by the task tests, and rows taken apart."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.tasks import TASKS

# One compiled shape, and one batch, serves most tests of a task. The first rows are for
# comparison with smaller shapes.
SHORT = [1, 2, 3, 4, 17, 24, 39, 40]
LENGTHS = np.array(SHORT + [1] * 100 + [2, 3, 40, 500] * 600)
LONGEST = 500
# Compiling costs most of these tests' time; shapes that run once need no optimization.
UNOPTIMIZED = {"xla_backend_optimization_level": 0}


@functools.cache
def sampler(name, max_length):
    """The default task's compiled `(rng, lengths, first_row) -> Batch` at one shape."""
    task = TASKS[name]()

    def sample(rng, lengths, first_row=0):
        return task.sample(rng, lengths, max_length=max_length, first_row=first_row)

    return jax.jit(
        sample, compiler_options={} if max_length == LONGEST else UNOPTIMIZED
    )


def draw(name, max_length, seed, lengths, first_row=0):
    """A batch as numpy arrays."""
    batch = sampler(name, max_length)(
        jax.random.key(seed), jnp.asarray(lengths), first_row
    )
    return jax.tree.map(np.asarray, batch)


@functools.cache
def big_batch(name):
    """The batch of `LENGTHS`, drawn once."""
    return draw(name, LONGEST, 0, LENGTHS)


def row(task, batch, index, length):
    """The row's input, targets and score mask as lists, after checking its layout."""
    length = int(length)
    start, count = int(task.input_length(length)), int(task.output_length(length))
    end = start + count
    tokens = batch.tokens[index].tolist()
    assert batch.lengths[index] == end == task.num_tokens(length)
    assert tokens[start:end] == [task.placeholder] * count
    assert not any(tokens[end:])
    answered = [start <= place < end for place in range(len(tokens))]
    assert batch.target_mask[index].tolist() == answered
    assert not batch.targets[index][~batch.target_mask[index]].any()
    assert not batch.score_mask[index][~batch.target_mask[index]].any()
    targets = batch.targets[index, start:end].tolist()
    return tokens[:start], targets, batch.score_mask[index, start:end].tolist()
