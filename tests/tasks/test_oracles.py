"""Every sampler against plain Python, on thousands of rows and on every example."""

import re

import numpy as np
import pytest

from ropejax.tasks import TASKS
from tests.tasks.oracles import ORACLES, scored
from tests.tasks.samples import LENGTHS, big_batch, draw, row

# The symbols as the docstrings write them, in their order.
WRITTEN = {
    "modular_arithmetic": "01234+-*",
    "modular_arithmetic_brackets": "01234+-*()",
    "solve_equation": "01234+-()x=",
}


def examples(name):
    """The (input, answer) pairs of the docstring of a task, as symbols."""
    text = TASKS[name].__doc__.split("Examples:\n")[1].split("\n\n")[0]
    written = WRITTEN.get(name, "0123456789")
    pairs = []
    for line in text.splitlines():
        found = re.fullmatch(r" *(\S+) -> (\d+)( +\(.*\))?", line)
        assert found, f"not an example: {line!r}"
        inputs = [written.index(symbol) for symbol in found[1]]
        pairs.append((inputs, [int(symbol) for symbol in found[2]]))
    return pairs


@pytest.mark.parametrize("name", TASKS)
def test_sampled_rows_agree_with_plain_python(name):
    task, batch = TASKS[name](), big_batch(name)
    for index, length in enumerate(LENGTHS):
        inputs, targets, score_mask = row(task, batch, index, length)
        assert all(0 <= symbol < task.input_vocab for symbol in inputs)
        assert all(0 <= symbol < task.output_vocab for symbol in targets)
        assert targets == ORACLES[name](inputs), (length, inputs)
        assert score_mask == scored(name, targets), (length, inputs)


@pytest.mark.parametrize("name", TASKS)
def test_documented_examples_are_right_and_are_drawn(name):
    task = TASKS[name]()
    assert examples(name)
    for inputs, answer in examples(name):
        assert ORACLES[name](inputs) == answer, inputs
        assert max(inputs) < task.input_vocab
        assert max(answer) < task.output_vocab
        assert task.input_length(len(inputs)) == len(inputs)
        assert task.output_length(len(inputs)) == len(answer)
    # The shortest one turns up among the rows of its length.
    inputs, answer = min(examples(name), key=lambda pair: len(pair[0]))
    assert len(inputs) <= 7
    batch = draw(name, 500, 1, np.full(len(LENGTHS), len(inputs)))
    rows = [row(task, batch, index, len(inputs)) for index in range(len(LENGTHS))]
    found = [targets for drawn, targets, _ in rows if drawn == inputs]
    assert found, f"{inputs} is not drawn in {len(LENGTHS)} rows"
    assert found == [answer] * len(found)
