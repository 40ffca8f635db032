"""NaN is no answer: a model that is lost is wrong everywhere (kinds B15 and B17)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.evaluation import evaluate
from ropejax.masks import Causal
from ropejax.nn import NO_SYMBOL, decode_batch, likeliest
from ropejax.positions import Consecutive
from ropejax.tasks import Autoregressive
from tests.training.tiny import tiny_recipe


def all_nan(spec):
    """Parameters as a run that diverged leaves them."""
    shapes = jax.eval_shape(spec.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan), shapes)


def causal(recipe):
    """The same model and task, with answers that are read back."""
    task = Autoregressive(recipe.task)
    dims = recipe.model.dims._replace(causal=True)
    pattern = (recipe.model.pattern[0]._replace(mask=Causal()),)
    changes = {"num_symbols": task.num_symbols, "dims": dims, "pattern": pattern}
    spec = dataclasses.replace(recipe.model, **changes)
    return dataclasses.replace(recipe, model=spec, task=task)


@pytest.mark.parametrize("decodes", [False, True])
def test_a_model_of_nan_gets_nothing_right(decodes):
    """A bare argmax calls NaN symbol 0, and scores what always saying 0 would."""
    recipe = tiny_recipe()
    recipe = causal(recipe) if decodes else recipe
    scores = evaluate(
        recipe.model,
        all_nan(recipe.model),
        recipe.task,
        Consecutive(),
        [2, 4],
        samples=8,
        draws=1,
        buckets=(4,),
    )
    for score in scores.values():
        assert (score.correct, score.exact) == (0, 0)
        assert score.scored == 8 * score.length
        assert np.isnan(score.loss)


def test_one_nan_among_the_logits_is_no_answer():
    logits = jnp.array([[0.0, 2.0, jnp.nan], [3.0, 1.0, 2.0], [0.0, jnp.inf, -jnp.inf]])
    assert likeliest(logits).tolist() == [NO_SYMBOL, 0, 1]


class LostInTheMiddle:
    """Says 1, but NaN at the second symbol of each answer."""

    def __call__(self, tokens, placement, *, valid):
        asked = tokens == 2  # the separator, behind which answers are read
        second = jnp.roll(asked, 1, axis=1)[..., None]
        return jnp.where(second, jnp.nan, jnp.array([0.0, 1.0]))


def test_decoding_says_where_it_was_lost_and_goes_on():
    recipe = causal(tiny_recipe())
    task, rng = recipe.task, jax.random.key(0)
    batch = task.sample(rng, jnp.full((2,), 3), max_length=3)
    placement = Consecutive()(rng, batch.lengths, num_tokens=batch.tokens.shape[1])
    answers = decode_batch(LostInTheMiddle(), task, batch, placement, max_length=3)
    assert answers[batch.target_mask].tolist() == 2 * [1, NO_SYMBOL, 1]
