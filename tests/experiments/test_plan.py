"""Costs told beforehand, against sums by hand."""

import dataclasses
import json
import pathlib

import jax
import pytest

from experiments.building import overrides
from experiments.command import UsageError
from experiments.plan import __main__ as plan
from experiments.plan.costs import Plan, Shape, make_plan, roofline
from experiments.plan.hardware import HARDWARE
from ropejax.operations import Operations
from tests.experiments.small_recipe import recipe

CHE = str(pathlib.Path(__file__).parents[2] / "configs" / "che.py")
ZIGZAG = "--config.mesh.sequence_order="
FORM = ["--config.mesh.sequence_form=ulysses"]
CAUSAL = ["--config.model.causal=true"]


def test_parameters_are_counted_and_cut_over_the_mesh():
    whole = make_plan(recipe())
    numbers = sum(
        x.size for x in jax.tree.leaves(recipe().model.init(jax.random.key(0)))
    )
    assert whole.parameters == numbers
    assert whole.parameter_bytes == 4 * numbers
    assert whole.optimizer_bytes == pytest.approx(8 * numbers, rel=0.01)  # two moments
    copies = make_plan(recipe(sizes={"data": 8}))
    assert copies.parameter_bytes == whole.parameter_bytes
    parts = make_plan(recipe(sizes={"fsdp": 8}))
    assert parts.parameter_bytes < whole.parameter_bytes / 4
    assert parts.optimizer_bytes < whole.optimizer_bytes / 4
    assert copies.devices == parts.devices == 8
    assert whole.gathered_bytes == copies.gathered_bytes == 0
    # One of two layers in whole, and its gradient; so the embedding and the readout.
    width, mlp, vectors = 32, 128, 128 + 5 * 32
    layer = 4 * width**2 + 2 * width * mlp
    tables = (3 + 2) * width
    assert numbers == 2 * (layer + vectors) + tables + 2
    assert parts.gathered_bytes == pytest.approx(2 * 4 * (layer + tables), rel=0.02)
    # Parts of a batch add their gradients to a sum.
    in_parts = make_plan(dataclasses.replace(recipe(), accumulate=4))
    assert in_parts.gradient_bytes == 2 * whole.gradient_bytes == 8 * numbers


def test_rows_divide_activations_and_not_operations():
    whole, copies = (make_plan(recipe(sizes=s)).shapes[0] for s in (None, {"data": 8}))
    assert copies.activation_bytes == pytest.approx(whole.activation_bytes / 8, rel=0.1)
    assert copies.operations == whole.operations


def test_what_devices_send_each_other():
    numbers = make_plan(recipe()).parameters
    sent = lambda **sizes: make_plan(recipe(sizes=sizes)).shapes[0].sent_bytes
    assert sent(data=8) == {"data": pytest.approx(2 * 7 / 8 * 4 * numbers)}
    tables = 3 * 32 + 32 * 2  # the embedding and the readout, gathered once
    vectors = 2 + 2 * (128 + 5 * 32)  # biases and norms, not cut but added up
    gathered = 2 * (numbers - tables - vectors) + tables
    scattered = numbers - vectors
    assert sent(fsdp=8) == {
        "fsdp": pytest.approx(7 / 8 * 4 * (gathered + scattered + 2 * vectors))
    }
    # Hidden states [16 / 2, 48, 32] in float32, four sums for each of two layers.
    hidden = 8 * 48 * 32 * 4
    assert sent(data=2, tensor=4)["tensor"] == pytest.approx(2 * 4 * 2 * 3 / 4 * hidden)


@pytest.mark.fast
def test_roofline_by_hand():
    shape = Shape(40, 80, Operations(products=2e15), 1e9, {"data": 9e9})
    made = Plan(2, 10, 1e9, 1e9, 2e9, 0.0, (shape,))
    found = roofline(made, shape, HARDWARE["h100"], "bfloat16")
    assert found.compute_s == pytest.approx(2e15 / (2 * 989e12))
    assert found.memory_s == pytest.approx((3 + 2 + 4 + 2) * 1e9 / 3350e9)
    assert found.links_s == pytest.approx(9 / 450)
    assert found.overlapped_s == found.compute_s
    assert found.in_turn_s == pytest.approx(sum(found))
    h100, more = HARDWARE["h100"], Operations(products=1e14)
    updated = made._replace(update_operations=more)
    later = roofline(updated, shape, h100, "bfloat16").compute_s - found.compute_s
    assert later == pytest.approx(1e14 / (2 * h100.tflops("float32") * 1e12))


@pytest.mark.fast
def test_the_larger_of_backward_pass_and_update_counts():
    """Parameters 1, two moments; gradients; and activations, or the moments again."""
    peak = {}
    for activations in (1e9, 7e9):
        shape = Shape(40, 80, Operations(), activations, {})
        made = Plan(1, 10, 1e9, 1e9, 2e9, 0.5e9, (shape,))
        peak[activations] = made.peak_bytes
    assert peak == {1e9: 3e9 + 1e9 + 2e9, 7e9: 3e9 + 1e9 + 0.5e9 + 7e9}


def test_a_plan_that_does_not_fit_says_what_would(capsys):
    asked = [f"--config={CHE}", "--config.train.buckets=1"]
    assert plan.main([*asked, "--mesh=data=2", "--memory_gb=0.05"]) == 1
    assert "of 46 MB that can be used" in capsys.readouterr().out
    assert plan.main([*asked, "--mesh=data=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is True
    assert found["devices"] == 2
    assert found["update_operations"]["products"] == 0  # Adam's
    assert found["shapes"][0]["operations"]["unbounded_loops"] == 0


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hardware=h1000"], "h100"),
        (["--mesh=data"], "axis=size"),
        (["--mesh=data=2,data=4"], "each axis once"),
        (["--mesh=date=2"], "data"),
        (["--mesh=tensor=3"], "num_heads=8 .* with tensor=2 or tensor=4"),
        (["--config.mesh.tensor=3"], "num_heads=8"),
        (["--config.mesh.data=-1"], "mesh.data=-1 depends"),
        (["--memory_gb=0"], "positive"),
        (["--mesh=data=2,population=2"], "is for one model, and the axis population"),
        (["--mesh=data=²"], "axis=size"),
        (["--mesh=data=0"], "'data' must be a positive integer"),
        (["--config.mesh.data=0"], "'data' must be a positive integer"),
        (["--config.mesh.data=-3"], "'data' must be a positive integer"),
        (["--mesh=sequence=2", ZIGZAG + "zigzog"], "Did you mean 'zigzag'"),
        ([ZIGZAG + "zigzog"], "Did you mean 'zigzag'"),
        ([ZIGZAG + "zigzag"], "set mesh.sequence"),
        (["--mesh=sequence=2", ZIGZAG + "zigzag"], "this model does not have"),
        (["--mesh=sequence=2", "--config.mesh.sequence_form=rnig"], "'ring'"),
        (["--mesh=sequence=16", *FORM], "num_heads=8 does not divide over 16"),
        (["--mesh=sequence=2", "--config.encoding.name=cope", *CAUSAL], "CoPE carries"),
        (["--mesh=tensor=2", "--config.mesh.rules=mlp=()"], "'mlp' is cut over other"),
    ],
)
def test_slips_are_told(arguments, message):
    with pytest.raises((UsageError, ValueError), match=message):
        plan.main([f"--config={CHE}", *arguments])


@pytest.mark.fast
@pytest.mark.parametrize("name", plan._EDITABLE)
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_figures_of_hardware_are_positive_and_finite(name, value):
    with pytest.raises(UsageError, match=f"--{name} must be a positive, finite"):
        plan.main([f"--config={CHE}", f"--{name}={value}"])


def test_the_order_of_tokens_reaches_the_plan():
    """Two pieces a device are more padding than one."""
    asked = [*CAUSAL, "--config.train.max_length=5", "--config.train.buckets=1"]
    sent = {}
    for order in ("consecutive", "zigzag"):
        config = overrides.load(CHE, [*asked, ZIGZAG + order])
        made = plan._recipe(config, {"sequence": 4})
        assert made.sharding.sequence_order == order
        sent[order] = make_plan(made).shapes[0].sent_bytes["sequence"]
    # Ten tokens are padded to 12 and to 16; keys and values, thrice around 4 devices.
    passed_on = 3 * 4 * 5 * 2 * 128 * 64 * 4
    more = sent["zigzag"] - sent["consecutive"]
    assert more == pytest.approx((4 - 3) * passed_on)
