"""Parity Check: is the number of ones even?"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class ParityCheck(Task):
    """Tells whether a binary string has an even number of ones.

    The input is a uniform string of 0 and 1; the answer is one symbol, the number of
    ones modulo 2.

    Examples:
        1010100 -> 1  (three ones)
        01111 -> 0    (four ones)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.1.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/regular/parity_check.py.

    Departures:
        None.
    """

    title = "Parity Check"
    summary = "is the number of ones even?"
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
        ones = jnp.sum(jnp.where(jnp.arange(max_length) < length, string, 0))
        return Example(string, jnp.atleast_1d(ones % 2))
