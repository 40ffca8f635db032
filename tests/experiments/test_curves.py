"""Points of training curves are means over symbols, also of a run that was stopped."""

import json

import numpy as np
import pytest

from experiments.running.curves import Curves
from ropejax.training import Progress
from ropejax.training.step import StepMetrics

STEPS = StepMetrics(
    loss=np.float32([1, 4, 2, 0.1, 3, 1]),
    accuracy=np.float32([1, 0.5, 0, 0.25, 1, 0]),
    grad_norm=np.float32([1, 2, 3, 4, 5, 6]),
    length=np.int32([3, 1, 2, 1, 1, 2]),
    outputs=np.float32([30, 10, 20, 10, 10, 20]),
    scored=np.float32([10, 10, 30, 20, 20, 10]),
)
"""Of six steps; exact in binary but for one."""


class Rows(list):
    """Stands for the results store."""

    def write(self, kind, **fields):
        self.append(fields)


def drawn(folder, parts, unfinished=None):
    """Points of a curve with one every three steps, and what is left at the end."""
    rows = Rows()
    curves = Curves(
        rows,
        folder,
        every=3,
        first=parts[0][0],
        learning_rate=lambda step: 0.5,
        unfinished=lambda step: unfinished,
    )
    for first, last in parts:
        steps = StepMetrics(*(series[first:last] for series in STEPS))
        line = curves.add(Progress(last, steps, None, 1.0))
    left = curves.window()
    curves.close()
    return rows, json.loads(json.dumps(left)), line


def test_a_point_is_a_mean_over_the_symbols_of_its_steps(tmp_path):
    (point, _), left, line = drawn(tmp_path, [(0, 6)])
    assert point["loss"] == (30 * 1 + 10 * 4 + 20 * 2) / 60
    assert point["accuracy"] == (10 * 1 + 10 * 0.5 + 30 * 0) / 50
    assert (point["grad_norm"], point["mean_length"]) == (2, 2)
    assert line.accuracy == (10 + 5 + 0 + 5 + 20 + 0) / 100
    assert left == {}


@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_a_point_that_was_not_finished_is_finished_bit_for_bit(tmp_path, at):
    whole, _, _ = drawn(tmp_path / "whole", [(0, 6)])
    before, left, _ = drawn(tmp_path / "before", [(0, at)])
    after, _, _ = drawn(tmp_path / "after", [(at, 6)], unfinished=left)
    without_times = lambda rows: [row | {"steps_per_s": None} for row in rows]
    assert without_times(before + after) == without_times(whole)


def test_what_earlier_versions_left_unfinished_is_left_out(tmp_path):
    """They kept no counts, without which there is no mean over symbols."""
    _, left, _ = drawn(tmp_path / "before", [(0, 2)])
    old = {name: left[name] for name in ("loss", "accuracy", "grad_norm", "length")}
    (point, _), _, _ = drawn(tmp_path / "after", [(2, 6)], unfinished=old)
    assert point["loss"] == 2
    assert point["grad_norm"] == 3
