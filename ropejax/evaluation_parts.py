"""Rows of one length, some at a time: on one device, or spread over a mesh."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.filling import last_repeated
from ropejax.nn.pairs import logits_a_token
from ropejax.positions.base import Placement
from ropejax.sharding import Sharding
from ropejax.tasks.base import Batch

LOGITS_BYTES = 2**25
"""Rows a program are chosen so that a layer's attention logits take about this, and so
do their outputs; of a recurrent model, what a layer holds."""

DECODING_BYTES = 2**28
"""The same for rows that are decoded together, each symbol's cost being fixed."""


ACTIVATIONS = 8
"""Those of a token, each as wide as the model, in a layer of a recurrent one: Mamba is
twice as wide inside, and has gates beside."""


def in_parts(
    count: Callable[[Batch, Placement], Any],
    batch: Batch,
    placement: Placement,
    *,
    numbers_a_token: int,
    num_outputs: int,
    budget: int,
    sharding: Sharding | None = None,
) -> Any:
    """Returns what a function finds in each part of a batch, one after the other.

    On a mesh, a part has rows for all devices.

    Args:
        count: the function, of some rows and where their tokens are.
        batch: rows of one length, as many as a mesh cuts evenly (`filled`).
        placement: where their tokens are.
        numbers_a_token: what a layer holds of each token at once (`held_a_token`).
        num_outputs: logits of a token that are held for all tokens at once.
        budget: bytes of these, or of the outputs, on a device.
        sharding: how a part is spread over a mesh; None for one device.

    Returns:
        What `count` returns, with a leading axis of parts.
    """
    of, num_tokens = batch.tokens.shape
    at_once = 1
    if sharding is not None:
        at_once = sharding.batch_parts
        budget *= sharding.devices_a_model // at_once
    a_row = num_tokens * max(numbers_a_token, num_outputs)
    rows = at_once * rows_a_program(of // at_once, a_row, budget=budget)

    def part(first_row: Int[Array, ""]) -> Any:
        some = jax.tree.map(
            lambda x: jax.lax.dynamic_slice_in_dim(x, first_row, rows), batch
        )
        where = placement.rows(first_row, rows, of)
        if sharding is not None:
            some, where = sharding.ordered(sharding.batch(some), where)
        return count(some, where)

    return jax.lax.map(part, jnp.arange(0, of, rows))


def held_a_token(model: Any, num_tokens: int) -> int:
    """Returns about how many numbers a layer holds of a token: attention logits.

    A recurrent model has none: a few activations of its width.

    Args:
        model: how the model is made.
        num_tokens: tokens of its row.
    """
    return logits_a_token(model, num_tokens) or ACTIVATIONS * model.dims.embed_dim


def filled(
    batch: Batch, placement: Placement, parts: int
) -> tuple[Batch, Placement, int]:
    """Returns rows that divide into parts: the last one is repeated, unscored.

    Args:
        batch: the rows.
        placement: where their tokens are.
        parts: what the number of rows must be a multiple of.

    Returns:
        Batch and placement, and the number of rows added, whose masks are all False.
    """
    of = batch.tokens.shape[0]
    extra = -of % parts
    if not extra:
        return batch, placement, 0
    real = jnp.arange(of + extra)[:, None] < of
    batch = jax.tree.map(lambda x: last_repeated(x, extra), batch)
    batch = batch._replace(
        target_mask=batch.target_mask & real, score_mask=batch.score_mask & real
    )
    return batch, placement.with_rows(of, extra), extra


def rows_a_program(rows: int, numbers_a_row: int, *, budget: int) -> int:
    """Returns how many of `rows` to run at once: the most that fit a budget.

    Args:
        rows: rows in all.
        numbers_a_row: float32 numbers of a row.
        budget: bytes.

    Returns:
        A divisor of `rows`, at least 1.
    """
    fitting = max(1, budget // (4 * numbers_a_row))
    return max(
        part for part in range(1, rows + 1) if rows % part == 0 and part <= fitting
    )
