"""Traces that can be opened, and utilization against arithmetic."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from experiments.plan.hardware import HARDWARE
from experiments.running.profiling import Profiler, check_left


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


@pytest.mark.fast
@pytest.mark.parametrize(
    ("done", "message"),
    [
        (
            100,
            "--profile=4 has nothing to trace: .* already trained to 100 steps. Raise",
        ),
        (80, "the 20 steps that are left are one dispatch. Lower train.steps_per_disp"),
        (79, None),
    ],
)
def test_a_trace_of_no_step_is_refused(done, message):
    check_left(0, done, 100, 20)
    if message is None:
        check_left(4, done, 100, 20)
        return
    with pytest.raises(ValueError, match=message):
        check_left(4, done, 100, 20)


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
