"""Gated attention units on a mesh: what is cut, and that training is the same."""

import dataclasses
import math
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from ropejax.attention import SquaredReLU
from ropejax.sharding import Rules, Sharding, make_mesh
from ropejax.training import Fixed, train
from tests.training.tiny import tiny_recipe

SIZES = {"data": 2, "fsdp": 2, "tensor": 2}


def recipe_of(heads):
    recipe = tiny_recipe(
        encoding="alibi", batch_size=8, buckets=(6,), curriculum=Fixed(5)
    )
    model = recipe.model
    settings = dataclasses.replace(
        model.settings, gated=True, activation=jax.nn.silu, normalizer=SquaredReLU()
    )
    dims = model.dims._replace(num_heads=heads, num_kv_heads=heads)
    model = dataclasses.replace(model, dims=dims, settings=settings)
    return dataclasses.replace(recipe, model=model)


def on_mesh(recipe, sizes=SIZES, **settings):
    mesh = make_mesh(sizes, devices=jax.devices()[: math.prod(sizes.values())])
    return dataclasses.replace(recipe, sharding=Sharding(mesh, **settings))


def trained(recipe):
    """Parameters and metrics after two steps."""
    seen = []
    keep = lambda progress: seen.append(progress.metrics)
    state = train(recipe, steps=2, steps_per_dispatch=2, on_dispatch=keep)
    return state.params, seen[0]


def assert_same_training(spread, alone):
    same = partial(np.testing.assert_allclose, rtol=2e-5, atol=3e-6)
    jax.tree.map(same, trained(spread), trained(alone))


WHOLE_HEADS = Rules.of({"heads": (), "kv_heads": ()})


@pytest.mark.parametrize(
    ("heads", "rules", "gate", "out"),
    [
        (2, Rules(), P(None, "fsdp", "tensor"), P(None, "tensor", None, "fsdp")),
        pytest.param(
            1,
            WHOLE_HEADS,
            P(None, "fsdp", None, "tensor"),
            P(None, None, "tensor", "fsdp"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["heads", "width of one head"],
)
def test_training_on_a_mesh_equals_one_device(heads, rules, gate, out):
    alone = recipe_of(heads)
    spread = on_mesh(alone, rules=rules)
    params = jax.eval_shape(alone.model.init, jax.random.key(0))
    placed = spread.sharding.parameters(alone.model, params)
    own = placed["layers"]["kind_0"]["attention"]
    assert own["gate"]["kernel"].spec == own["value"]["kernel"].spec == gate
    assert own["out"]["kernel"].spec == out
    assert ("tensor" in own["query_scale"].spec) == (heads == 2)

    assert_same_training(spread, alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "heads"), [("ring", 1), ("all_gather", 1), ("ulysses", 2)]
)
def test_training_on_parts_of_sequences_equals_one_device(form, heads):
    """Values are wider than the keys that go around with them."""
    alone = recipe_of(heads)
    sizes = {"data": 2, "sequence": 2}
    assert_same_training(on_mesh(alone, sizes, sequence_form=form), alone)


@pytest.mark.fast
def test_one_head_is_not_cut_unless_rules_leave_heads_whole():
    with pytest.raises(ValueError, match="num_heads=1"):
        on_mesh(recipe_of(1))
