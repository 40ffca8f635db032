"""Steps that are not finite: stopped before, skipped, or counted."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Encoding
from ropejax.nn import LayerKind
from ropejax.training import NonFiniteError, init_state, train
from ropejax.training.step import step_lengths, train_step
from tests.training.tiny import tiny_recipe

STEPS = 12
SEED = 4  # lengths 1 2 4 1 6 5 1 3 5 6 4 3


@dataclasses.dataclass(frozen=True)
class Poisoned(Encoding):
    """Its logits are NaN in the second bucket, lengths 4 to 6 of Reverse String."""

    def bias(self, params, query, key, scale):
        poison = jnp.nan if query.length > 6 else 0.0
        return jnp.full((1, 1, query.length, key.length), poison)


def recipe(policy):
    made = tiny_recipe(dropout=0.0, nonfinite=policy)
    model = dataclasses.replace(made.model, pattern=(LayerKind(Poisoned()),))
    return dataclasses.replace(made, model=model)


def lengths_of(made):
    state = init_state(made, SEED)
    at = lambda step: int(step_lengths(made, state._replace(step=step))[0])
    return np.array([at(jnp.int32(step)) for step in range(STEPS)])


def same(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def test_training_stands_still_before_the_first_such_step():
    made = recipe("stop")
    bad = int(np.argmax(lengths_of(made) > 3))
    assert bad == 2
    with pytest.raises(NonFiniteError, match=f"step {bad} ") as stopped:
        train(made, seed=SEED, steps=STEPS, steps_per_dispatch=STEPS)
    assert stopped.value.step == bad
    before = train(made, seed=SEED, steps=bad, steps_per_dispatch=STEPS)
    assert same(stopped.value.state.params, before.params)
    assert same(stopped.value.state.opt_state, before.opt_state)


def test_skipped_steps_change_no_parameter():
    made = recipe("skip")
    reported = []
    state = train(
        made,
        seed=SEED,
        steps=STEPS,
        steps_per_dispatch=5,
        on_dispatch=lambda progress: reported.extend(progress.metrics.loss),
    )
    assert int(state.step) == STEPS
    np.testing.assert_array_equal(np.isnan(reported), lengths_of(made) > 3)
    expected = init_state(made, SEED)
    step = jax.jit(lambda state: train_step(recipe("count"), state)[0])
    for at, length in enumerate(lengths_of(made)):
        expected = expected._replace(step=jnp.int32(at))
        expected = step(expected) if length <= 3 else expected
    for ours, wanted in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(expected.params), strict=True
    ):
        np.testing.assert_allclose(ours, wanted, atol=1e-6)


def test_counted_steps_poison_the_parameters():
    state = train(recipe("count"), seed=SEED, steps=STEPS, steps_per_dispatch=STEPS)
    assert int(state.step) == STEPS
    assert np.isnan(jax.tree.leaves(state.params)[0]).all()


def test_finite_training_is_the_same_under_every_policy():
    runs = [
        train(tiny_recipe(nonfinite=policy), steps=4, steps_per_dispatch=4)
        for policy in ("stop", "skip", "count")
    ]
    assert same(runs[0].params, runs[1].params)
    assert same(runs[0].params, runs[2].params)


@pytest.mark.fast
def test_an_unknown_policy_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'skip'"):
        tiny_recipe(nonfinite="skipp")
