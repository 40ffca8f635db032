"""Binary Multiplication: the product of two binary numbers."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import binary
from ropejax.tasks.base import Example, Level, Task
from ropejax.tasks.termination import END, terminate
from ropejax.typing import Rng

_TIMES = 2


@dataclasses.dataclass(frozen=True)
class BinaryMultiplication(Task):
    """Multiplies two binary numbers, least significant bits first.

    The input is a number, the sign 2, and another number, both positive and little-
    endian, with a uniform split of the length and uniform values. The answer is the
    product's binary digits, the end symbol 2, and zeros up to length symbols; accuracy
    ignores those zeros. At lengths 1 and 2 the input is one uniform number, zero
    included, and the answer, as published, is that of the product 0 in length - 1
    digits: 2 and 02.

    Examples:
        001201101 -> 000110120     (4 * 22 = 88)
        10012000001 -> 00000100120  (9 * 32 = 288)
        1 -> 2                     (length 1)
        11 -> 02                   (length 2)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.3.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/cs/binary_multiplication.py.

    Departures:
        At lengths 1 and 2 the public code never draws the largest number (1 and 3), an
        exclusive bound taken for an inclusive one; here all numbers are equally likely.
    """

    title = "Binary Multiplication"
    summary = "the product of two little-endian binary numbers"
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
        """Room for the product and the end symbol."""
        return length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        inputs, first, second = binary.draw_pair(rng, length, max_length, _TIMES)
        product = binary.multiply(first, second)
        # Without a pair the product is zero, and is written in length - 1 digits.
        count = jnp.where(length >= 3, binary.num_digits(product), length - 1)
        targets, score_mask = terminate(product[:max_length], count)
        return Example(inputs, targets, score_mask)
