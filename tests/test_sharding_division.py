"""Where numbers do not divide over a mesh: what is suggested is accepted."""

import contextlib
import dataclasses
import itertools
import math

import pytest

from ropejax.encodings import ENCODINGS, Dims
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.sharding import (
    MESH_AXES,
    Rules,
    Sharding,
    abstract_mesh,
    make_mesh,
    mesh_sizes,
)
from tests.training.tiny import tiny_recipe

pytestmark = pytest.mark.fast


def spec_of(heads, kv_heads, width):
    dims = Dims(heads, kv_heads, 8, width, num_layers=1, causal=True)
    settings = BlockSettings(mlp_dim=4 * width)
    kind = LayerKind(ENCODINGS["rope"](), Causal())
    return TransformerSpec(4, 4, dims, settings, (kind,))


def suggestions(message: str) -> list[dict[str, int]]:
    """The ends of sentences such as "it would with a=1 or b=2,c=3."."""
    _, found, text = message.partition("; it would with ")
    assert found, message
    changes = (change.split(",") for change in text.removesuffix(".").split(" or "))
    return [
        {name: int(n) for name, n in (part.split("=") for part in change)}
        for change in changes
    ]


def check(sharding, model, batch, accumulate, changes):
    """Tries what is suggested, as a user would do."""
    changes = dict(changes)
    batch = changes.pop("batch_size", batch)
    accumulate = changes.pop("accumulate", accumulate)
    sizes = sharding.sizes | changes
    devices = math.prod(sizes.values())
    if sharding.mesh.size == 8:  # real devices, all of which are to be used
        assert devices == 8
    mesh = abstract_mesh(sizes, devices)
    dataclasses.replace(sharding, mesh=mesh).check(model, batch, accumulate)


def any_other_size(sharding, model, batch, accumulate) -> bool:
    """Whether all would be well with some other size of some one axis."""
    if sharding.mesh.size == 8:
        return False
    for axis, size in itertools.product(MESH_AXES, range(1, 9)):
        with contextlib.suppress(ValueError):
            check(sharding, model, batch, accumulate, {axis: size})
            return True
    return False


MESHES = [
    *(make_mesh(s) for s in ({"data": 8}, {"tensor": 8}, {"fsdp": 2, "tensor": 4})),
    *(make_mesh(s) for s in ({"data": 2, "sequence": 4}, {"fsdp": 8})),
    abstract_mesh({"tensor": 3}, 3),
    abstract_mesh({"fsdp": 3}, 3),
    abstract_mesh({"fsdp": 5, "tensor": 2}, 10),
    abstract_mesh({"data": 2, "sequence": 3, "tensor": 2}, 12),
]


@pytest.mark.parametrize("form", ["ring", "ulysses"])
@pytest.mark.parametrize("mesh", MESHES, ids=lambda m: str(dict(m.shape)))
def test_what_is_suggested_is_accepted(mesh, form):
    sharding = Sharding(mesh, Rules(), form)
    told = 0
    models = itertools.starmap(spec_of, [(8, 4, 64), (6, 2, 48), (1, 1, 7)])
    for model, batch, accumulate in itertools.product(models, (3, 8, 20), (1, 2, 3)):
        if batch % accumulate:
            continue
        try:
            sharding.check(model, batch, accumulate)
        except ValueError as error:
            if str(error).endswith("; more than one number must change."):
                assert not any_other_size(sharding, model, batch, accumulate)
                continue
            for changes in suggestions(str(error)):
                check(sharding, model, batch, accumulate, changes)
                told += 1
    assert told


@pytest.mark.parametrize(
    ("sizes", "batch", "accumulate", "message"),
    [
        # Each part of the batch is spread by itself.
        (
            {"data": 8},
            8,
            2,
            r"batch_size=8 / accumulate=2 = 4 does not divide over 8 devices of the "
            r"mesh \(data\); it would with batch_size=16 or accumulate=1 or data=4\.",
        ),
        # The width, 8, does not divide by three either.
        ({"fsdp": 3}, 3, 3, r"= 1 does not .*\(fsdp\); it would with fsdp=1\."),
        ({"tensor": 3}, 4, 1, r"num_heads=2 does not .*; it would with tensor=2\."),
    ],
)
def test_messages_name_what_the_user_wrote(sizes, batch, accumulate, message):
    sharding = Sharding(abstract_mesh(sizes, math.prod(sizes.values())))
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(
            tiny_recipe(), batch_size=batch, accumulate=accumulate, sharding=sharding
        )


def test_scoring_fills_its_rows_up_and_is_told_of_meshes_only():
    sharding = Sharding(abstract_mesh({"fsdp": 3}, 3))
    with pytest.raises(ValueError, match=r"embed_dim=64 .* with fsdp=2 or fsdp=4\.$"):
        sharding.check(spec_of(8, 4, 64))
    Sharding(abstract_mesh({"fsdp": 4}, 4)).check(spec_of(8, 4, 64))


@pytest.mark.parametrize(
    ("sizes", "ways"),
    [
        ({"data": 4}, ["give data -1", r"devices=jax.devices\(\)\[:4\]"]),
        ({"data": 3, "tensor": 2}, ["give data -1", r"\[:6\]"]),
        ({"tensor": 16}, ["give tensor -1"]),
        ({"tensor": 2}, ["give data -1", r"\[:2\]"]),
        ({"fsdp": 3, "tensor": 3}, ["change a size"]),
    ],
)
def test_meshes_of_other_devices_say_what_would_do(sizes, ways):
    with pytest.raises(ValueError, match=".*, or .*".join(ways)) as told:
        mesh_sizes(sizes, 8)
    for axis in MESH_AXES:
        if f"give {axis} -1" in str(told.value):
            assert math.prod(mesh_sizes(sizes | {axis: -1}, 8).values()) == 8
