"""The training step: padding changes nothing, one seed determines everything."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ropejax.positions import Consecutive, Randomized
from ropejax.training import Fixed, Uniform, init_state, train
from ropejax.training.applying import apply_and_read
from ropejax.training.losses import batch_sums
from ropejax.training.step import (
    StepMetrics,
    draw_batch,
    step_lengths,
    train_step,
    train_steps,
    update,
)
from tests.training.tiny import tiny_recipe


def assert_trees_close(one, two, **tolerance):
    jax.tree.map(partial(np.testing.assert_allclose, **tolerance), one, two)


def assert_trees_equal(one, two):
    as_data = lambda x: (
        jax.random.key_data(x)
        if jnp.issubdtype(jnp.asarray(x).dtype, jax.dtypes.prng_key)
        else x
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(as_data(a), as_data(b)), one, two
    )


@pytest.mark.parametrize("task", ["even_pairs", "binary_addition"])
def test_loss_accuracy_and_gradients_do_not_depend_on_the_bucket(task):
    """Plain gradient descent, so that parameters differ by gradients; dropout is on."""
    recipe = tiny_recipe(task, optimizer=optax.sgd(1.0))
    state = init_state(recipe, 0)

    @partial(jax.jit, static_argnums=1)
    def step(length, bucket):
        lengths = jnp.full((4,), length)
        return update(recipe, state, *draw_batch(recipe, state, lengths, bucket))

    for length in (1, 4):
        (exact, metrics), (padded, other) = step(length, length), step(length, 6)
        assert_trees_close(exact.params, padded.params, rtol=1e-4, atol=1e-5)
        assert_trees_close(metrics, other, rtol=1e-5)


def test_a_batch_of_mixed_lengths_equals_its_rows_alone():
    recipe = tiny_recipe(
        dropout=0.0, buckets=(6,), length_per_row=True, positions=Consecutive()
    )
    state = init_state(recipe, 0)
    lengths = jnp.array([1, 6, 3, 2])
    batch, placement, _ = draw_batch(recipe, state, lengths, 6)

    def loss_sum(params, rows):
        some = jax.tree.map(lambda x: x[rows], batch)
        told = apply_and_read(recipe.model, params, some, placement)
        return batch_sums(told, some).loss

    grad = jax.jit(jax.value_and_grad(loss_sum))
    whole = grad(state.params, jnp.arange(4))
    parts = [grad(state.params, jnp.array([row])) for row in range(4)]
    total = jax.tree.map(lambda *x: sum(x), *parts)
    assert_trees_close(whole, total, rtol=1e-4, atol=1e-5)


def test_a_batch_has_one_length_unless_rows_draw_their_own():
    state = init_state(tiny_recipe(), 3)
    assert len(set(np.asarray(step_lengths(tiny_recipe(), state)))) == 1
    recipe = tiny_recipe(length_per_row=True, batch_size=64)
    lengths = np.asarray(step_lengths(recipe, state))
    assert set(lengths) == set(range(1, 7))


def test_any_number_of_steps_a_dispatch_runs_one_program_and_gives_the_same_numbers():
    recipe = tiny_recipe()
    run = jax.jit(partial(train_steps, recipe, capacity=6))
    whole, metrics = run(init_state(recipe, 0), jnp.int32(6))
    part, first = run(init_state(recipe, 0), jnp.int32(2))
    part, second = run(part, jnp.int32(4))
    assert_trees_equal(whole, part)
    joined = jax.tree.map(lambda a, b: np.concatenate([a[:2], b[:4]]), first, second)
    assert_trees_equal(metrics, joined)
    assert run._cache_size() == 1
    assert len(set(np.asarray(metrics.length))) > 1
    # Strings of one length in a batch of four, each of their symbols asked for.
    np.testing.assert_array_equal(metrics.outputs, 4 * metrics.length)
    np.testing.assert_array_equal(metrics.scored, 4 * metrics.length)


def test_means_over_steps_are_over_symbols_and_not_means_of_means():
    """Fault B25: 30 symbols at 1 nat and 10 at 4 are 1.75 nats a symbol, not 2.5."""
    steps = {"grad_norm": np.ones(3), "length": np.array([3, 1, 1])}
    metrics = StepMetrics(
        loss=np.array([1.0, 4.0, np.nan]),
        accuracy=np.array([1.0, 0.5, np.nan]),
        outputs=np.array([30.0, 10.0, 0.0]),  # the last one asked for nothing
        scored=np.array([1.0, 3.0, 0.0]),
        **steps,
    )
    assert metrics.mean_loss() == 1.75
    assert metrics.mean_accuracy() == 0.625
    stacked = StepMetrics(*(np.stack([one, one + 1], axis=1) for one in metrics))
    assert stacked.of_member(0).mean_loss() == 1.75
    nothing = metrics._replace(outputs=np.zeros(3))
    assert np.isnan(nothing.mean_loss())


def test_other_seeds_give_other_data_and_the_lengths_follow_their_own_seed():
    recipe = tiny_recipe()
    one, two = init_state(recipe, 0), init_state(recipe, 1)
    same = init_state(recipe, 1, length_seed=0)
    at = lambda state, step: state._replace(step=jnp.int32(step))
    lengths = lambda state: [
        int(step_lengths(recipe, at(state, step))[0]) for step in range(12)
    ]
    assert lengths(one) != lengths(two)
    assert lengths(one) == lengths(same)
    draw = lambda state: draw_batch(recipe, state, jnp.full((4,), 6), 6)[0].tokens
    assert np.any(draw(one) != draw(two))
    assert np.any(draw(one) != draw(at(one, 1)))
    np.testing.assert_array_equal(draw(two), draw(same))


def test_training_learns_a_task_that_it_can():
    """Even Pairs at lengths to 3 with plain positions: chance is one half."""
    recipe = tiny_recipe(
        "even_pairs",
        dropout=0.0,
        positions=Consecutive(),
        curriculum=Uniform(3),
        buckets=(3,),
        batch_size=32,
    )
    seen = []
    train(
        recipe,
        steps=400,
        steps_per_dispatch=100,
        on_dispatch=lambda progress: seen.append(progress.metrics.accuracy.mean()),
    )
    assert seen[-1] > 0.95 > seen[0]


def test_step_vmapped_over_seeds_equals_each_seed_alone():
    recipe = tiny_recipe(buckets=(6,))
    make = lambda seed: init_state(recipe, seed, length_seed=7)
    seeds = jnp.arange(3)
    axes = make(0)._replace(step=0, params=0, opt_state=0, rng=0, length_rng=None)
    axes = jax.tree.map(lambda _: 0, make(0))._replace(step=None, length_rng=None)
    together = jax.vmap(make)(seeds)
    shared = together._replace(step=jnp.int32(0), length_rng=make(0).length_rng)
    stepped, metrics = jax.jit(
        jax.vmap(partial(train_step, recipe), in_axes=(axes,), out_axes=(0, 0))
    )(shared)
    one_step = jax.jit(partial(train_step, recipe))
    for member in range(3):
        alone, alone_metrics = one_step(make(member))
        pick = lambda tree, member=member: jax.tree.map(lambda x: x[member], tree)
        assert_trees_close(pick(stepped).params, alone.params, rtol=1e-4, atol=1e-5)
        assert_trees_close(pick(metrics), alone_metrics, rtol=1e-4, atol=1e-5)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": (4, 5)}, "longest length, 6"),
        ({"buckets": (6, 6)}, "increase"),
        ({"buckets": ()}, "increase"),
        ({"batch_size": 0}, "batch_size"),
        ({"curriculum": Fixed(60), "buckets": (60,)}, "max_position=32"),
    ],
)
def test_recipes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(tiny_recipe(), **change)


@pytest.mark.fast
def test_step_counts_out_of_range_are_refused():
    for name in ("steps", "steps_per_dispatch", "save_every"):
        with pytest.raises(ValueError, match=name):
            train(tiny_recipe(), **{"steps": 1, name: 0})
    for name in ("steps", "steps_per_dispatch"):
        with pytest.raises(ValueError, match=f"{name} must be at most"):
            train(tiny_recipe(), **{"steps": 1, name: 2**31})


@pytest.mark.fast
@pytest.mark.parametrize("task", ["modular_arithmetic_brackets", "bucket_sort"])
def test_a_step_of_grammar_and_sorting_tasks_has_finite_numbers(task):
    recipe = tiny_recipe(task, buckets=(6,), curriculum=Fixed(6))
    _, metrics = jax.jit(partial(train_step, recipe))(init_state(recipe, 0))
    assert np.isfinite(metrics.loss)
    assert metrics.grad_norm > 0
    assert 0 <= metrics.accuracy <= 1


@pytest.mark.parametrize("per_sequence", [False, True])
def test_rows_of_a_batch_are_placed_apart_if_asked(per_sequence):
    """Fault B20's kind: one draw for all rows where each should have its own."""
    recipe = tiny_recipe(positions=Randomized(64, per_sequence=per_sequence))
    state = init_state(recipe, 0)
    _, placement, _ = draw_batch(recipe, state, jnp.full((4,), 5), 6)
    rows = np.broadcast_to(placement.positions[:, :10], (4, 10))
    assert len({tuple(row) for row in rows}) == (4 if per_sequence else 1)
