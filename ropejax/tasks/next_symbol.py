"""Next Symbol: what comes next in a text, asked for after each symbol."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks.base import Example
from ropejax.tasks.text import TextTask
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class NextSymbol(TextTask):
    """Predicts each symbol of a text from those before it: language modelling.

    The input is n symbols, the answer at each of them the one that follows; models must
    be causal. The perplexity of a score, e to its mean loss, says how well a length is
    predicted.

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
        last: only so many symbols at the end of each row count, all of them in shorter
            rows; None counts all. At test, length L and `last=S` are what windows of L
            that slide by S score: each symbol has at least L - S before it.

    Examples:
        the c -> he ca

    References:
        Press et al. 2021 (ALiBi), arXiv 2108.12409, section 2: perplexity at lengths
        beyond those trained on, of whole windows and of sliding ones.

    Departures:
        Windows are drawn at random from the text, not taken one after the other.
    """

    last: int | None = None

    title = "Next Symbol"
    summary = "what follows each symbol of a text; causal models"
    left_to_right = True

    def __post_init__(self):
        super().__post_init__()
        if self.last is not None and self.last < 1:
            raise ValueError(
                f"last must be at least 1 symbol that counts, got {self.last}; None "
                "counts all."
            )

    @property
    def input_vocab(self) -> int:
        """The text's symbols."""
        return self.text_symbols

    @property
    def num_symbols(self) -> int:
        """The text's symbols: all that a tokenizer knows, without the unused one."""
        of_numbers = self.path.endswith(".npy")
        return self.text_symbols if of_numbers else super().num_symbols

    @property
    def output_vocab(self) -> int:
        """The text's symbols."""
        return self.text_symbols

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        text = self.text(rng, length + 1, max_length + 1)
        asked = None
        if self.last is not None:
            asked = jnp.arange(max_length) >= length - self.last
        return Example(text[:-1], text[1:], asked)
