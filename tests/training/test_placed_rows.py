"""What a scheme refuses for its symbols is refused where symbols are traced, too."""

import dataclasses

import pytest

from ropejax.evaluation import evaluate
from ropejax.positions import Abacus, Coupled, CoupledLevels, Randomized
from ropejax.tasks import MORE_TASKS
from ropejax.training.placed_rows import check_rows
from tests.training.tiny import tiny_recipe

pytestmark = pytest.mark.fast

SUM = MORE_TASKS["addition"]()
OF_THREE = MORE_TASKS["addition"](operands=3)
BITS = tiny_recipe("binary_addition")
LEVELS = CoupledLevels(separators=(10,), placeholder=OF_THREE.placeholder)
LAST_ALONE = dataclasses.replace(LEVELS, running_sums=False)
NARROW = Coupled(max_position=6, separators=(2,))


@pytest.mark.parametrize(
    ("scheme", "task", "message"),
    [
        # Four digits and a carry, and the separator one further.
        (Coupled(max_position=5), SUM, "coupled positions: An addition is 5 columns"),
        (Coupled(max_position=6), SUM, None),
        (LEVELS, OF_THREE, "adds 3 numbers and has .* set running_sums=False"),
        (LAST_ALONE, OF_THREE, None),
        (dataclasses.replace(LAST_ALONE, max_operands=3), OF_THREE, "has 3 operands"),
        (Abacus(max_offset=0), SUM, None),
        (Randomized(max_position=64), SUM, None),
    ],
)
def test_rows_that_a_scheme_refuses_are_found_before_they_are_traced(
    scheme, task, message
):
    if message is None:
        check_rows(scheme, task, 4, what="rows")
        return
    with pytest.raises(ValueError, match=f"^rows, at .*{message}"):
        check_rows(scheme, task, 4, what="rows")


def test_recipes_and_evaluations_refuse_them():
    """With RoPE, which has no table to end, they would be trained out of range."""
    with pytest.raises(ValueError, match=r"^inputs of 6 symbols, at .* max_position"):
        dataclasses.replace(BITS, positions=NARROW)
    with pytest.raises(ValueError, match=r"^test inputs of 9 symbols, at .* columns"):
        evaluate(BITS.model, {}, BITS.task, NARROW, [2, 9], samples=2, draws=1)
