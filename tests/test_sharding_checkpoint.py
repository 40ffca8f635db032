"""A checkpoint made on one mesh goes on on another, or on one device."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from ropejax.sharding import Sharding, make_mesh
from ropejax.training import Fixed, init_state, train
from ropejax.training.checkpoint import Checkpoints
from tests.training.tiny import tiny_recipe

SAVED, END = 2, 4


def recipe_of(sizes=None, **changes):
    settings = {"batch_size": 8, "buckets": (6,), "curriculum": Fixed(5)}
    recipe = tiny_recipe(**(settings | changes))
    if sizes is None:
        return recipe
    return dataclasses.replace(recipe, sharding=Sharding(make_mesh(sizes)))


def numbers(state):
    is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    raw = lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x)
    return jax.tree.map(raw, state)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two steps on eight devices, with everything of a parameter in eight parts."""
    folder = tmp_path_factory.mktemp("checkpoints")
    saver = Checkpoints(folder)
    state = train(
        recipe_of({"fsdp": 8}), steps=SAVED, steps_per_dispatch=SAVED, saver=saver
    )
    state = numbers(state)
    saver.close()
    return folder, state


@pytest.mark.parametrize(
    "sizes", [None, {"data": 8}, {"fsdp": 4, "tensor": 2}], ids=str
)
def test_state_is_the_same_and_where_the_other_mesh_wants_it(saved, sizes):
    folder, wanted = saved
    recipe = recipe_of(sizes)
    saver = Checkpoints(folder, read_only=True)
    state = saver.latest(like=init_state(recipe, 0))
    saver.close()
    jax.tree.map(np.testing.assert_array_equal, numbers(state), wanted)
    placed = init_state(recipe, 0)
    for leaf, other in zip(
        jax.tree.leaves(state), jax.tree.leaves(placed), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(other.sharding, leaf.ndim)


def test_training_goes_on_as_if_the_mesh_had_never_changed(saved):
    folder, _ = saved
    recipe, settings = recipe_of(), {"steps": END, "steps_per_dispatch": SAVED}
    saver = Checkpoints(folder)
    resumed = train(recipe, saver=saver, **settings)
    saver.close()
    straight = train(recipe, **settings)
    close = partial(np.testing.assert_allclose, rtol=0, atol=3e-6)
    jax.tree.map(close, numbers(resumed.params), numbers(straight.params))
    assert int(resumed.step) == END


def test_another_model_is_refused_by_name(saved):
    folder, _ = saved
    recipe = recipe_of({"data": 8})
    dims = recipe.model.dims._replace(num_layers=4)
    model = dataclasses.replace(recipe.model, dims=dims)
    other = dataclasses.replace(recipe, model=model)
    saver = Checkpoints(folder, read_only=True)
    with pytest.raises(
        ValueError, match=r"key/kernel: float32\[2, 8, 2, 4\] there, float32\[4"
    ):
        saver.latest(like=init_state(other, 0))
    saver.close()
