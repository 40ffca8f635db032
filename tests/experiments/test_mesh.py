"""A config's mesh, from its fields to the devices and to a resumed run."""

import math
from functools import partial

import jax
import pytest
from rich.console import Console

from configs import base
from experiments.building.build import build
from experiments.building.mesh import (
    make_sharding,
    members_sharding,
    on_other_mesh,
    parse_sizes,
    without_mesh,
)
from experiments.evaluate import evaluate_run
from experiments.results import store as results
from experiments.running import workdir
from experiments.running.run import run_experiment
from ropejax.sharding import Sharding, make_mesh


def config_with(**mesh):
    config = base.get_config()
    config.model.num_layers = 1
    config.model.embed_dim = 16
    config.train.max_length = 4
    config.train.buckets = 1
    config.eval.lengths = "4"
    config.mesh.update(mesh)
    return config


def test_one_device_unless_the_config_says_more():
    assert make_sharding(base.get_config()) is None
    assert build(config_with()).recipe.sharding is None
    assert make_sharding(config_with(data=-1), jax.devices()[:1]) is None


def test_mesh_and_rules_come_from_the_config():
    config = config_with(data=-1, tensor=2, rules="embed=(fsdp, data), vocab=()")
    config.mesh.sequence_form = "ulysses"
    config.train.accumulate = 4
    recipe = build(config).recipe
    sharding = recipe.sharding
    assert {n: s for n, s in sharding.sizes.items() if s > 1} == {
        "data": 4,
        "tensor": 2,
    }
    assert sharding.rules.mesh_axes("embed") == ("fsdp", "data")
    assert sharding.rules.mesh_axes("vocab") == ()
    assert sharding.sequence_form == "ulysses"
    assert recipe.accumulate == 4


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ({"data": 3}, "mesh: .* 3 devices, but there are 8"),
        ({"tensor": 8, "rules": "heads=tensr"}, "mesh: .* Did you mean 'tensor'"),
        (
            {"sequence": 8, "sequence_form": "rnig"},
            "mesh.sequence_form='rnig' .*'ring'",
        ),
        ({"sequence_order": "zigzga"}, "mesh.sequence_order='zigzga' .*'zigzag'"),
        ({"sequence_order": "zigzag"}, "spread over devices; set mesh.sequence"),
        ({"sequence": 8, "sequence_order": "zigzag"}, "balances the work of a causal"),
        (
            {"sequence": 8, "sequence_order": "zigzag", "sequence_form": "ulysses"},
            "mesh: .*balances the devices of a ring",
        ),
        ({"tensor": -1, "rules": "heads=()"}, None),
        ({"fsdp": 8}, None),
    ],
)
def test_meshes_are_refused_by_name(mesh, message):
    if message is None:
        assert math.prod(build(config_with(**mesh)).recipe.sharding.sizes.values()) == 8
        return
    with pytest.raises(ValueError, match=message):
        build(config_with(**mesh))


def test_a_run_is_scored_on_a_mesh_as_on_one_device(tmp_path):
    """Whatever the mesh of training was, and though 6 rows fill no 4 devices."""
    config = config_with(sequence=2, data=4)
    config.train.steps = 2
    quiet = Console(quiet=True)
    run_experiment(config, tmp_path, console=quiet, summary=False)
    ask = partial(
        evaluate_run,
        tmp_path,
        lengths_text="2,5",
        changes={"samples": 12, "draws": 2},
        console=quiet,
    )
    on_mesh = ask(mesh={"fsdp": 2, "data": 2, "tensor": 2})
    kept = results.read(tmp_path).to_pylist()
    assert ask() == on_mesh  # known, since a mesh is no part of what is asked
    assert results.read(tmp_path).to_pylist() == kept
    (tmp_path / "results").rename(tmp_path / "before")
    with pytest.raises(ValueError, match="not 'dta'. Did you mean 'data'"):
        ask(mesh={"dta": 4})
    again = ask()
    for length, score in again.items():
        assert score.loss == pytest.approx(on_mesh[length].loss, rel=1e-5)
        assert score._replace(loss=0.0) == on_mesh[length]._replace(loss=0.0)


def test_meshes_to_score_on_are_refused_by_name(tmp_path):
    for text, message in {
        "data": "axis=size",
        "data=2,data=4": "each axis once",
        "data=two": "axis=size",
        "population=2": "leave it out",
    }.items():
        with pytest.raises(ValueError, match=f"--mesh='{text}'.*{message}"):
            parse_sizes(text, "--mesh")
    assert parse_sizes("data=-1, tensor=2", "--mesh") == {"data": -1, "tensor": 2}
    assert on_other_mesh(
        {"mesh": {"fsdp": 8, "sequence_order": "zigzag", "rules": "vocab=()"}},
        {"sequence": 2},
    )["mesh"] == {
        **dict.fromkeys(("replica", "data", "fsdp", "tensor"), 1),
        **{"sequence": 2, "sequence_order": "zigzag", "rules": "vocab=()"},
    }


def test_models_of_a_study_get_meshes_of_their_own_as_far_as_devices_go():
    def sizes_of(members, **mesh):
        plain = workdir.plain(config_with(**mesh))
        sharding = members_sharding(plain, members, jax.devices())
        if sharding is None:
            return {}
        return {name: size for name, size in sharding.sizes.items() if size > 1}

    assert sizes_of(9) == {}
    assert sizes_of(9, fsdp=2) == {"fsdp": 2, "population": 4}
    assert sizes_of(3, fsdp=2) == {"fsdp": 2, "population": 3}
    assert sizes_of(9, data=8) == sizes_of(9, data=-1) == {"data": 8}
    assert sizes_of(9, sequence=2) == {"sequence": 2}
    with pytest.raises(ValueError, match="has 16 devices, but there are 8"):
        sizes_of(9, fsdp=16)
    with pytest.raises(ValueError, match="only one mesh axis can be the rest"):
        sizes_of(9, fsdp=-1, data=-1)
    spread = make_mesh({"population": 2, "data": 4})
    assert Sharding(spread).devices_a_model == 4


def test_a_run_is_the_same_run_on_another_mesh():
    """So that a folder trained on eight devices can go on, and be scored, on one."""
    plain = workdir.plain
    one, many = plain(config_with()), plain(config_with(fsdp=8))
    causal = config_with(sequence=8, sequence_order="zigzag")
    causal.model.causal = True
    assert build(causal).recipe.sharding.sequence_order == "zigzag"
    assert build(without_mesh(plain(causal))).recipe.sharding is None
    assert workdir.config_hash(one) == workdir.config_hash(many)
    assert without_mesh(many) == one


@pytest.mark.parametrize(
    ("mesh", "changes", "message"),
    [
        ({"sequence": 8}, {"encoding.name": "cope"}, "CoPE carries a state"),
        (
            {"data": 2, "sequence": 4, "sequence_form": "ulysses"},
            {"model.num_heads": 2},
            "num_heads=2 does not divide over 4 .* with sequence=2,data=4.",
        ),
        (
            {"data": 2, "sequence": 4, "sequence_form": "ulysses"},
            {"model.num_heads": 4, "model.num_kv_heads": 2},
            "num_kv_heads=2 does not divide over 4 .* with sequence=2,data=4.",
        ),
        (
            {"data": 8},
            {"train.batch_size": 19},
            "batch_size=19 .*=16 or .*batch_size=24",
        ),
        (
            {"sequence": 8, "rules": "batch=sequence"},
            {},
            "mesh: .*'batch' and 'length'",
        ),
        ({"sequence": 8, "rules": "embed=5"}, {}, "mesh: 'embed' must be a mesh axis"),
        (
            {"sequence": 8},
            {"positions.name": "pose", "positions.options": "max_position=8"},
            None,
        ),
        (
            {"sequence": 8},
            {"train.max_length": 5, "encoding.name": "learned"}
            | {"encoding.options": "max_position=10", "eval.lengths": "5"},
            "10 tokens, padded to 16 .* below 10 only",
        ),
    ],
)
def test_a_run_that_cannot_be_leaves_nothing_behind(mesh, changes, message, tmp_path):
    """No config, no rows, no checkpoints: refused before there is a folder."""
    config = config_with(**mesh)
    config.model.causal = True
    for field, value in changes.items():
        group, name = field.split(".")
        config[group][name] = value
    if message is None:
        assert build(config).recipe.sharding.length_parts == 8
        return
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        run_experiment(config, folder)
    assert not folder.exists()
