"""A model of 135 million parameters, compiled for eight devices and never run."""

import collections
import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest

from ropejax import masks
from ropejax.encodings import ENCODINGS, Dims
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions.base import Placement
from ropejax.sharding import Sharding, make_mesh
from ropejax.tasks.base import Batch
from ropejax.training.gradients import gradients
from tests.training.tiny import tiny_recipe

LENGTH, ROWS, VOCABULARY = 4096, 8, 32_768
DIMS = Dims(12, 12, 64, 768, num_layers=12, causal=True)


def decoder():
    settings = BlockSettings(mlp_dim=3072, pre_norm=True, dropout=0.0, remat="full")
    kind = LayerKind(ENCODINGS["rope"](), masks.Causal())
    return TransformerSpec(VOCABULARY, VOCABULARY, DIMS, settings, (kind,))


def collectives(sizes) -> dict[str, set[tuple[int, ...]]]:
    """Returns the shapes that each kind of collective in a gradient step gives."""
    spec, sharding = decoder(), Sharding(make_mesh(sizes))
    recipe = dataclasses.replace(
        tiny_recipe(), model=spec, batch_size=ROWS, sharding=sharding
    )
    params = jax.eval_shape(spec.init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(params)) > 100e6
    where = sharding.parameters(spec, params)
    as_placed = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    params = jax.tree.map(as_placed, params, where)

    def step(params, symbols):
        seen = symbols >= 0
        lengths = jnp.full((ROWS,), LENGTH)
        batch = sharding.batch(Batch(symbols, symbols, seen, seen, lengths))
        return gradients(recipe, params, batch, Placement(), jax.random.key(0))[0]

    symbols = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)
    program = jax.jit(step, out_shardings=where).lower(params, symbols).compile()
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    found = collections.defaultdict(set)
    for results, kind in re.findall(
        rf"= (\(?[^=]*?\)?) ({kinds})(?:-start)?\(", program.as_text()
    ):
        for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", results):
            if dtype.startswith(("f", "bf")):
                found[kind].add(tuple(int(n) for n in shape.split(",") if n))
    return dict(found)


def test_data_and_tensor_parallel_only_add_up():
    """Hidden states once after each part of a layer, and gradients over the rows."""
    found = collectives({"data": 4, "tensor": 2})
    assert set(found) == {"all-reduce"}
    assert (ROWS // 4, LENGTH, DIMS.embed_dim) in found["all-reduce"]


def test_data_and_sequence_parallel_pass_keys_around_and_add_up():
    found = collectives({"data": 2, "sequence": 4})
    assert set(found) == {"all-reduce", "collective-permute"}
    part = (ROWS // 2, LENGTH // 4, DIMS.num_heads, DIMS.head_dim)
    assert found["collective-permute"] == {part}
    hidden = [s for s in found["all-reduce"] if LENGTH in s or LENGTH // 4 in s]
    assert not hidden  # gradients of parameters only


@pytest.mark.parametrize(
    "sizes", [{"fsdp": 8}, {"fsdp": 2, "sequence": 2, "tensor": 2}], ids=str
)
@pytest.mark.slow
def test_fsdp_gathers_parameters_and_never_activations(sizes):
    found = collectives(sizes)
    assert DIMS.embed_dim in {n for shape in found["all-gather"] for n in shape}
    for shape in found["all-gather"]:
        assert not {LENGTH, LENGTH // sizes.get("sequence", 1)} & set(shape), shape
