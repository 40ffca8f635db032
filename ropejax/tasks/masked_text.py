"""Masked Text: which symbols were there, where some of a text were hidden."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example
from ropejax.tasks.scattered import chosen_places
from ropejax.tasks.text import TextTask
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class MaskedText(TextTask):
    """Restores the symbols of a text at some places: masked language modelling.

    Of n symbols max(1, round(rate n)) are asked for, at places any choice of which is
    equally likely. What the model sees there is a mask with probability `masked`, a
    uniform symbol with probability `random`, and else the symbol itself. Answers are
    read, and scored, at these places alone.

    Attributes:
        path: a file whose bytes, or `.npy` file whose numbers, are the text; the
            made-up language if empty.
        held_out: share of the file, at its end, that is for evaluation.
        part: which part is read: training or test.
        num_letters: of the language: see `ropejax.tasks.language.Language`.
        num_words: of the language.
        num_classes: of the language.
        repeat: of the language.
        language: its number.
        vocab_size: symbols of a `.npy` file; None: up to its largest number.
        rate: share of symbols that are asked for, in whole thousandths.
        masked: share of those that are masked.
        random: share of those that are replaced.

    Examples:
        the ca_ -> ......t    (_ is the mask; all else is not asked for)

    References:
        Devlin et al. 2018 (BERT), arXiv 1810.04805, section 3.1, and the published code
        for the number of places; Su 2023, spaces.ac.cn/archives/9444, which tests
        positions on masked text of 512 symbols after training on 64.

    Departures:
        Symbols are letters or bytes, not pieces of words. A half is rounded up, and not
        to the even number.
    """

    title = "Masked Text"
    summary = "hidden symbols of a text, as BERT is trained"

    rate: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {self.rate}.")
        if abs(round(self.rate * 1000) - self.rate * 1000) > 1e-6:
            raise ValueError(
                f"rate={self.rate} must be a number of thousandths, so that places are "
                f"counted exactly; take {max(round(self.rate, 3), 0.001)}."
            )
        if not (min(self.masked, self.random) >= 0 and self.masked + self.random <= 1):
            raise ValueError(
                f"masked={self.masked} and random={self.random} are shares of one: "
                "none below 0, and together at most 1."
            )

    @property
    def input_vocab(self) -> int:
        """The text's symbols and the mask."""
        return self.text_symbols + 1

    @property
    def output_vocab(self) -> int:
        """The text's symbols."""
        return self.text_symbols

    @property
    def mask(self) -> int:
        """The symbol that hides another."""
        return self.text_symbols

    def num_asked(self, length):
        """Number of places that are asked for, among `length` (int or traced)."""
        # In whole numbers, so that no rounding depends on where it is done.
        count = (round(self.rate * 1000) * length + 500) // 1000
        return max(count, 1) if isinstance(count, int) else jnp.maximum(count, 1)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        text_rng, place_rng, how_rng, other_rng = jax.random.split(rng, 4)
        text = self.text(text_rng, length, max_length)
        words = draws.words(place_rng, max_length)
        asked = chosen_places(words, length, self.num_asked(length))
        # Of 2^16 equally likely ways to show a symbol, the first are masks.
        how = draws.below(draws.words(how_rng, max_length), 2**16)
        masked = round(self.masked * 2**16)
        replaced = masked + round(self.random * 2**16)
        shown = jnp.where(
            how < replaced, draws.symbols(other_rng, max_length, self.mask), text
        )
        shown = jnp.where(how < masked, self.mask, shown)
        return Example(jnp.where(asked, shown, text), text, asked)
