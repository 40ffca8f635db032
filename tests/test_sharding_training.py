"""Training gives the same numbers on any mesh, in parts, and computed again."""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from ropejax.positions import Randomized
from ropejax.sharding import Sharding, make_mesh
from ropejax.training import Fixed, init_state, train
from ropejax.training.gradients import gradients
from ropejax.training.step import draw_batch
from tests.training.tiny import tiny_recipe

STEPS, MANY = 3, 20


def recipe_of(**changes):
    """Dropout and random positions on, and an encoding with parameters of heads."""
    settings = {
        "encoding": "alibi",
        "batch_size": 8,
        "buckets": (6,),
        "curriculum": Fixed(5),
        "positions": Randomized(max_position=32, per_sequence=True),
    }
    return tiny_recipe(**(settings | changes))


def on_mesh(sizes, recipe=None, **settings):
    devices = jax.devices()[: math.prod(sizes.values())]
    sharding = Sharding(make_mesh(sizes, devices=devices), **settings)
    recipe = recipe_of() if recipe is None else recipe
    return dataclasses.replace(recipe, sharding=sharding)


def trained(recipe, steps=STEPS):
    """The state and the metrics after a few steps; one program for any number."""
    seen = []
    state = train(
        recipe,
        steps=steps,
        steps_per_dispatch=MANY,
        on_dispatch=lambda progress: seen.append(progress.metrics),
    )
    return state, seen[0]


@pytest.fixture(scope="module")
def alone():
    return recipe_of()


@pytest.fixture(scope="module")
def on_one_device(alone):
    return trained(alone)


@pytest.fixture(scope="module")
def many_losses(alone):
    return trained(alone, MANY)[1].loss


def assert_same_training(got, wanted):
    (state, metrics), (wanted_state, wanted_metrics) = got, wanted
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=2e-5), metrics, wanted_metrics
    )
    for a, b in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(wanted_state.params), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    "sizes",
    [
        {"data": 8},
        {"data": 4, "tensor": 2},
        {"fsdp": 8},
        {"data": 2, "sequence": 4},
        {"data": 2},
        {"fsdp": 2, "tensor": 2},
    ],
    ids=str,
)
def test_training_on_a_mesh_equals_one_device(sizes, on_one_device, many_losses):
    """On 2, 4 and 8 devices: state and metrics at first, losses for 20 steps."""
    recipe = on_mesh(sizes)
    state, metrics = trained(recipe)
    assert_same_training((state, metrics), on_one_device)
    wanted = recipe.sharding.state(recipe.model, state)
    for leaf, where in zip(
        jax.tree.leaves(state), jax.tree.leaves(wanted), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(where, leaf.ndim)
    losses = trained(recipe, MANY)[1].loss
    assert losses.shape == (MANY,)
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, many_losses, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "form"),
    [
        ({"replica": 2, "data": 2, "fsdp": 2}, "ring"),
        ({"fsdp": 4, "tensor": 2}, "ring"),
        ({"fsdp": 2, "sequence": 2, "tensor": 2}, "ring"),
        ({"data": 4, "sequence": 2}, "ulysses"),
        ({"data": 2, "sequence": 2, "tensor": 2}, "all_gather"),
    ],
    ids=str,
)
def test_combinations_of_axes_equal_one_device(sizes, form, on_one_device):
    assert_same_training(trained(on_mesh(sizes, sequence_form=form)), on_one_device)


def test_moments_of_the_optimizer_are_where_their_parameters_are():
    recipe = on_mesh({"fsdp": 4, "tensor": 2})
    state = init_state(recipe, 0)
    flat = jax.tree_util.tree_leaves_with_path(state)
    cut = {jax.tree_util.keystr(path): leaf.sharding.spec for path, leaf in flat}
    query = [name for name in cut if "query" in name]
    assert len(query) == 3  # the kernel, and both moments of Adam
    assert {cut[name] for name in query} == {P(None, "fsdp", "tensor")}
    shard = state.params["layers"]["kind_0"]["mlp_in"]["kernel"].addressable_shards[0]
    assert shard.data.shape == (2, 8 // 4, 16 // 2)


def test_batches_are_the_same_on_a_mesh_and_every_row_differs():
    """Fault B20: identical draws on each shard."""

    def drawn(recipe):
        recipe = dataclasses.replace(recipe, batch_size=16)
        lengths = jnp.full((16,), 30)
        state = init_state(recipe, 0)
        draw = jax.jit(lambda state: draw_batch(recipe, state, lengths, 30)[:2])
        return draw(state)

    positions = Randomized(max_position=128, per_sequence=True)
    recipe = recipe_of(
        task="binary_addition",
        buckets=(30,),
        positions=positions,
        length_per_row=True,
    )
    batch, placement = drawn(recipe)
    parts, placed = drawn(on_mesh({"data": 8}, recipe))
    jax.tree.map(np.testing.assert_array_equal, batch, parts)
    np.testing.assert_array_equal(placement.positions, placed.positions)
    assert parts.tokens.sharding.spec == P("data")
    for rows in (np.asarray(parts.tokens), np.asarray(placed.positions)):
        assert len({tuple(row) for row in rows}) == 16


def accumulated(parts, recipe):
    recipe = dataclasses.replace(recipe, accumulate=parts)
    state = init_state(recipe, 0)
    lengths = jnp.array([1, 6, 3, 2, 6, 6, 1, 4])

    @jax.jit
    def run(state):
        drawn = draw_batch(recipe, state, lengths, 6)
        return gradients(recipe, state.params, *drawn)

    return run(state)


@pytest.mark.parametrize(
    "sizes", [None, pytest.param({"data": 2, "tensor": 2}, marks=pytest.mark.slow)]
)
def test_a_batch_in_parts_gives_the_gradient_and_counts_of_the_whole(sizes):
    """Rows of different lengths: a mean of the parts' means would be another number.

    Dropout is on, and does not change either.
    """
    recipe = recipe_of(length_per_row=True)
    wanted = accumulated(1, recipe)
    got = accumulated(4, recipe if sizes is None else on_mesh(sizes, recipe))
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)
    jax.tree.map(close, got, wanted)


@pytest.mark.parametrize(
    "remat", ["full", pytest.param("dots", marks=pytest.mark.slow)]
)
def test_computing_again_changes_memory_and_no_numbers(remat):
    def run(remat, batch_size=8):
        recipe = recipe_of(batch_size=batch_size)
        settings = dataclasses.replace(recipe.model.settings, remat=remat)
        model = dataclasses.replace(recipe.model, settings=settings)
        recipe = dataclasses.replace(recipe, model=model)
        state = init_state(recipe, 0)
        drawn = draw_batch(recipe, state, jnp.full((batch_size,), 6), 6)
        program = jax.jit(partial(gradients, recipe))
        program = program.lower(state.params, *drawn).compile()
        memory = program.memory_analysis().temp_size_in_bytes
        return program(state.params, *drawn), memory

    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    (got, less), (wanted, memory) = run(remat), run("none")
    jax.tree.map(close, got, wanted)
    assert less < memory


def test_what_does_not_divide_is_refused_when_the_recipe_is_made():
    with pytest.raises(ValueError, match="accumulate=3 must divide batch_size=8"):
        recipe_of(accumulate=3)
    with pytest.raises(ValueError, match="accumulate=2 = 4 does not divide over 8"):
        on_mesh({"data": 8}, recipe_of(accumulate=2))
    with pytest.raises(ValueError, match="num_heads=2 does not divide over 4"):
        on_mesh({"data": 2, "tensor": 4})
