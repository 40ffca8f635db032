"""Zigzag order gives devices equal work, and changes no number of a causal training."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.nn import LayerKind
from ropejax.positions import Randomized
from ropejax.sharding import Sharding, abstract_mesh, make_mesh
from ropejax.training import Fixed, init_state, train
from ropejax.training.step import draw_batch
from tests.training.tiny import tiny_recipe

STEPS = 20
SIZES = {"data": 2, "sequence": 4}


def causal_recipe(**changes):
    """Dropout, random positions and rows of several lengths: all that order may spoil.

    Eleven tokens a row, which two pieces a device pad to sixteen.
    """
    settings = {
        "task": "binary_addition",
        "encoding": "alibi",
        "batch_size": 4,
        "buckets": (8,),
        "curriculum": Fixed(8),
        "length_per_row": True,
        "positions": Randomized(max_position=64, per_layer=True),
    }
    recipe = tiny_recipe(**(settings | changes))
    dims = recipe.model.dims._replace(causal=True)
    kinds = tuple(
        LayerKind(kind.encoding, masks.Causal()) for kind in recipe.model.pattern
    )
    model = dataclasses.replace(recipe.model, dims=dims, pattern=kinds)
    return dataclasses.replace(recipe, model=model)


def trained(recipe):
    seen = []
    state = train(
        recipe,
        steps=STEPS,
        steps_per_dispatch=STEPS,
        on_dispatch=lambda progress: seen.append(progress.metrics),
    )
    return state, seen[0]


def on_mesh(recipe, order, mesh=None):
    mesh = make_mesh(SIZES) if mesh is None else mesh
    return dataclasses.replace(recipe, sharding=Sharding(mesh, sequence_order=order))


def test_twenty_steps_have_the_same_losses_as_on_one_device():
    recipe = causal_recipe()
    wanted, metrics = trained(recipe)
    state, found = trained(on_mesh(recipe, "zigzag"))
    assert metrics.loss[-1] < metrics.loss[0]
    np.testing.assert_allclose(found.loss, metrics.loss, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.grad_norm, metrics.grad_norm, rtol=1e-4)
    np.testing.assert_array_equal(found.accuracy, metrics.accuracy)
    close = partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
    jax.tree.map(close, state.params, wanted.params)


def test_devices_hold_an_early_and_a_late_piece_and_see_as_many_keys():
    recipe = on_mesh(causal_recipe(), "zigzag")
    lengths = jnp.array([8, 8, 5, 2])

    @jax.jit
    def drawn(state):
        batch, placement, _ = draw_batch(recipe, state, lengths, 8)
        moved, where = recipe.sharding.ordered(batch, placement)
        return batch, moved, where.tokens(batch.tokens.shape[1])

    batch, moved, where = drawn(init_state(recipe, 0))
    index = np.asarray(where.index[0])
    length = len(index)
    for before, after in zip(batch, moved, strict=True):
        same = before if before.ndim == 1 else np.asarray(before)[:, index]
        np.testing.assert_array_equal(after, same)
    pieces = index.reshape(4, 2, length // 8)
    np.testing.assert_array_equal(pieces[:, 0, 0] + pieces[:, 1, -1], length - 1)
    seen = (index + 1).reshape(4, -1).sum(axis=1)  # keys of the queries of a device
    assert len(set(seen)) == 1
    parts = {shard.data.shape for shard in moved.tokens.addressable_shards}
    assert parts == {(2, length // 4)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sequence_order": "zig-zag"}, "Did you mean 'zigzag'"),
        ({"sequence_order": "zigzag", "sequence_form": "ulysses"}, "of a ring; under"),
        ({"sequence_order": "zigzag", "sizes": {"data": 8}}, "'sequence' has one"),
    ],
)
def test_an_order_that_balances_nothing_is_refused(settings, message):
    mesh = abstract_mesh(settings.pop("sizes", SIZES), 8)
    with pytest.raises(ValueError, match=message):
        Sharding(mesh, **settings)


def test_a_model_that_looks_ahead_is_refused():
    with pytest.raises(ValueError, match=r"a causal mask, which this model does not"):
        on_mesh(tiny_recipe(), "zigzag", abstract_mesh(SIZES, 8))


def test_sequences_are_padded_to_two_pieces_a_device():
    sharding = Sharding(abstract_mesh(SIZES, 8), sequence_order="zigzag")
    assert [sharding.padded_length(n) for n in (1, 8, 9)] == [8, 8, 16]
