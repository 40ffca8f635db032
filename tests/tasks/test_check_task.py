"""`check_task` lets tasks through that keep their promises, and names faults."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from ropejax.tasks import ALL_TASKS, Example, Task, draws
from ropejax.testing import check_task

OPTIONS = {
    "selective_copy": {},  # inputs of another length
    "next_symbol": {},  # answers in place
    "addition": {"terminate": True},  # outputs that do not count
}


@pytest.mark.parametrize("name", OPTIONS)
def test_tasks_of_the_catalogue_pass(name):
    check_task(ALL_TASKS[name](**OPTIONS[name]), max_length=3, rows=12)


@dataclasses.dataclass(frozen=True)
class Last(Task):
    """The last symbol, as a user would write it."""

    title = "Last"
    summary = "the last symbol"
    fault: str = ""

    @property
    def input_vocab(self):
        return 4 if self.fault != "alphabet" else 3

    @property
    def output_vocab(self):
        return 4 if self.fault != "targets" else 3

    def output_length(self, length):
        return 1

    def sample_row(self, rng, length, max_length):
        if self.fault == "padding":
            x = jax.random.randint(rng, (max_length,), 0, 4)[::-1]
        elif self.fault == "key":
            x = jnp.arange(max_length) % 4
        else:
            x = draws.symbols(rng, max_length, 4)
        answer = x[length - 1] if self.fault != "answer" else x[length - 2]
        score = jnp.zeros(1, bool) if self.fault == "score" else None
        return Example(x, answer[None], score)


def test_a_task_of_ones_own_passes_with_its_oracle():
    check_task(Last(), max_length=4, oracle=lambda x: x[-1:])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("alphabet", r"an input symbol is not in 0 \.\. 2"),
        ("targets", r"a target is not in 0 \.\. 2"),
        ("padding", r"a row changes with the padding \(tokens\)"),
        ("key", "another key gives the same batch"),
        ("answer", r"length \d, \[.*\]: the outputs are \[.\], the oracle says \[.\]"),
        ("score", "nothing is scored"),
    ],
)
def test_what_is_broken_is_named(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_task(Last(fault), max_length=4, rows=16, oracle=lambda x: x[-1:])
