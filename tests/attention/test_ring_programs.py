"""What devices send each other, and the memory that they need."""

import re

import jax
import pytest
from jax.sharding import PartitionSpec as P

from ropejax.attention import (
    SequenceParallel,
)
from ropejax.encodings import (
    ALiBi,
    Encoding,
)
from tests.attention import cases
from tests.attention.on_mesh import (
    LENGTH,
    mesh_of,
)


def collectives(text: str) -> set[str]:
    names = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    return set(re.findall(rf"= [^=]* ({names})(?:-start)?\(", text))


@pytest.mark.parametrize(
    ("form", "forward", "backward"),
    [
        ("ring", {"collective-permute"}, {"collective-permute", "all-reduce"}),
        ("all_gather", {"all-gather"}, {"all-gather", "reduce-scatter", "all-reduce"}),
        ("ulysses", {"all-to-all", "all-gather"}, None),
    ],
)
def test_compiled_program_communicates_as_its_name_says(form, forward, backward):
    """All-gather in ulysses is of indices and positions: integers, never of values."""
    mesh = mesh_of(sequence=2)
    encoding = ALiBi(learned=True)
    case = cases.case(encoding, LENGTH)
    spread = jax.NamedSharding(mesh, P(None, "sequence"))
    replicated = jax.NamedSharding(mesh, P())
    shardings = dict.fromkeys("qkvx", spread) | {
        name: jax.tree.map(lambda _: replicated, case.arrays[name])
        for name in ("shared", "layer")
    }
    arrays = jax.device_put(case.arrays, shardings)
    run = cases.attention(encoding, implementation=SequenceParallel(form))
    with jax.set_mesh(mesh):
        text = cases.jit(run).lower(arrays).compile().as_text()
        assert collectives(text) == forward
        if form == "ulysses":
            assert not re.findall(r"= \(?f32[^=]* all-gather", text)
        if backward:
            grads = cases.value_and_grads(run, jax.device_put(case.cotangent, spread))
            text = grads.lower(arrays).compile().as_text()
            assert collectives(text) == backward


def test_ring_memory_does_not_grow_with_hops():
    """Backward included: what one device needs, over 2 and over 8 devices."""

    def temporaries(devices):
        mesh = mesh_of(sequence=devices)
        case = cases.case(Encoding(), 64 * devices, batch=1)
        spread = jax.NamedSharding(mesh, P(None, "sequence"))
        arrays = jax.device_put({n: case.arrays[n] for n in "qkvx"}, spread)
        arrays |= {"shared": {}, "layer": {}}
        run = cases.attention(
            Encoding(), implementation=SequenceParallel("ring"), block_q=16, block_k=16
        )
        with jax.set_mesh(mesh):
            program = cases.value_and_grads(run, jax.device_put(case.cotangent, spread))
            return program.lower(arrays).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(8) < 1.25 * temporaries(2)


def test_gradients_of_parameters_are_added_up_once_and_not_in_every_block():
    mesh = mesh_of(data=2, tensor=2)
    encoding = ALiBi(learned=True)
    case = cases.case(encoding, LENGTH)
    how = SequenceParallel(
        axis=None, batch_axes=("data",), head_axis="tensor", engine="blockwise"
    )
    run = cases.attention(encoding, implementation=how, block_q=4, block_k=4)
    spread = jax.NamedSharding(mesh, P("data", None, "tensor"))
    cotangent = jax.device_put(case.cotangent, spread)
    with jax.set_mesh(mesh):
        program = cases.value_and_grads(run, cotangent).lower(case.arrays).compile()
    found = re.findall(r"= \(?f32\[([\d,]*)\][^=]* all-reduce\(", program.as_text())
    assert found
    assert all(shape in {"", "2", "4"} for shape in found)  # the loss, the slopes
