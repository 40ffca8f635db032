"""Members scored together have the scores that each has alone, on the same examples."""

import jax
import numpy as np
import pytest

from ropejax.evaluation import evaluate
from ropejax.evaluation_members import evaluate_members
from ropejax.sharding import Sharding, make_mesh
from ropejax.training import init_state
from tests.training.tiny import tiny_recipe


def test_members_scored_together_have_the_scores_that_each_has_alone():
    recipe = tiny_recipe("even_pairs")
    params = [init_state(recipe, seed).params for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    what = (recipe.task, recipe.positions, [3, 8])
    how = {"samples": 64, "draws": 2, "buckets": (8,)}
    seen, buckets = [], []
    together = evaluate_members(
        recipe.model,
        stacked,
        *what,
        on_length=seen.append,
        on_bucket=buckets.append,
        **how,
    )
    for at in range(3):
        alone = evaluate(recipe.model, params[at], *what, **how)
        assert sorted(together[at]) == sorted(alone) == [3, 8]
        for length, score in alone.items():
            one = together[at][length]
            assert one._replace(loss=0) == score._replace(loss=0)
            np.testing.assert_allclose(one.loss, score.loss, rtol=1e-5)
    assert len({together[at][8].loss for at in range(3)}) == 3
    assert buckets == [8]  # before one program for both lengths
    assert seen == [[scores[length] for scores in together] for length in (3, 8)]

    mesh = make_mesh({"population": 2, "data": 2, "tensor": 2})  # the third has a copy
    spread = evaluate_members(
        recipe.model, stacked, *what, sharding=Sharding(mesh), by_place=True, **how
    )
    for one, other in zip(spread, together, strict=True):
        for length, score in other.items():
            got, places = one[length], one[length].places
            assert got._replace(loss=0, places=None) == score._replace(loss=0)
            np.testing.assert_allclose(got.loss, score.loss, rtol=1e-5)
            # Even Pairs has answers of one symbol, so that place is all there is.
            assert places.loss == pytest.approx([score.loss], rel=1e-5)
            assert places.correct.tolist() == [score.correct]
            assert places.first_wrong.tolist() == [score.rows - score.exact]
            assert places.blind_correct.tolist() == [score.blind_correct]
