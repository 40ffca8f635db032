"""Cycle Navigation: where does a walk on a circle end?"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class CycleNavigation(Task):
    """Finds where a walk on a circle ends, from the moves.

    The input is a uniform string of moves: 0 steps back, 1 stays, 2 steps forward. The
    walk starts at state 0; the answer is its last state, one symbol.

    Attributes:
        cycle_length: number of states on the circle; 5 as published.

    Examples:
        20100 -> 3  (forward, back, stay, back, back: -2 modulo 5)
        2220 -> 2   (three forward, one back)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.1.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/regular/cycle_navigation.py.

    Departures:
        None.
    """

    title = "Cycle Navigation"
    summary = "the last state of a walk on a circle of 5 states"
    level = Level.REGULAR

    cycle_length: int = 5

    def __post_init__(self):
        draws.check_alphabet("cycle_length", self.cycle_length)

    @property
    def input_vocab(self) -> int:
        """The moves: back, stay, forward."""
        return 3

    @property
    def output_vocab(self) -> int:
        """The states."""
        return self.cycle_length

    def output_length(self, length):
        """One symbol."""
        return 1

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        moves = draws.symbols(rng, max_length, self.input_vocab)
        steps = jnp.where(jnp.arange(max_length) < length, moves - 1, 0)
        return Example(moves, jnp.atleast_1d(jnp.sum(steps) % self.cycle_length))
