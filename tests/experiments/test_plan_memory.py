"""A plan's memory against the memory of compiled programs.

The compilers for CPUs are the ones at hand. They turn products of bfloat16 numbers into
such of float32, and keep copies of both; float16 they leave alone, so that it stands in
for the other type of two bytes.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from experiments.plan.costs import make_plan
from ropejax import masks
from ropejax.nn import LayerKind
from ropejax.sharding import Sharding, make_mesh
from ropejax.tasks import Autoregressive
from ropejax.training.progressive import ProgressiveLoss
from ropejax.training.step import draw_batch, init_state, update
from tests.experiments.small_recipe import recipe

SPREAD = {"data": 2, "sequence": 4}


def decoder(**sizes):
    """A causal model of the small recipe's sizes, which reads its answers back."""
    made = recipe(**sizes)
    task = Autoregressive(made.task)
    model = dataclasses.replace(
        made.model,
        num_symbols=task.num_symbols,
        num_outputs=task.output_vocab,
        dims=made.model.dims._replace(causal=True),
        pattern=(LayerKind(made.model.pattern[0].encoding, masks.Causal()),),
    )
    return dataclasses.replace(made, model=model, task=task)


def deep(make=recipe, *, rows=16, length=8, accumulate=1, loops=1, loss=None, **layer):
    """Four layers, or two in loops, whose parameters are as large as activations."""
    made = make(width=64, layers=4 if loops == 1 else 2, rows=rows, length=length)
    settings = dataclasses.replace(made.model.settings, **layer)
    model = dataclasses.replace(made.model, settings=settings, loops=loops)
    return dataclasses.replace(
        made, model=model, accumulate=accumulate, progressive=loss
    )


def on(sizes, made, form="ring"):
    """The recipe on a mesh of real devices, as compiling needs it."""
    sharding = Sharding(make_mesh(sizes), sequence_form=form)
    return dataclasses.replace(made, sharding=sharding)


def memory_of(made):
    """What the compiled step needs: of arguments, and beside them."""
    bucket = made.buckets[-1]

    def step(state):
        lengths = jnp.full((made.batch_size,), bucket, jnp.int32)
        return update(made, state, *draw_batch(made, state, lengths, bucket))

    state = jax.eval_shape(lambda: init_state(made, 0))
    if made.sharding is not None:
        where = made.sharding.state(made.model, state)
        placed = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
        state = jax.tree.map(placed, state, where)
    program = jax.jit(step, donate_argnums=0).lower(state).compile()
    found = program.memory_analysis()
    return found.argument_size_in_bytes, found.temp_size_in_bytes


HALF = jnp.dtype("float16")
CASES = {
    "parameters": lambda: recipe(width=128, layers=2, rows=2, length=2),
    "encoder": partial(recipe, "rope"),
    "tensor": lambda: on({"data": 2, "tensor": 4}, recipe()),
    "remat": lambda: deep(rows=64, remat="full"),
    "progressive": lambda: deep(loops=2, loss=ProgressiveLoss(0.5)),
    "fsdp-accumulate": lambda: on({"fsdp": 8}, deep(rows=32, accumulate=4)),
    "mix": lambda: on(
        SPREAD, deep(decoder, rows=64, accumulate=4, remat="full", dtype=HALF)
    ),
}
SLOW = {
    "decoder": decoder,
    "ring": lambda: on(SPREAD, decoder()),
    "t5": partial(recipe, "t5"),
    "decoder-tensor": lambda: on({"data": 4, "tensor": 2}, decoder()),
    "all_gather": lambda: on(SPREAD, decoder(), "all_gather"),
    "ulysses": lambda: on(SPREAD, decoder(), "ulysses"),
    "parameters-accumulate": lambda: deep(rows=8, length=2, accumulate=4),
    "fsdp": lambda: on({"fsdp": 8}, deep()),
    "fsdp-tensor": lambda: on({"fsdp": 4, "tensor": 2}, deep()),
    "remat-fsdp": lambda: on({"fsdp": 8}, deep(rows=32, remat="full")),
    "dots": lambda: deep(rows=64, remat="dots"),
    "accumulate": lambda: deep(rows=32, accumulate=8),
    "half": lambda: deep(rows=64, dtype=HALF),
    "half-remat": lambda: deep(rows=64, dtype=HALF, remat="full"),
    "loops": lambda: deep(loops=3),
    "loops-remat": lambda: deep(rows=64, loops=3, remat="full"),
    "last-loop": lambda: deep(loops=3, loss=ProgressiveLoss(0.0, 1)),
}


@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(make, id=name) for name, make in CASES.items()),
        *(
            pytest.param(make, id=name, marks=pytest.mark.slow)
            for name, make in SLOW.items()
        ),
    ],
)
def test_memory_is_that_of_the_compiled_step(make):
    made = make()
    found = make_plan(made)
    held, beside = memory_of(made)
    state = found.parameter_bytes + found.optimizer_bytes
    assert state == pytest.approx(held, rel=0.02)
    assert 0.8 < found.peak_bytes / (held + beside) < 1.25
    assert 0.7 < (found.peak_bytes - state) / beside < 1.3


def test_bfloat16_is_as_large_as_float16():
    """The two types that compilers for CPUs treat so differently."""
    sizes = [
        make_plan(deep(dtype=jnp.dtype(dtype), remat="full")).peak_bytes
        for dtype in ("bfloat16", "float16")
    ]
    assert sizes[0] == sizes[1]
