"""Traces that can be opened, and utilization against arithmetic."""

import gzip
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.plan.costs import step_operations
from experiments.plan.hardware import HARDWARE
from experiments.running.profiling import Profiler
from experiments.running.utilization import Utilization, utilization_here
from tests.experiments.small_recipe import recipe


def test_a_trace_begins_after_the_first_dispatch_and_ends_by_itself(tmp_path):
    profiler = Profiler(tmp_path / "profile", 4)
    work = jax.jit(lambda x: x @ x)
    for step in (2, 4, 6, 8):
        work(jnp.ones((8, 8))).block_until_ready()
        profiler.after(step)
    (trace,) = (tmp_path / "profile").rglob("perfetto_trace.json.gz")
    found = json.loads(gzip.decompress(trace.read_bytes()))
    assert found["traceEvents"]
    profiler.close()  # once more does nothing


def test_a_run_that_ends_early_still_leaves_a_trace(tmp_path):
    profiler = Profiler(tmp_path, 1000)
    profiler.after(20)
    profiler.close()
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_no_trace_unless_asked_for(tmp_path):
    profiler = Profiler(tmp_path, 0)
    profiler.after(20)
    profiler.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="--profile"):
        Profiler(tmp_path, -1)


def test_utilization_is_products_times_speed_over_the_peak():
    made = recipe()
    products = step_operations(made, 24).products
    found = Utilization(made, peak=1e12)(np.array([24, 20]), 10.0)
    assert found == pytest.approx(products * 10 / 1e12)
    assert utilization_here(made) is None  # the peak of this processor is not known


@pytest.mark.fast
def test_hardware_is_known_by_the_kind_of_its_devices():
    kinds = {
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA H200": "h200",
        "TPU v5 lite": "v5e",
        "TPU v5": "v5p",
        "TPU v6 lite": "v6e",
    }
    for kind, name in kinds.items():
        fits = [n for n, one in HARDWARE.items() if kind.startswith(one.device_kinds)]
        assert fits[0] == name
