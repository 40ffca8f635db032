"""Meshes by size, the table of axes, and the names of every parameter."""

import dataclasses

import jax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from ropejax.encodings import ENCODINGS, Dims
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.sharding import (
    MESH_AXES,
    Rules,
    Sharding,
    abstract_mesh,
    encoding_names,
    make_mesh,
    mesh_sizes,
    parameter_names,
)
from ropejax.sharding.names import path_of

DIMS = Dims(8, 4, 16, 96, num_layers=3, causal=True)


def spec_of(encoding, dims=DIMS, **settings):
    settings = BlockSettings(mlp_dim=384, pre_norm=True, **settings)
    return TransformerSpec(10, 6, dims, settings, (LayerKind(encoding),))


def test_one_axis_may_be_the_rest_of_the_devices():
    sizes = mesh_sizes({"data": -1, "tensor": 2}, 8)
    assert sizes == dict.fromkeys(MESH_AXES, 1) | {"data": 4, "tensor": 2}
    assert dict(make_mesh({"fsdp": -1}).shape)["fsdp"] == 8
    half = make_mesh({"data": 2, "sequence": 2}, devices=jax.devices()[:4])
    assert half.devices.size == 4
    assert half.axis_names == MESH_AXES
    assert set(half.axis_types) == {AxisType.Auto}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"data": 3}, r"data=3\) has 3 devices, but there are 8"),
        ({"data": -1, "tensor": 3}, r"cuts 8 devices into 3 parts.* 2 or 4 would"),
        ({"data": -1, "fsdp": -1}, r"only one .* \['data', 'fsdp'\]"),
        ({"dta": 8}, "Did you mean 'data'"),
        ({"data": 0}, "'data' must be a positive integer, or -1"),
        ({"data": 8.0}, "'data' must be a positive integer, or -1"),
    ],
)
def test_meshes_that_do_not_fit_the_devices_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        mesh_sizes(sizes, 8)


def test_rules_can_be_changed_and_misspellings_are_named():
    sizes = mesh_sizes({"fsdp": 4, "tensor": 2}, 8)
    names = ("embed", "heads", None)
    assert Rules().spec(names, (96, 8, 16), sizes) == P("fsdp", "tensor")
    changed = Rules.of({"embed": ("fsdp", "tensor"), "heads": ()})
    assert changed.spec(names, (96, 8, 16), sizes) == P(("fsdp", "tensor"))
    with pytest.raises(ValueError, match="Did you mean 'heads'"):
        Rules.of({"hedas": "tensor"})
    with pytest.raises(ValueError, match="Did you mean 'tensor'"):
        Rules.of({"heads": "tensr"})


def test_an_axis_is_cut_once_and_only_where_it_divides():
    sizes = mesh_sizes({"fsdp": 4, "tensor": 2}, 8)
    spec = Rules().spec
    assert spec(("vocab", "embed"), (5, 96), sizes) == P(None, "fsdp")
    assert spec(("heads", "mlp"), (8, 8), sizes) == P("tensor")


def test_parameters_of_the_model_are_cut_by_meaning():
    sharding = Sharding(abstract_mesh({"fsdp": 2, "tensor": 4}, 8))
    spec = spec_of(ENCODINGS["alibi"](learned=True))
    params = jax.eval_shape(spec.init, jax.random.key(0))
    cut = {
        path_of(path): leaf.spec
        for path, leaf in jax.tree_util.tree_leaves_with_path(
            sharding.parameters(spec, params)
        )
    }
    layer = "layers/kind_0/"
    assert cut["embedding"] == P(None, "fsdp")  # 10 symbols do not divide over 4
    assert cut[layer + "attention/query/kernel"] == P(None, "fsdp", "tensor")
    assert cut[layer + "attention/out/kernel"] == P(None, "tensor", None, "fsdp")
    assert cut[layer + "mlp_in/kernel"] == P(None, "fsdp", "tensor")
    assert cut[layer + "mlp_norm/scale"] == P()
    slopes = [name for name in cut if "slopes" in name]
    assert slopes
    assert all(cut[name] == P(None, "tensor") for name in slopes)


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_parameter_of_every_encoding_is_named_or_small(name):
    """So that a new method's heads are cut without a word about devices in its file."""
    encoding = ENCODINGS[name]()
    spec = spec_of(encoding)
    params = jax.eval_shape(spec.init, jax.random.key(0))
    is_names = lambda x: isinstance(x, tuple)
    names = jax.tree.leaves(parameter_names(spec, params), is_leaf=is_names)
    for (path, leaf), known in zip(
        jax.tree_util.tree_leaves_with_path(params), names, strict=True
    ):
        assert "rest" not in known, path_of(path)
        stacked = path_of(path).startswith("layers")
        assert (known[0] == "layers") == stacked
        unnamed = set(known) <= {"layers", None}
        size = leaf.size // (DIMS.num_layers if stacked else 1)
        assert not unnamed or size <= 2048, path_of(path)


def test_names_of_encodings_are_found_by_what_makes_them_grow():
    shared, layer = encoding_names(ENCODINGS["transformer_xl"](), DIMS)
    assert layer["w"] == ("embed", "heads", None)
    assert set(shared.values()) == {("heads", None)}
    tables = [{**a, **b} for a, b in [encoding_names(ENCODINGS["t5"](), DIMS)]]
    assert tables == [{"table": (None, "heads")}]
    shared, _ = encoding_names(ENCODINGS["learned"](), DIMS)
    assert shared == {"table": (None, "embed")}


def test_leaves_that_nobody_knows_are_cut_at_their_largest_axis():
    spec = spec_of(ENCODINGS["none"]())
    unknown = {"mystery": jax.ShapeDtypeStruct((4, 64), "float32")}
    assert parameter_names(spec, unknown) == {"mystery": (None, "rest")}
    sharding = Sharding(abstract_mesh({"fsdp": 8}, 8))
    assert sharding.parameters(spec, unknown)["mystery"].spec == P(None, "fsdp")


def test_models_that_do_not_divide_are_refused():
    sharding = Sharding(abstract_mesh({"data": 4, "tensor": 8}, 32))
    with pytest.raises(ValueError, match="num_kv_heads=4 does not divide over 8"):
        sharding.check(spec_of(ENCODINGS["none"]()), 8)
    wide = spec_of(ENCODINGS["none"](), DIMS._replace(num_kv_heads=8))
    with pytest.raises(ValueError, match="batch_size=6 .* 4 or 8"):
        sharding.check(wide, 6)
    sharding.check(wide, 8)


def test_explicit_meshes_are_refused_with_the_reason():
    with pytest.raises(ValueError, match="AxisType.Auto"):
        Sharding(make_mesh({"data": 8}, explicit=True))


def test_a_sequence_is_padded_to_divide():
    sharding = Sharding(abstract_mesh({"sequence": 4}, 4))
    assert [sharding.padded_length(n) for n in (1, 4, 13)] == [4, 4, 16]
    mesh = abstract_mesh({"sequence": 2, "tensor": 2}, 4)
    rules = Rules.of({"length": ("sequence", "tensor")})
    with pytest.raises(ValueError, match="one mesh axis"):
        dataclasses.replace(sharding, mesh=mesh, rules=rules)
