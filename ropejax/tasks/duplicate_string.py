"""Duplicate String: the input twice."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class DuplicateString(Task):
    """Repeats a string: s_1 ... s_n becomes s_1 ... s_n s_1 ... s_n.

    The input is a uniform string; the answer is twice as long, without a separator.

    Attributes:
        vocab_size: number of symbols; 2 as published.

    Examples:
        101 -> 101101
        0110 -> 01100110

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.3.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/cs/duplicate_string.py.

    Departures:
        None.
    """

    title = "Duplicate String"
    summary = "the string twice"
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
        """Twice as long as the input."""
        return 2 * length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        string = draws.symbols(rng, max_length, self.vocab_size)
        place = jnp.arange(2 * max_length)
        index = jnp.where(place < length, place, place - length)
        return Example(string, string[jnp.minimum(index, max_length - 1)])
