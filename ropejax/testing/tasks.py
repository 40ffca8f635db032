"""Checks that hold a task to what training and evaluation rely on."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.tasks.base import Batch, Task
from ropejax.testing.described import check_described
from ropejax.testing.running import compiled

Oracle = Callable[[list[int]], Sequence[int]]


def check_task(
    task: Task, *, max_length: int = 8, rows: int = 64, oracle: Oracle | None = None
) -> None:
    """Raises AssertionError if a task breaks a promise; the message says which.

    Checked are: it is described, frozen and hashable; rows are laid out as input,
    placeholders and padding, with symbols of the alphabets, as many as it says, and
    something to score in each; a row depends on its key and its length alone, not on
    the padding or the rows beside it; keys of either style give the same rows, other
    keys others; and answers are those of the oracle.

    Args:
        task: an instance.
        max_length: the longest input that is drawn, in symbols.
        rows: how many rows; their lengths are all that there are up to `max_length`.
        oracle: a plain function of a row's input symbols that returns its outputs (of
            answers in place, one for each input symbol). Outputs that do not count are
            not compared.
    """
    name = repr(task)
    check_described(task, "title", "summary")
    lengths = [n for n in range(1, max_length + 1) if _exists(task, n)]
    if not lengths or lengths[-1] != max_length:
        raise AssertionError(f"{name}: there is no example of {max_length=}.")
    longer = range(max_length + 1, 4 * max_length + 2)
    wide = next((n for n in longer if _exists(task, n)), max_length)
    sizes = [task.num_tokens(n) for n in [*lengths, wide]]
    if sizes != sorted(sizes):
        raise AssertionError(f"{name}: num_tokens decreases as lengths grow: {sizes}.")
    each = jnp.asarray([lengths[row % len(lengths)] for row in range(rows)])
    draw = compiled(functools.partial(task.sample, max_length=max_length))
    batch = _on_host(draw(jax.random.key(0), each))
    _check_rows(task, batch, each.tolist(), max_length, name, oracle)
    wider = functools.partial(task.sample, max_length=wide)
    _check_same(
        batch,
        _on_host(compiled(wider)(jax.random.key(0), each)),
        f"{name}: a row changes with the padding",
    )
    half = rows // 2
    later = functools.partial(task.sample, max_length=max_length, first_row=half)
    _check_same(
        Batch(*(array[half:] for array in batch)),
        _on_host(compiled(later)(jax.random.key(0), each[half:])),
        f"{name}: a row changes with the rows that it is drawn beside",
    )
    old = _on_host(draw(jax.random.PRNGKey(0), each))
    _check_same(batch, old, f"{name}: keys of the two styles give different rows")
    other = _on_host(draw(jax.random.key(1), each))
    if all(map(np.array_equal, batch, other)):
        raise AssertionError(f"{name}: another key gives the same batch.")


def _exists(task: Task, length: int) -> bool:
    try:
        task.check_length(length)
    except ValueError:
        return False
    return True


def _on_host(batch: Batch) -> Batch:
    return Batch(*map(np.asarray, batch))


def _check_rows(
    task: Task,
    batch: Batch,
    lengths: list[int],
    max_length: int,
    name: str,
    oracle: Oracle | None,
) -> None:
    shape = len(lengths), task.num_tokens(max_length)
    if batch.tokens.shape != shape:
        raise AssertionError(
            f"{name}: tokens are {batch.tokens.shape}, num_tokens says {shape}."
        )
    for row, length in enumerate(lengths):
        one = Batch(*(array[row] for array in batch))
        try:
            _check_row(task, one, length, oracle)
        except AssertionError as error:
            shown = one.tokens[: int(one.lengths)].tolist()
            raise AssertionError(f"{name}, length {length}, {shown}: {error}") from None


def _check_row(task: Task, row: Any, length: int, oracle: Oracle | None) -> None:
    num_inputs = task.input_length(length)
    num_outputs = 0 if task.in_place else task.output_length(length)
    total = num_inputs + num_outputs
    inputs, behind = row.tokens[:num_inputs], row.tokens[num_inputs:total]
    asked, scored = row.target_mask, row.score_mask
    outputs = asked[:total] if task.in_place else asked[num_inputs:total]
    for broken, told in (
        (row.lengths != total, f"there are {total} tokens, lengths says {row.lengths}"),
        (
            np.any((inputs < 0) | (inputs >= task.input_vocab)),
            f"an input symbol is not in 0 .. {task.input_vocab - 1}",
        ),
        (
            np.any(behind != task.placeholder),
            f"behind the input is not the placeholder, {task.placeholder}",
        ),
        (np.any(row.tokens[total:]), "padding is not zero"),
        (
            np.any((row.targets < 0) | (row.targets >= task.output_vocab)),
            f"a target is not in 0 .. {task.output_vocab - 1}",
        ),
        (
            asked.sum() != outputs.sum() or not (task.in_place or outputs.all()),
            "target_mask is not where the outputs are",
        ),
        (np.any(scored & ~asked), "score_mask is not within target_mask"),
        (not scored.any(), "nothing is scored"),
    ):
        if broken:
            raise AssertionError(f"{told}.")
    if oracle is None:
        return
    start = 0 if task.in_place else num_inputs
    counts = scored[start:total]
    given = row.targets[start:total]
    wanted = np.asarray(oracle(inputs.tolist()))
    if wanted.size < counts.nonzero()[0].max() + 1:
        raise AssertionError(f"the oracle has {wanted.size} outputs, the task more.")
    wanted = np.resize(wanted, counts.shape)
    if np.any((given != wanted) & counts):
        raise AssertionError(
            f"the outputs are {given[counts].tolist()}, the oracle says "
            f"{wanted[counts].tolist()}."
        )


def _check_same(batch: Batch, other: Batch, what: str) -> None:
    for field, one, two in zip(Batch._fields, batch, other, strict=True):
        if one.ndim == 2:
            width = min(one.shape[1], two.shape[1])
            one, two = one[:, :width], two[:, :width]
        if not np.array_equal(one, two):
            raise AssertionError(f"{what} ({field}).")
