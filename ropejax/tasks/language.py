"""A small made-up language: text without end, drawn on the device from a key.

Words are spelled with a few letters and end with a space. Each belongs to a class, and
a phrase has one word of every class, in their order; within a class, the word of rank r
is drawn in proportion to 1 / r. Many phrases repeat an earlier phrase of the same text,
any distance back. So a missing letter can be told from the letters next to it
(spelling), from the words around it (grammar), and best from where the phrase was said
before (memory), which is what attention over positions is for.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ropejax.settings import Settings
from ropejax.tasks import draws
from ropejax.tasks.copy_string import check_at_least
from ropejax.typing import Rng

SPACE = 0
LONGEST_WORD = 5
"""Letters of the longest words; the shortest have one."""


@dataclasses.dataclass(frozen=True)
class Language(Settings):
    """A language, made from its number: the same number is the same language.

    Attributes:
        num_letters: size of the alphabet; the space, symbol 0, is not counted.
        num_words: words a class.
        num_classes: classes of words, and so words a phrase.
        repeat: probability that a phrase repeats an earlier one, uniform among those.
        number: which language: determines how words are spelled.

    Raises:
        ValueError: if a number is out of range.
    """

    num_letters: int = 15
    num_words: int = 16
    num_classes: int = 4
    repeat: float = 0.5
    number: int = 0

    def __post_init__(self):
        draws.check_alphabet("num_letters", self.num_letters, draws.MAX_BOUND - 1)
        check_at_least("num_words", self.num_words, 1)
        check_at_least("num_classes", self.num_classes, 1)
        check_at_least("language", self.number, 0)
        if not 0 <= self.repeat < 1:
            raise ValueError(
                f"repeat must lie in 0 .. 1, 1 excluded, got {self.repeat}."
            )

    def words(self) -> tuple[Int[Array, "W 6"], Int[Array, " W"]]:
        """Returns all words, class by class, and their lengths with the space.

        Returns:
            Symbols `[classes * words, 6]`, spaces behind a word's letters; lengths.
        """
        count = self.num_classes * self.num_words
        lengths_rng, letters_rng = jax.random.split(jax.random.key(self.number))
        lengths = 1 + draws.symbols(lengths_rng, count, LONGEST_WORD)
        letters = draws.symbols(letters_rng, count * LONGEST_WORD, self.num_letters)
        letters = jnp.pad(1 + letters.reshape(count, LONGEST_WORD), ((0, 0), (0, 1)))
        spelled = jnp.arange(LONGEST_WORD + 1) < lengths[:, None]
        return jnp.where(spelled, letters, SPACE), lengths + 1

    def text(self, rng: Rng, max_length: int) -> Int[Array, " {max_length}"]:
        """Draws a text; a smaller `max_length` gives the beginning of the same one.

        Args:
            rng: PRNG key.
            max_length: symbols (static).
        """
        word_rng, repeat_rng, source_rng = jax.random.split(rng, 3)
        # No word is shorter than a letter and a space.
        room = -(-max_length // (2 * self.num_classes))
        phrase = jnp.arange(room)
        repeats = draws.words(repeat_rng, room) < _share(self.repeat)
        earlier = draws.below(draws.words(source_rng, room), jnp.maximum(phrase, 1))
        source = jnp.where(repeats & (phrase > 0), earlier, phrase)
        for _ in range(math.ceil(math.log2(max(room, 2)))):
            source = source[source]  # a phrase may repeat one that repeats another
        ranks = self._ranks(draws.words(word_rng, room * self.num_classes))
        ranks = ranks.reshape(room, self.num_classes)[source]
        word = (ranks + self.num_words * jnp.arange(self.num_classes)).reshape(-1)
        spelling, lengths = self.words()
        ends = jnp.cumsum(lengths[word])
        place = jnp.arange(max_length)
        at = jnp.searchsorted(ends, place, side="right")
        return spelling[word[at], place - ends[at] + lengths[word[at]]]

    def _ranks(self, words: Array) -> Int[Array, " X"]:
        """Maps uniform words of 32 bits to ranks from 0, by Zipf's law."""
        shares = 1 / np.arange(1, self.num_words + 1)
        bounds = [_share(share) for share in np.cumsum(shares / shares.sum())[:-1]]
        bounds = jnp.asarray(bounds, jnp.uint32).reshape(-1)
        return jnp.searchsorted(bounds, words, side="right").astype(jnp.int32)


def _share(share: float) -> np.uint32:
    """The word of 32 bits below which a uniform one lies with this probability."""
    return np.uint32(min(round(share * 2**32), 2**32 - 1))
