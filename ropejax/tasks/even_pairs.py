"""Even Pairs: is the number of unequal neighbours even?"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class EvenPairs(Task):
    """Tells whether a binary string has an even number of 01 and 10 pairs.

    The input is a uniform string of 0 and 1; the answer is one symbol, 0 if the number
    of positions at which the symbol changes is even, 1 if it is odd.

    Examples:
        001110 -> 0   (one 01, one 10)
        0101001 -> 1  (three 01, two 10)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.1.
        google-deepmind/neural_networks_chomsky_hierarchy, tasks/regular/even_pairs.py.

    Departures:
        None.
    """

    title = "Even Pairs"
    summary = "is the number of 01 and 10 pairs even?"
    level = Level.REGULAR

    @property
    def input_vocab(self) -> int:
        """0 and 1."""
        return 2

    @property
    def output_vocab(self) -> int:
        """0 for even, 1 for odd."""
        return 2

    def output_length(self, length):
        """One symbol."""
        return 1

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        string = draws.symbols(rng, max_length, self.input_vocab)
        # Each change flips the symbol: after an even number it is the first one again.
        is_odd = string[0] ^ string[length - 1]
        return Example(string, jnp.atleast_1d(is_odd))
