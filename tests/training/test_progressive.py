"""The progressive loss: which loops are run, and which ones learn from it."""

import collections
import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from ropejax.nn.looped import LoopSpan
from ropejax.nn.parameters import as_arrays
from ropejax.positions import Consecutive, Placement
from ropejax.sharding import Sharding, make_mesh
from ropejax.training import Numbers, OptimizerFamily, Population, init_state
from ropejax.training.losses import batch_sums, token_losses
from ropejax.training.members import strong
from ropejax.training.population import population_step, stack
from ropejax.training.progressive import ProgressiveLoss, step_rng
from ropejax.training.step import draw_batch, step_lengths, train_step
from tests.training.tiny import tiny_recipe

LOOPS, SGD = 3, optax.sgd(1.0)


def recipe_with(progressive, *, loops=LOOPS, injection="none", **changes):
    """One layer, looped; plain gradient descent, so that steps are gradients."""
    changes = {"dropout": 0.0, "optimizer": SGD, "buckets": (6,)} | changes
    recipe = tiny_recipe(positions=Consecutive(), **changes)
    model = dataclasses.replace(
        recipe.model,
        dims=recipe.model.dims._replace(num_layers=1),
        loops=loops,
        input_injection=injection,
    )
    return dataclasses.replace(recipe, model=model, progressive=progressive)


def unrolled_loss(recipe, copies, params, batch, before):
    """The mean loss after `len(copies)` loops in a Python loop.

    Each loop has a copy of the layer's parameters; no gradient flows through the state
    after the first `before` of them.
    """
    model = recipe.model.bind(params)
    valid = jnp.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    where = Placement().tokens(batch.tokens.shape[1], valid=valid)
    graph, _ = nnx.split(model.layers["kind_0"])
    shared = as_arrays(model.shared["kind_0"])
    start = x = model.embed_tokens(batch.tokens, where)
    for loop, layer in enumerate(copies):
        if loop == before > 0:
            x = jax.lax.stop_gradient(x)
        if loop and recipe.model.input_injection == "loop":
            x = x + start
        block = nnx.merge(graph, jax.tree.map(lambda a: a[0], layer))
        x = block(x, where, shared=shared)
    told = token_losses(model.read_out(x), batch.targets, batch.target_mask)
    sums = batch_sums(told, batch)
    return sums.loss / sums.outputs


@cache
def step_of(recipe):
    """The recipe's training step, compiled once."""
    return jax.jit(partial(train_step, recipe))


def gradient_and_metrics(recipe, state):
    """What a step of gradient descent follows, and what it reports."""
    after, metrics = step_of(recipe)(state)
    change = jax.tree.map(lambda a, b: np.asarray(a - b), state.params, after.params)
    return change, metrics


def batch_of(recipe, state):
    """The batch of the state's next step."""
    return draw_batch(recipe, state, step_lengths(recipe, state), 6)[0]


def state_that_draws(recipe, drawn):
    """The first step at which seed 0 draws that (before, count)."""
    state = init_state(recipe, 0)
    for step in range(100):
        span = recipe.progressive.draw(step_rng(state.length_rng, step), LOOPS)
        if (int(span.before), int(span.count)) == drawn:
            return state._replace(step=jnp.int32(step))
    raise AssertionError(drawn)


def assert_close(one, two):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6), one, two)


DRAWN = ProgressiveLoss(weight=1.0)
MIXED = ProgressiveLoss(weight=0.25)


@pytest.mark.parametrize(
    ("injection", "drawn"), [("none", (0, 2)), ("none", (1, 1)), ("loop", (1, 1))]
)
def test_gradients_are_those_of_the_last_loops_alone(injection, drawn):
    """Against loops written out, each with a copy of the parameters to learn by."""
    recipe = recipe_with(DRAWN, injection=injection)
    state = state_that_draws(recipe, drawn)
    before, count = drawn
    loss = partial(unrolled_loss, recipe, batch=batch_of(recipe, state), before=before)
    copies = [state.params["layers"]["kind_0"]] * (before + count)
    of_copies, of_all = jax.jit(jax.grad(loss, argnums=(0, 1)))(copies, state.params)
    for copy in of_copies[:before]:
        assert all(not leaf.any() for leaf in jax.tree.leaves(copy))
    found, _ = gradient_and_metrics(recipe, state)
    total = jax.tree.map(lambda *parts: sum(parts), *of_copies[before:])
    assert_close(found["layers"]["kind_0"], total)
    assert_close(found["embedding"], np.asarray(of_all["embedding"]))
    # Without injection, the input reaches the loss through the first loops alone.
    assert np.any(found["embedding"]) == (injection == "loop" or before == 0)


def test_weight_zero_is_the_plain_loss_and_weights_mix_the_two():
    state = state_that_draws(recipe_with(MIXED), (0, 2))
    plain, metrics = gradient_and_metrics(recipe_with(None), state)
    program = lambda loss: step_of(recipe_with(loss)).lower(state).as_text()
    assert program(ProgressiveLoss()) == program(None)
    drawn, _ = gradient_and_metrics(recipe_with(DRAWN), state)
    mixed, reported = gradient_and_metrics(recipe_with(MIXED), state)
    expected = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, plain, drawn)
    assert_close(mixed, expected)
    assert np.abs(drawn["embedding"] - plain["embedding"]).max() > 1e-3
    # What is reported is the answer after all loops, as without it.
    np.testing.assert_allclose(reported.loss, metrics.loss, rtol=1e-6)


def test_parts_of_a_batch_share_the_draw():
    """Accumulation alters memory, not numbers."""
    state = state_that_draws(recipe_with(MIXED), (0, 2))
    whole, _ = gradient_and_metrics(recipe_with(MIXED), state)
    parts, _ = gradient_and_metrics(recipe_with(MIXED, accumulate=2), state)
    assert_close(whole, parts)


def test_a_mesh_of_devices_changes_nothing():
    """What is drawn is the same on all devices, so all of them run the same loops."""
    mesh = make_mesh({"data": 2, "fsdp": 2}, devices=jax.devices()[:4])
    state = state_that_draws(recipe_with(DRAWN), (0, 2))
    alone, _ = gradient_and_metrics(recipe_with(DRAWN), state)
    spread = dataclasses.replace(recipe_with(DRAWN), sharding=Sharding(mesh))
    placed = jax.device_put(state, spread.sharding.state(spread.model, state))
    after, _ = step_of(spread)(placed)
    assert_close(
        jax.tree.map(lambda a, b: np.asarray(a) - b, state.params, after.params), alone
    )


@pytest.mark.fast
def test_the_draw_is_uniform_and_a_function_of_seed_and_step():
    loss = ProgressiveLoss(weight=1.0, gradient_loops=2)

    @jax.jit
    def draws(rng, steps):
        spans = jax.vmap(
            lambda step: dataclasses.astuple(loss.draw(step_rng(rng, step), 4))[:2]
        )
        return spans(steps)

    rngs = [init_state(recipe_with(None), seed).length_rng for seed in (5, 6)]
    steps = jnp.arange(8000)
    before, count = map(np.asarray, draws(rngs[0], steps))
    # The same for the same seed, step by step.
    np.testing.assert_array_equal(draws(rngs[0], steps[7:8])[0], before[7:8])
    assert (np.asarray(draws(rngs[1], steps)[0]) != before).mean() > 0.5
    pairs = collections.Counter(zip(before.tolist(), count.tolist(), strict=True))
    # n is one of four, and k at most min(4 - n, 2).
    expected = {(n, k): 1 / 8 for n in range(3) for k in (1, 2)} | {(3, 1): 1 / 4}
    assert pairs.keys() == expected.keys()
    for pair, chance in expected.items():
        assert abs(pairs[pair] / 8000 - chance) < 0.02


def test_fewer_gradient_loops_cut_the_plain_loss_short():
    """Without a draw: all loops are run, and the last ones alone learn."""
    recipe = recipe_with(ProgressiveLoss(gradient_loops=1))
    state = init_state(recipe, 0)
    layer, batch = state.params["layers"]["kind_0"], batch_of(recipe, state)
    copies = lambda last: [layer] * (LOOPS - 1) + [last]
    loss = lambda last: unrolled_loss(
        recipe, copies(last), state.params, batch, LOOPS - 1
    )
    found, _ = gradient_and_metrics(recipe, state)
    assert_close(found["layers"]["kind_0"], jax.jit(jax.grad(loss))(layer))
    assert not found["embedding"].any()


def test_loops_that_are_run_first_see_the_dropout_of_the_whole_pass():
    spec = recipe_with(None, dropout=0.5).model
    params, rng = spec.init(jax.random.key(0)), jax.random.key(1)
    tokens = jnp.arange(6)[None] % 3

    @jax.jit
    def forward(before, count):
        span = LoopSpan(before, count, LOOPS)
        return spec.bind(params)(tokens, Placement(), rng=rng, span=span)

    whole = jax.jit(lambda: spec.bind(params)(tokens, Placement(), rng=rng))()
    for before in range(LOOPS):
        found = forward(jnp.int32(before), jnp.int32(LOOPS - before))
        np.testing.assert_allclose(found, whole, atol=1e-5)
    assert np.abs(forward(0, 2) - whole).max() > 1e-3


def test_members_of_a_population_share_the_draw_and_equal_their_run_alone():
    population = Population(recipe_with(DRAWN), OptimizerFamily(steps=9))
    numbers = Numbers(1e-2)
    recipe = population.recipe_of(numbers)
    step = state_that_draws(recipe, (0, 2)).step
    states = [init_state(recipe, seed, 0)._replace(step=step) for seed in (0, 1)]
    together = jax.jit(partial(population_step, population))(
        stack(states), strong([numbers] * 2)
    )[0]
    expected = step_of(recipe)(states[1])[0].params
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[1], b, atol=1e-5),
        together.params,
        expected,
    )


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProgressiveLoss(weight=1.5), "weight must lie in 0 .. 1, got 1.5"),
        (lambda: ProgressiveLoss(gradient_loops=0), "must be at least 1, got 0"),
        (
            lambda: recipe_with(ProgressiveLoss(weight=0.5), loops=1),
            "this one applies its layers once",
        ),
        (
            lambda: recipe_with(ProgressiveLoss(gradient_loops=4)),
            "gradient_loops=4 must be at most loops=3",
        ),
    ],
)
def test_what_means_nothing_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
