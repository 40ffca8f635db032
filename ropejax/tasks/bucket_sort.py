"""Bucket Sort: the symbols in increasing order."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class BucketSort(Task):
    """Sorts a string over a small alphabet, smallest symbols first.

    The input is a uniform string; the answer has its length.

    Attributes:
        vocab_size: number of symbols; 5 as published.

    Examples:
        10204112 -> 00111224
        1110001 -> 0001111
        310 -> 013

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.3.
        google-deepmind/neural_networks_chomsky_hierarchy, tasks/cs/bucket_sort.py.

    Departures:
        None.
    """

    title = "Bucket Sort"
    summary = "the string sorted, over an alphabet of 5 symbols"
    level = Level.CONTEXT_SENSITIVE

    vocab_size: int = 5

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
        is_input = jnp.arange(max_length) < length
        return Example(string, jnp.sort(jnp.where(is_input, string, self.vocab_size)))
