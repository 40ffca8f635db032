"""Mode: the symbol that is there most often."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Mode(Task):
    """Answers the most frequent symbol of a string, of which there is just one.

    The input is a uniform string. Where several symbols are the most frequent, one of
    them, uniform among those, takes the place of a uniform other symbol, and so is one
    ahead. The answer is uniform at every length.

    Attributes:
        vocab_size: number of symbols.

    Examples:
        3013 -> 3
        2 -> 2

    References:
        Zhou et al. 2023, arXiv 2310.16028 (RASP-L), the mode task.

    Departures:
        How ties are avoided is a rule of this task's own, as is the size of the
        alphabet.
    """

    title = "Mode"
    summary = "the most frequent symbol"
    group = "counting"

    vocab_size: int = 5

    def __post_init__(self):
        draws.check_alphabet("vocab_size", self.vocab_size)

    @property
    def input_vocab(self) -> int:
        """The symbols."""
        return self.vocab_size

    @property
    def output_vocab(self) -> int:
        """The symbols."""
        return self.vocab_size

    def output_length(self, length):
        """One symbol."""
        return 1 + 0 * length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        string_rng, winner_rng, place_rng = jax.random.split(rng, 3)
        string = draws.symbols(string_rng, max_length, self.vocab_size)
        place = jnp.arange(max_length)
        is_input = place < length
        counts = jnp.zeros(self.vocab_size, jnp.int32).at[string].add(is_input)
        leads = counts == counts.max()
        winner = _any_of(leads, draws.words(winner_rng, self.vocab_size))
        others = is_input & (string != winner)
        given_up = _any_of(others, draws.words(place_rng, max_length))
        is_tie = jnp.sum(leads) > 1
        string = jnp.where(is_tie & (place == given_up), winner, string)
        return Example(string, winner[None])


def _any_of(among: Array, words: Array) -> Int[Array, ""]:
    """The index of one of the entries that are True, each equally likely."""
    # A one in the last bit keeps every word of theirs above that of the others.
    return jnp.argmax(jnp.where(among, words | 1, 0)).astype(jnp.int32)
