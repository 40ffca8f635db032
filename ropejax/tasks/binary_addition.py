"""Binary Addition: the sum of two binary numbers."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import binary
from ropejax.tasks.base import Example, Level, Task
from ropejax.tasks.termination import END, terminate
from ropejax.typing import Rng

_PLUS = 2


@dataclasses.dataclass(frozen=True)
class BinaryAddition(Task):
    """Adds two binary numbers, least significant bits first.

    The input is a number, the sign 2, and another number, both positive and little-
    endian, with a uniform split of the length and uniform values. The answer is the
    sum's binary digits, the end symbol 2, and zeros up to length + 1 symbols; accuracy
    ignores those zeros. At lengths 1 and 2 the input is one uniform number, zero
    included, and the answer is that number.

    Examples:
        001201101 -> 0101120000    (4 + 22 = 26)
        10012000001 -> 100101200000  (9 + 32 = 41)
        10 -> 120                  (length 2: the number 1)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.3.
        google-deepmind/neural_networks_chomsky_hierarchy, tasks/cs/binary_addition.py.

    Departures:
        At lengths 1 and 2 the public code never draws the largest number (1 and 3), an
        exclusive bound taken for an inclusive one; here all numbers are equally likely.
    """

    title = "Binary Addition"
    summary = "the sum of two little-endian binary numbers"
    level = Level.CONTEXT_SENSITIVE

    @property
    def input_vocab(self) -> int:
        """0, 1 and the sign."""
        return 3

    @property
    def output_vocab(self) -> int:
        """0, 1 and the end symbol."""
        return END + 1

    @property
    def end_symbol(self) -> int:
        """The symbol after the answer."""
        return END

    def output_length(self, length):
        """Room for the sum and the end symbol."""
        return length + 1

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        inputs, first, second = binary.draw_pair(rng, length, max_length, _PLUS)
        total = binary.add(first, second)
        count = jnp.maximum(binary.num_digits(total), 1)  # zero is written 0
        targets, score_mask = terminate(total, count)
        return Example(inputs, targets, score_mask)
