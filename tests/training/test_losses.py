"""Sums and counts: padding adds nothing, and means are taken once (fault B17)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.tasks.base import Batch
from ropejax.training.losses import Sums, batch_sums, token_losses

pytestmark = pytest.mark.fast


def make_batch(targets, target_mask, score_mask):
    targets = jnp.asarray(targets)
    return Batch(
        tokens=jnp.zeros_like(targets),
        targets=targets,
        target_mask=jnp.asarray(target_mask, bool),
        score_mask=jnp.asarray(score_mask, bool),
        lengths=jnp.full((targets.shape[0],), targets.shape[1]),
    )


def sums_of_logits(logits, batch):
    return batch_sums(token_losses(logits, batch.targets, batch.target_mask), batch)


def test_sums_equal_a_plain_python_count(rng):
    logits = jax.random.normal(rng, (3, 4, 5))
    targets = np.array([[0, 1, 2, 3], [4, 0, 0, 1], [2, 2, 2, 2]])
    loss_at = np.array([[0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 0]], bool)
    score_at = np.array([[0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]], bool)
    sums = sums_of_logits(logits, make_batch(targets, loss_at, score_at))
    probabilities = np.exp(np.asarray(logits, np.float64))
    probabilities /= probabilities.sum(-1, keepdims=True)
    loss, correct, exact = 0.0, 0, 0
    for row in range(3):
        misses = 0
        for place in range(4):
            target = targets[row, place]
            if loss_at[row, place]:
                loss -= np.log(probabilities[row, place, target])
            if score_at[row, place]:
                hit = np.argmax(logits[row, place]) == target
                correct += hit
                misses += not hit
        exact += misses == 0
    np.testing.assert_allclose(sums.loss, loss, rtol=1e-6)
    assert tuple(map(float, sums[1:])) == (5, correct, 4, exact, 3)


@pytest.mark.parametrize(
    ("parts", "right"),
    [
        ([[1] * 64, [1] * 18 + [0] * 18], 0.82),
        ([[1, 1], [1, 0], [0]], 0.6),
    ],
)
def test_accuracy_does_not_depend_on_how_examples_are_batched(parts, right):
    def sums_of(hits):
        hits = np.asarray(hits)
        logits = jax.nn.one_hot(hits, 2)[:, None]  # right where the hit is 1
        ones = np.ones((len(hits), 1), bool)
        return sums_of_logits(
            logits, make_batch(np.ones((len(hits), 1), int), ones, ones)
        )

    total = jax.tree.map(lambda *x: sum(x), *[sums_of(part) for part in parts])
    assert float(total.correct / total.scored) == pytest.approx(right)
    assert isinstance(total, Sums)


def test_a_place_with_nan_is_wrong_whatever_its_target():
    """Of two rows answered rightly, one lost at one place keeps what is beside it."""
    logits = jax.nn.one_hot(jnp.zeros((2, 3), int), 4)
    ones = np.ones((2, 3), bool)
    batch = make_batch(np.zeros((2, 3), int), ones, ones)
    lost = sums_of_logits(logits.at[0, 1, 0].set(jnp.nan), batch)
    assert (float(lost.correct), float(lost.exact)) == (5, 1)
    unasked = batch._replace(target_mask=batch.target_mask.at[0, 1].set(False))
    unasked = unasked._replace(score_mask=unasked.target_mask)
    sums = sums_of_logits(logits.at[0, 1, 0].set(jnp.nan), unasked)
    assert (float(sums.correct), float(sums.exact)) == (5, 2)
    assert np.isfinite(sums.loss)
