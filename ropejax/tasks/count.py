"""Count: all numbers from one to another."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Count(Task):
    """Counts from a number up to another one: a length is how many are counted.

    Every number is a symbol. The input is the first and the last one, the first uniform
    among those that leave room.

    Attributes:
        num_numbers: how many there are, 0 .. num_numbers - 1; no answer is longer.

    Examples:
        5 9 -> 56789
        4 4 -> 4

    References:
        Zhou et al. 2023, arXiv 2310.16028 (RASP-L), the count task.

    Departures:
        The number of symbols is this task's own.
    """

    title = "Count"
    summary = "all numbers from one to another; a length is how many"
    group = "counting"

    num_numbers: int = 1000

    def __post_init__(self):
        draws.check_alphabet("num_numbers", self.num_numbers)

    @property
    def input_vocab(self) -> int:
        """The numbers."""
        return self.num_numbers

    @property
    def output_vocab(self) -> int:
        """The numbers."""
        return self.num_numbers

    def input_length(self, length):
        """The first and the last number."""
        return 2 + 0 * length

    def output_length(self, length):
        """All that are counted."""
        return length

    def check_length(self, length: int) -> None:
        """Raises ValueError also where there are too few numbers."""
        super().check_length(length)
        if length > self.num_numbers:
            raise ValueError(
                f"{self.title} has no example of length {length}: there are "
                f"num_numbers={self.num_numbers} in all."
            )

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        room = self.num_numbers - length + 1
        first = draws.below(draws.words(rng, 1)[0], room)
        ends = jnp.stack([first, first + length - 1])
        return Example(ends, first + jnp.arange(max_length))
