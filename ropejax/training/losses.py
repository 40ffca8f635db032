"""Masked loss and accuracy as sums and counts, so that means are taken once.

A mean of means is wrong whenever the parts differ in size; every number here is a sum
with the count that it must be divided by.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from ropejax.nn.answers import likeliest
from ropejax.tasks.base import Batch


class Sums(NamedTuple):
    """What a batch adds up to; sums of several batches are added field by field.

    Attributes:
        loss: cross-entropy in nats, summed over placeholders.
        outputs: number of placeholders.
        correct: right symbols among the scored ones.
        scored: number of scored symbols.
        exact: rows whose scored symbols are all right.
        rows: number of rows.
    """

    loss: Float[Array, ""]
    outputs: Float[Array, ""]
    correct: Float[Array, ""]
    scored: Float[Array, ""]
    exact: Float[Array, ""]
    rows: Float[Array, ""]


def batch_sums(logits: Float[Array, "B P V"], batch: Batch) -> Sums:
    """Returns loss and accuracy sums of a batch; padding contributes nothing.

    A place with a NaN among its logits is answered wrongly, whatever its target.

    Args:
        logits: the model's output at every token, `[B, P, V]`.
        batch: the batch, with its targets and masks.

    Returns:
        Sums over all rows, float32.
    """
    # Before the loss and not after it: the gradient of an infinite one is not finite.
    logits = jnp.where(batch.target_mask[..., None], logits, 0.0)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
    correct, exact = count_right(likeliest(logits), batch)
    count = lambda mask: jnp.sum(mask, dtype=jnp.float32)
    return Sums(
        loss=jnp.sum(jnp.where(batch.target_mask, losses, 0.0)),
        outputs=count(batch.target_mask),
        correct=correct,
        scored=count(batch.score_mask),
        exact=exact,
        rows=jnp.float32(logits.shape[0]),
    )


def count_right(
    answers: Int[Array, "B P"], batch: Batch
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Returns how many scored symbols are right, and how many rows wholly are.

    Args:
        answers: the symbol answered at each place, `[B, P]`; `NO_SYMBOL` is never
            right.
        batch: the batch, with its targets and masks.
    """
    right = answers == batch.targets
    missed = batch.score_mask & ~right
    count = lambda mask: jnp.sum(mask, dtype=jnp.float32)
    return count(batch.score_mask & right), count(~jnp.any(missed, axis=-1))
