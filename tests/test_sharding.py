"""Meshes by size, the table of axes, and the names of every parameter."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from ropejax import masks
from ropejax.attention import Entmax
from ropejax.encodings import ENCODINGS, Dims
from ropejax.evaluation import evaluate
from ropejax.nn import BlockSettings, GatedMLP, LayerKind, RMSNorm, TransformerSpec
from ropejax.positions import Consecutive, Randomized
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
from ropejax.training import Fixed, OptimizerFamily, Population, train
from ropejax.training.population import compiled_population
from tests.training.tiny import tiny_recipe

DIMS = Dims(8, 4, 16, 96, num_layers=3, causal=True)


def spec_of(encoding, dims=DIMS, **settings):
    settings = BlockSettings(mlp_dim=384, pre_norm=True, **settings)
    kind = LayerKind(encoding, masks.Causal())
    return TransformerSpec(10, 6, dims, settings, (kind,))


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
        ({"data": True}, "'data' must be a positive integer, or -1"),
        ({"data": "8"}, "got '8'"),
        ({5: 8}, "not 5"),
        (["data"], r"sizes by axis, such as {'data': 8}, got \['data'\]"),
    ],
)
def test_meshes_that_do_not_fit_the_devices_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        mesh_sizes(sizes, 8)


@pytest.mark.parametrize("number", [0, -8, 8.0, None])
def test_a_mesh_has_devices(number):
    with pytest.raises(ValueError, match="the number of devices must be"):
        abstract_mesh({"data": -1}, number)
    with pytest.raises(ValueError, match="the number of devices must be at least 1"):
        make_mesh({"data": -1}, devices=[])


def test_sizes_may_be_numbers_of_numpy():
    sizes = mesh_sizes({"data": np.int64(-1), "tensor": np.int32(2)}, np.int64(8))
    assert sizes == mesh_sizes({"data": 4, "tensor": 2}, 8)
    assert all(type(size) is int for size in sizes.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ((("embed", "fsdp"),), "'embed' must have a tuple of mesh axes, got 'fsdp'"),
        ({"embed": "fsdp"}, "Rules.of takes a mapping"),
    ],
)
def test_rules_are_pairs(changes, message):
    with pytest.raises(ValueError, match=message):
        Rules(changes)


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embed": 5}, "'embed' must be a mesh axis or a tuple of them, got 5"),
        ({"embed": (5,)}, "a mesh axis for 'embed' is one of .* not 5"),
        ({"embed": ("fsdp", "fsdp")}, "mesh axes for 'embed': fsdp is named twice"),
        ({"population": "data"}, "leave 'population' out"),
    ],
)
def test_rules_that_are_none_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Rules.of(changes)
    with pytest.raises(ValueError, match="heads is named twice"):
        Rules((("heads", ("tensor",)), ("heads", ())))
    with pytest.raises(ValueError, match="rules must be a Rules"):
        Sharding(abstract_mesh({"data": 8}, 8), {"heads": ()})


@pytest.mark.parametrize(
    ("sizes", "rules", "message"),
    [
        ({"sequence": 4, "population": 2}, {}, "spread their sequences over 4"),
        ({"sequence": 8}, {"length": ()}, "nothing is cut over .* 'sequence'"),
        (
            {"data": 4, "tensor": 2},
            dict.fromkeys(("heads", "kv_heads", "mlp", "vocab"), ()),
            "nothing is cut over the mesh axis 'tensor' .2 devices.",
        ),
        (
            {"data": 2, "sequence": 4},
            {"batch": ("data", "sequence")},
            "'batch' and 'length' are both cut over the mesh axis 'sequence'",
        ),
        ({"data": 8}, {"heads": ("data",)}, "'batch' and 'heads' are both cut"),
    ],
)
def test_meshes_of_no_use_to_one_model_are_refused(sizes, rules, message):
    with pytest.raises(ValueError, match=message):
        Sharding(abstract_mesh(sizes, 8), Rules.of(rules))


def test_meshes_made_elsewhere_are_refused():
    with pytest.raises(ValueError, match="the axes replica, data, .* got data; make"):
        Sharding(jax.make_mesh((8,), ("data",)))
    with pytest.raises(ValueError, match="mesh must be a mesh of devices, got {"):
        Sharding({"data": 8})


def test_a_population_has_its_mesh_elsewhere():
    """One model on such a mesh would be trained, or scored, in two copies."""
    recipe = tiny_recipe()
    mesh = make_mesh({"data": 4, "population": 2})
    both = dataclasses.replace(recipe, sharding=Sharding(mesh))
    message = r"'population' \(2 devices\) is for the members"
    with pytest.raises(ValueError, match=message):
        train(both, steps=1)
    with pytest.raises(ValueError, match=message):
        evaluate(
            *(recipe.model, {}, recipe.task, recipe.positions, [3]),
            sharding=both.sharding,
        )
    take = partial(compiled_population, states=(), numbers=(), count=1, capacity=1)
    family = OptimizerFamily(steps=1)
    with pytest.raises(ValueError, match=r"{'data': 4} would all compute the same"):
        take(Population(recipe, family), mesh=mesh)
    with pytest.raises(ValueError, match="has a mesh, so another one cannot be given"):
        take(Population(both, family), mesh=mesh)
    with pytest.raises(ValueError, match="must have an axis 'population'"):
        take(Population(recipe, family), mesh=jax.make_mesh((8,), ("data",)))


def test_an_axis_is_cut_once_and_only_where_it_divides():
    sizes = mesh_sizes({"fsdp": 4, "tensor": 2}, 8)
    spec = Rules().spec
    assert spec(("vocab", "embed"), (5, 96), sizes) == P(None, "fsdp")
    assert spec(("heads", "mlp"), (8, 8), sizes) == P("tensor")


def test_parameters_of_the_model_are_cut_by_meaning():
    sharding = Sharding(abstract_mesh({"fsdp": 2, "tensor": 4}, 8))
    spec = spec_of(
        ENCODINGS["alibi"](learned=True),
        mlp=GatedMLP(bias=True),
        norm=RMSNorm(),
        qkv_bias=True,
        out_bias=True,
    )
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
    assert cut[layer + "attention/query/bias"] == P(None, "tensor")
    assert cut[layer + "attention/key/bias"] == P(None, "tensor")
    assert cut[layer + "attention/out/bias"] == P()
    assert cut[layer + "mlp_gate/kernel"] == P(None, "fsdp", "tensor")
    assert cut[layer + "mlp_gate/bias"] == P(None, "tensor")
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
    with pytest.raises(
        ValueError, match="batch_size=6 .* batch_size=4 or batch_size=8"
    ):
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


@pytest.mark.parametrize(
    ("form", "encoding", "changes", "message"),
    [
        ("ring", "cope", {}, "'ring': CoPE carries a state .* cannot go around"),
        ("ring", "path", {}, "carries a state from near keys to far ones"),
        ("ulysses", "dape", {}, "mixes heads, which 'ulysses' has on different"),
        ("ring", "rope", {"normalizer": Entmax()}, "needs whole rows of logits"),
        ("all_gather", "rope", {"normalizer": Entmax()}, "needs whole rows of logits"),
        ("ulysses", "dape", {"normalizer": Entmax()}, "of all heads at once"),
        (
            "ulysses",
            "rope",
            {"dims": DIMS._replace(num_heads=6, num_kv_heads=2)},
            "under sequence_form='ulysses', num_heads=6 does not .* with sequence=2.",
        ),
        (
            "ulysses",
            "rope",
            {"dims": DIMS._replace(num_kv_heads=2)},
            "under sequence_form='ulysses', num_kv_heads=2 does .* with sequence=2.",
        ),
        (
            "ulysses",
            "rope",
            {"mask": masks.PerHead((masks.Causal(), masks.Window(2, 0)) * 4)},
            "differs from head to head",
        ),
    ],
)
def test_attention_that_cannot_be_spread_so_is_refused(
    form, encoding, changes, message
):
    """At once, and not when the program is traced, with a run's folder half made."""
    changes = {"dims": DIMS, "mask": masks.Causal()} | changes
    dims, mask = changes.pop("dims"), changes.pop("mask")
    spec = spec_of(ENCODINGS[encoding](), dims, **changes)
    spec = dataclasses.replace(
        spec, pattern=(LayerKind(spec.pattern[0].encoding, mask),)
    )
    sharding = Sharding(abstract_mesh({"data": 2, "sequence": 4}, 8), Rules(), form)
    with pytest.raises(ValueError, match=message):
        sharding.check(spec, 8)
    whole = Sharding(abstract_mesh({"data": 8}, 8), Rules(), form)
    whole.check(spec, 8)  # where sequences are whole, all is well


def test_ulysses_spreads_what_heads_the_tensor_axis_leaves():
    mesh = abstract_mesh({"sequence": 4, "tensor": 2}, 8)
    sharding = Sharding(mesh, Rules(), "ulysses")
    sharding.check(spec_of(ENCODINGS["rope"](), DIMS._replace(num_kv_heads=8)), 8)
    with pytest.raises(ValueError, match=r"num_kv_heads=4 .* 8 .*tensor x sequence"):
        sharding.check(spec_of(ENCODINGS["rope"]()), 8)


def test_key_heads_are_cut_with_query_heads():
    """Whatever their own rule says of parameters."""
    mesh = abstract_mesh({"tensor": 8}, 8)
    sharding = Sharding(mesh, Rules.of({"kv_heads": ()}))
    with pytest.raises(ValueError, match="num_kv_heads=4 does not divide over 8"):
        sharding.check(spec_of(ENCODINGS["rope"]()), 8)


def test_uneven_rows_are_refused_with_the_nearest_that_are_even():
    """Fault B25: 19 rows over 4 devices."""
    mesh = make_mesh({"data": 4}, devices=jax.devices()[:4])
    with pytest.raises(
        ValueError, match="batch_size=19 .* 4 devices .*=16 or batch_size=20"
    ):
        dataclasses.replace(tiny_recipe(), batch_size=19, sharding=Sharding(mesh))
    message = "batch_size=57 / accumulate=3 = 19 .* 4 devices .*=48 or batch_size=60"
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(
            tiny_recipe(), batch_size=57, accumulate=3, sharding=Sharding(mesh)
        )


def test_places_that_only_padding_reaches_are_refused_as_well():
    """Six symbols are 12 tokens, which eight devices pad to 16."""
    sharding = Sharding(abstract_mesh({"sequence": 8}, 8))
    changes = {"buckets": (6,), "curriculum": Fixed(6), "sharding": sharding}
    message = "6 symbols are 12 tokens, padded to 16 to divide over the mesh"
    random = Randomized(max_position=12)
    tiny_recipe(positions=random, **(changes | {"sharding": None}))
    with pytest.raises(ValueError, match=message + ": .*max_position=12"):
        tiny_recipe(positions=random, **changes)
    table = ENCODINGS["learned"](max_position=12)
    recipe = tiny_recipe(buckets=(6,), curriculum=Fixed(6), positions=Consecutive())
    model = dataclasses.replace(recipe.model, pattern=(LayerKind(table),))
    recipe = dataclasses.replace(recipe, model=model)
    with pytest.raises(ValueError, match=message + ".* positions below 12 only"):
        dataclasses.replace(recipe, sharding=sharding)


@pytest.mark.parametrize(
    ("positions", "reach"),
    [(Consecutive(), "up to 11"), (Randomized(max_position=32), "up to 31")],
)
def test_a_recipe_whose_tokens_leave_a_table_of_positions_is_refused(positions, reach):
    """Fault B15: a position beyond the table would be clamped, or NaN."""
    recipe = tiny_recipe(positions=positions)
    for rows in (11, 32):
        kind = LayerKind(ENCODINGS["learned"](max_position=rows))
        model = dataclasses.replace(recipe.model, pattern=(kind,))
        if rows == 32:
            dataclasses.replace(recipe, model=model)
            continue
        with pytest.raises(ValueError, match=f"tokens.* {reach}, .* below 11 only"):
            dataclasses.replace(recipe, model=model)
