"""Selective Copy: the symbols that stand among blanks, without the blanks."""

import dataclasses

import jax
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.copy_string import check_at_least
from ropejax.tasks.scattered import chosen_places, spread
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class SelectiveCopy(Task):
    """Copies what is not blank, in its order.

    The input of n symbols holds ceil(n / spacing) uniform symbols at random places, and
    the blank, the symbol `vocab_size`, at all others.

    Attributes:
        vocab_size: number of symbols to copy, the blank not counted.
        spacing: one symbol in so many is copied.

    Examples:
        0818888888888888 -> 01
        3 -> 3

    References:
        Gu and Dao 2023, arXiv 2312.00752, section 3.1, after Arjovsky et al. 2016,
        arXiv 1511.06464.

    Departures:
        The number of copied symbols grows with the input; in the paper it is 16.
    """

    title = "Selective Copy"
    summary = "the symbols that stand among blanks"
    group = "copying"

    vocab_size: int = 8
    spacing: int = 8

    def __post_init__(self):
        draws.check_alphabet("vocab_size", self.vocab_size)
        check_at_least("spacing", self.spacing, 1)

    @property
    def input_vocab(self) -> int:
        """The symbols and the blank."""
        return self.vocab_size + 1

    @property
    def output_vocab(self) -> int:
        """The symbols."""
        return self.vocab_size

    def output_length(self, length):
        """One in `spacing` symbols, rounded up."""
        return (length + self.spacing - 1) // self.spacing

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        symbols_rng, places_rng = jax.random.split(rng)
        count = self.output_length(length)
        room = self.output_length(max_length)
        symbols = draws.symbols(symbols_rng, room, self.vocab_size)
        words = draws.words(places_rng, max_length)
        places = chosen_places(words, length, count)
        return Example(spread(symbols, places, self.vocab_size), symbols)
