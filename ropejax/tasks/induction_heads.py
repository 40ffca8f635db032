"""Induction: what followed the trigger the last time?"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class InductionHeads(Task):
    """Answers the symbol that followed the trigger.

    The input is a uniform string in which the trigger, the symbol `vocab_size`, stands
    once at a random place with a symbol behind it, and once more at the end. Below 3
    symbols, inputs of 3 are drawn.

    Attributes:
        vocab_size: number of symbols, the trigger not counted.

    Examples:
        2145G03G -> 0    (G the trigger)

    References:
        Gu and Dao 2023, arXiv 2312.00752, section 3.1 (induction heads), after Olsson
        et al. 2022, arXiv 2209.11895.

    Departures:
        None.
    """

    title = "Induction Heads"
    summary = "the symbol that followed the trigger before"
    group = "recall"

    vocab_size: int = 16

    def __post_init__(self):
        draws.check_alphabet("vocab_size", self.vocab_size)

    @property
    def input_vocab(self) -> int:
        """The symbols and the trigger."""
        return self.vocab_size + 1

    @property
    def output_vocab(self) -> int:
        """The symbols."""
        return self.vocab_size

    def input_length(self, length):
        """At least 3."""
        return max(length, 3) if isinstance(length, int) else jnp.maximum(length, 3)

    def output_length(self, length):
        """One symbol."""
        return 1 + 0 * length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        string_rng, place_rng = jax.random.split(rng)
        count = self.input_length(length)
        string = draws.symbols(
            string_rng, self.input_length(max_length), self.vocab_size
        )
        at = draws.below(draws.words(place_rng, 1)[0], count - 2)
        place = jnp.arange(string.shape[0])
        is_trigger = (place == at) | (place == count - 1)
        inputs = jnp.where(is_trigger, self.vocab_size, string)
        return Example(inputs, string[at + 1][None])
