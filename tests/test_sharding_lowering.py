"""A model of 135 million parameters, compiled for eight devices and never run."""

import dataclasses
import functools

import jax
import pytest

from experiments.plan.costs import make_plan
from ropejax import masks
from ropejax.encodings import ENCODINGS, Dims
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Consecutive
from ropejax.sharding import Sharding, make_mesh
from ropejax.training import Fixed, Recipe
from tests.collectives import float_shapes, gradient_program, sent_bytes
from tests.training.tiny import tiny_recipe

LENGTH, ROWS, VOCABULARY = 4096, 8, 32_768
DIMS = Dims(12, 12, 64, 768, num_layers=12, causal=True)


def decoder():
    settings = BlockSettings(mlp_dim=3072, pre_norm=True, dropout=0.0, remat="full")
    kind = LayerKind(ENCODINGS["rope"](), masks.Causal())
    return TransformerSpec(VOCABULARY, VOCABULARY, DIMS, settings, (kind,))


def recipe_on(sizes) -> Recipe:
    task_length = LENGTH // 2  # an answer as long as the question
    return dataclasses.replace(
        tiny_recipe(),
        model=decoder(),
        batch_size=ROWS,
        buckets=(task_length,),
        curriculum=Fixed(task_length),
        positions=Consecutive(),
        sharding=Sharding(make_mesh(dict(sizes))),
    )


def collectives(sizes) -> dict[str, set[tuple[int, ...]]]:
    """Returns the shapes that each kind of collective in a gradient step gives."""
    return float_shapes(compiled_text(tuple(sizes.items())))


@functools.cache
def compiled_text(sizes) -> str:
    """The program of a gradient step on a mesh, as its compiler leaves it."""
    recipe = recipe_on(sizes)
    params = jax.eval_shape(recipe.model.init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(params)) > 100e6
    return gradient_program(recipe, LENGTH)


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


def test_the_plan_tells_what_is_sent_over_each_axis():
    """To a part in a hundred: small vectors and statistics of the softmax are left."""
    sizes = {"data": 4, "tensor": 2}
    sent = sent_bytes(compiled_text(tuple(sizes.items())))
    told = make_plan(recipe_on(sizes)).shapes[0].sent_bytes
    assert sent["all-reduce", 4] == pytest.approx(told["data"], rel=0.01)
    # Gradients of queries, keys and values are added up apart by the compiler for CPUs.
    apart = 2 * DIMS.num_layers * (ROWS // 4 * LENGTH * DIMS.embed_dim * 4)
    assert sent["all-reduce", 2] == pytest.approx(told["tensor"] + apart, rel=0.01)

    sizes = {"data": 2, "sequence": 4}
    sent = sent_bytes(compiled_text(tuple(sizes.items())))
    told = make_plan(recipe_on(sizes)).shapes[0].sent_bytes
    assert sent["all-reduce", 2] == pytest.approx(told["data"], rel=0.01)
    around = sent["all-reduce", 4] + sent["collective-permute", 1]
    assert around == pytest.approx(told["sequence"], rel=0.01)

    sent = sent_bytes(compiled_text((("fsdp", 8),)))
    told = make_plan(recipe_on({"fsdp": 8})).shapes[0].sent_bytes
    # The compiler for CPUs adds gradients up for all, and cuts off a device's part.
    scattered = sent["all-reduce", 8] / 2
    assert sent["all-gather", 8] + scattered == pytest.approx(told["fsdp"], rel=0.01)


@pytest.mark.parametrize(
    "sizes", [{"fsdp": 8}, {"fsdp": 2, "sequence": 2, "tensor": 2}], ids=str
)
@pytest.mark.slow
def test_fsdp_gathers_parameters_and_never_activations(sizes):
    found = collectives(sizes)
    assert DIMS.embed_dim in {n for shape in found["all-gather"] for n in shape}
    for shape in found["all-gather"]:
        assert not {LENGTH, LENGTH // sizes.get("sequence", 1)} & set(shape), shape
