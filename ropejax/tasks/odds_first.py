"""Odds First: the symbols at odd places, then those at even places."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class OddsFirst(Task):
    """Sorts by the parity of the place: s_1 s_3 s_5 ... s_2 s_4 s_6 ...

    The input is a uniform string; the answer has its length. Places count from 1, so
    the first symbol comes first.

    Attributes:
        vocab_size: number of symbols; 2 as published.

    Examples:
        00110101 -> 01000111
        110 -> 101

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.3.
        google-deepmind/neural_networks_chomsky_hierarchy, tasks/cs/odds_first.py.

    Departures:
        The public code returns s_2 s_4 ... s_1 s_3 ..., against the paper and its own
        docstring; the paper's order is returned here.
    """

    title = "Odds First"
    summary = "the symbols at odd places, then those at even places"
    level = Level.CONTEXT_SENSITIVE

    vocab_size: int = 2

    def __post_init__(self):
        draws.check_alphabet("vocab_size", self.vocab_size)

    @property
    def input_vocab(self) -> int:
        """The string's symbols."""
        return self.vocab_size

    @property
    def output_vocab(self) -> int:
        """The string's symbols."""
        return self.vocab_size

    def output_length(self, length):
        """As long as the input."""
        return length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        string = draws.symbols(rng, max_length, self.vocab_size)
        num_odd = (length + 1) // 2
        place = jnp.arange(max_length)
        index = jnp.where(place < num_odd, 2 * place, 2 * (place - num_odd) + 1)
        return Example(string, string[jnp.minimum(index, max_length - 1)])
