"""Model FLOPs utilization against products counted by hand."""

import dataclasses

import numpy as np
import pytest

from experiments.plan.counting import model_operations, step_operations
from experiments.running.utilization import Utilization, utilization_here
from ropejax.nn.remat import REMATS
from ropejax.training import applying
from ropejax.training.progressive import ProgressiveLoss
from tests.experiments.small_recipe import recipe


def by_hand(made, *, loops=1.0, learning=1.0):
    """Products of a step, a multiplication and an addition being two operations.

    A backward pass has two products for each product of the forward pass, one for each
    factor; but symbols, the first factor of the embedding, have no gradient.

    Args:
        made: the recipe of a Transformer.
        loops: how often its layers are applied.
        learning: those of the loops that have a backward pass.
    """
    dims, mlp = made.model.dims, made.model.settings.mlp_dim
    width, length = dims.embed_dim, made.task.num_tokens(made.buckets[0])
    tokens = made.batch_size * length
    projections = 4 * width**2 + 2 * width * mlp  # query, key, value, output; the MLP
    pairs = 2 * length * width  # logits, and weighted values
    layer = 2 * tokens * (projections + pairs)
    embedding = 2 * tokens * made.model.num_symbols * width
    readout = 2 * tokens * width * made.model.num_outputs
    layers = dims.num_layers * layer * (loops + 2 * learning)
    return layers + 3 * readout + 2 * embedding


def remade(remat="none", loops=1, progressive=None, accumulate=1):
    """The small recipe with some of what alters how much is computed."""
    made = recipe(length=6, layers=1)
    settings = dataclasses.replace(made.model.settings, remat=remat)
    model = dataclasses.replace(made.model, settings=settings, loops=loops)
    changes = {"model": model, "progressive": progressive, "accumulate": accumulate}
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize("remat", REMATS)
def test_utilization_is_products_by_hand_over_the_peak(remat):
    """What is computed again to save memory is no work of the model's."""
    made = remade(remat, accumulate=4)
    found = Utilization(made, peak=1e12)(np.array([6, 5]), 10.0)
    assert found == pytest.approx(by_hand(made) * 10 / 1e12)
    assert utilization_here(made) is None  # the peak of this processor is not known
    again = step_operations(made, 6).products / by_hand(made)
    assert again == pytest.approx(1) if remat == "none" else again > 1.01


def test_logits_that_are_read_in_stretches_are_made_twice_and_counted_once(monkeypatch):
    """A step makes them again for its gradient, but not on a mesh that cuts rows."""
    made = remade()
    spread = recipe(length=6, layers=1, sizes={"data": 8})
    readout = 2 * 16 * 12 * 32 * made.model.num_outputs  # rows, tokens, width
    monkeypatch.setattr(applying, "LOGITS_BYTES", 4 * 16 * 3 * made.model.num_outputs)
    assert model_operations(made, 6).products == by_hand(made)
    assert step_operations(made, 6).products == by_hand(made) + readout
    assert step_operations(spread, 6).products == by_hand(made)


def test_loops_without_gradient_count_forwards_only():
    """Four loops of which the last one learns, and the mean over what is drawn."""
    last = remade(loops=4, progressive=ProgressiveLoss(0.0, 1))
    assert model_operations(last, 6).products == pytest.approx(
        by_hand(last, loops=4, learning=1)
    )
    # n in 0 .. 3 loops are held fixed, then k in 1 .. 4 - n learn, all alike likely.
    drawn = [(n, k, 1 / 4 / (4 - n)) for n in range(4) for k in range(1, 5 - n)]
    assert sum(chance for *_, chance in drawn) == pytest.approx(1)
    mean = sum(
        chance * by_hand(last, loops=n + k, learning=k) for n, k, chance in drawn
    )
    both = remade(loops=4, progressive=ProgressiveLoss(0.5))
    whole = by_hand(both, loops=4, learning=4)
    assert model_operations(both, 6).products == pytest.approx(whole + mean)
    # With one loop that learns, n + 1 forwards and one backwards.
    one = remade(loops=4, progressive=ProgressiveLoss(1.0, 1))
    assert model_operations(one, 6).products == pytest.approx(
        np.mean([by_hand(one, loops=n + 1, learning=1) for n in range(4)])
    )
