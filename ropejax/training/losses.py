"""Masked loss and accuracy as sums and counts, so that means are taken once.

A mean of means is wrong whenever the parts differ in size; every number here is a sum
with the count that it must be divided by.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

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


class TokenLosses(NamedTuple):
    """What is read of the logits at each token.

    Attributes:
        loss: cross-entropy in nats, zero where there is no target.
        answers: the symbol of the largest logit; `NO_SYMBOL` where a logit is NaN.
    """

    loss: Float[Array, "B P"]
    answers: Int[Array, "B P"]


def token_losses(
    logits: Float[Array, "B P V"],
    targets: Int[Array, "B P"],
    target_mask: Bool[Array, "B P"],
) -> TokenLosses:
    """Returns the loss and the answer at each token.

    A place with a NaN among its logits is answered wrongly, whatever its target.

    Args:
        logits: the model's output at every token, `[B, P, V]`.
        targets: the right symbol at each of them, `[B, P]`.
        target_mask: True where the loss is taken, `[B, P]`.
    """
    # Before the loss and not after it: the gradient of an infinite one is not finite.
    logits = jnp.where(target_mask[..., None], logits, 0.0)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return TokenLosses(jnp.where(target_mask, losses, 0.0), likeliest(logits))


def batch_sums(told: TokenLosses, batch: Batch) -> Sums:
    """Returns loss and accuracy sums of a batch; padding contributes nothing.

    Args:
        told: loss and answer at each token.
        batch: the batch, with its targets and masks.

    Returns:
        Sums over all rows, float32.
    """
    correct, exact = count_right(told.answers, batch)
    count = lambda mask: jnp.sum(mask, dtype=jnp.float32)
    return Sums(
        loss=jnp.sum(told.loss),
        outputs=count(batch.target_mask),
        correct=correct,
        scored=count(batch.score_mask),
        exact=exact,
        rows=jnp.float32(batch.tokens.shape[0]),
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
