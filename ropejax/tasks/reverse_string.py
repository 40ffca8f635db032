"""Reverse String: the input read backwards."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class ReverseString(Task):
    """Reverses a string: s_1 ... s_n becomes s_n ... s_1.

    The input is a uniform string; the answer has its length.

    Attributes:
        vocab_size: number of symbols; 2 as published.

    Examples:
        011010 -> 010110
        110 -> 011

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.2.
        google-deepmind/neural_networks_chomsky_hierarchy, tasks/dcf/reverse_string.py.

    Departures:
        None.
    """

    title = "Reverse String"
    summary = "the string backwards"
    level = Level.DETERMINISTIC_CONTEXT_FREE

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
        place = jnp.arange(max_length)
        return Example(string, string[jnp.maximum(length - 1 - place, 0)])
