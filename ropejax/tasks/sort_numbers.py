"""Sort: numbers of several digits in increasing order."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.copy_string import check_at_least
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class SortNumbers(Task):
    """Sorts numbers of `width` digits each, in increasing order.

    The input is uniform numbers with leading zeros, most significant digit first,
    without separators; the answer is the same numbers sorted. An input of n symbols
    holds floor(n / width) numbers, at least one; what is over is not used, so that it
    is the next shorter one at other lengths.

    Attributes:
        base: number of digits, 2 or more.
        width: digits a number; `base ** width` is at most 2^30.

    Examples:
        523107 -> 073152    (52, 31, 07)
        40 -> 40

    References:
        Kazemnejad et al. 2023, arXiv 2305.19466, table 1 (sort: single and multi
        digit).

    Departures:
        Numbers are written with leading zeros, and without separators.
    """

    title = "Sort"
    summary = "numbers of several digits in increasing order"
    group = "sorting"

    base: int = 10
    width: int = 2

    def __post_init__(self):
        draws.check_alphabet("base", self.base)
        check_at_least("width", self.width, 1)
        if self.base**self.width > 2**30:
            raise ValueError(
                f"base ** width must be at most 2^30, got base={self.base}, "
                f"width={self.width}."
            )

    @property
    def input_vocab(self) -> int:
        """The digits."""
        return self.base

    @property
    def output_vocab(self) -> int:
        """The digits."""
        return self.base

    def input_length(self, length):
        """The digits of as many numbers as fit, of one at least."""
        return at_least(1, length // self.width) * self.width

    def output_length(self, length):
        """As long as the input."""
        return self.input_length(length)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        digits = draws.symbols(rng, self.input_length(max_length), self.base)
        weights = self.base ** jnp.arange(self.width - 1, -1, -1)
        numbers = jnp.sum(digits.reshape(-1, self.width) * weights, axis=1)
        count = self.input_length(length) // self.width
        place = jnp.arange(numbers.shape[0])
        ordered = jnp.sort(jnp.where(place < count, numbers, 2**30))
        answer = ordered[:, None] // weights % self.base
        return Example(digits, answer.reshape(-1))


def at_least(least: int, number):
    """Returns the larger of two numbers, the second of which may be traced."""
    return max(least, number) if isinstance(number, int) else jnp.maximum(least, number)
