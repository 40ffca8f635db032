"""Missing Duplicate: the symbol that one of two copies lacks."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng

_MISSING, _PADDING = 2, 3


@dataclasses.dataclass(frozen=True)
class MissingDuplicateString(Task):
    """Finds the symbol that is missing from a string written twice.

    The input is a uniform binary string of floor(length / 2) symbols, twice, with one
    of the symbols, uniformly chosen, replaced by 2; at an odd length a 3 follows. The
    answer is the replaced symbol. At length 1 there is no string: as published, both
    input and answer are 1.

    Examples:
        01100210 -> 1  (the string is 0110)
        1011213 -> 0   (the string is 101)
        1 -> 1         (length 1)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.3.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/cs/missing_duplicate_string.py.

    Departures:
        None.
    """

    title = "Missing Duplicate"
    summary = "the symbol left out of a string written twice"
    level = Level.CONTEXT_SENSITIVE

    @property
    def input_vocab(self) -> int:
        """0, 1, the missing symbol's mark, and the padding of odd lengths."""
        return 4

    @property
    def output_vocab(self) -> int:
        """0 and 1."""
        return 2

    def output_length(self, length):
        """One symbol."""
        return 1

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        string_rng, missing_rng = jax.random.split(rng)
        string = draws.symbols(string_rng, max_length, 2)
        half = length // 2
        place = jnp.arange(max_length)
        twice = string[jnp.where(place < half, place, jnp.maximum(place - half, 0))]
        word = draws.words(missing_rng, 1)[0]
        missing = draws.below(word, jnp.maximum(2 * half, 1))
        inputs = jnp.where(place == missing, _MISSING, twice)
        inputs = jnp.where(place == 2 * half, _PADDING, inputs)
        answer = jnp.where(length == 1, 1, twice[missing])
        return Example(jnp.where(length == 1, 1, inputs), jnp.atleast_1d(answer))
