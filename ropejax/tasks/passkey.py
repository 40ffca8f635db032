"""Passkey: digits that a sentence somewhere in filler text tells, asked for at the end.

Symbols are numbers, and which of them are digits, filler or question is a setting, so
that a pretrained model may be asked in the words of its own tokenizer.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ropejax.settings import make_tuples
from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.copy_string import check_at_least
from ropejax.tasks.text import file_symbols
from ropejax.typing import Rng

FILLER = (10, 11, 12, 13)
_TEXTS = ("start", "filler", "before", "after", "question", "digits")


@dataclasses.dataclass(frozen=True)
class Passkey(Task):
    """Finds the number that a sentence tells in the middle of a text.

    The input is `start`, filler, the sentence `before`, digits, `after`, filler again,
    and the question; the answer is the digits. They are uniform and independent, so a
    number may begin with zeros. An input is as long as asked for by as much filler as
    that takes, which goes on behind the sentence where it stopped before. The
    question's last symbol is not counted with the input: it is the placeholder, at
    which a decoder reads it and answers the first digit (an encoder sees it once for
    each digit). Lengths that do not hold sentence and question have no example; traced
    ones are as long as those take, and a curriculum that would draw any is refused.

    Attributes:
        num_digits: digits of the number.
        depth: how far into the filler the sentence stands, from 0 (before all of it) to
            1 (behind it); None: anywhere, uniformly.
        filler: symbols that are repeated between the other parts.
        path: a file whose symbols are the filler instead, as the text tasks read them:
            the numbers in a `.npy` file, or bytes; from a random place on, and from its
            beginning again behind its end.
        start: symbols with which every input begins, such as one that begins a text,
            and the instruction to look for a number.
        before: symbols that announce the digits.
        after: symbols that end their sentence.
        question: symbols that ask for them; at least one.
        digits: symbols of the digits 0, 1, ..., all different; of a tokenizer, those
            that are digits one by one.
        vocab_size: how many symbols there are, those of a tokenizer, any of which may
            be answered; None: as many as the numbers above need.

    Examples:
        10 11 14 2 0 7 3 9 15 12 13 10 -> 20739

    References:
        Mohtashami and Jaggi 2023, arXiv 2305.16300, section 4.2 and figure 5 (passkey
        retrieval).

    Departures:
        The paper's numbers have up to five digits, run from 1 to 50,000 and are told
        twice in a sentence; here they have one length and are told once.
    """

    title = "Passkey"
    summary = "a number told somewhere in filler; symbols may be a tokenizer's"
    group = "recall"

    num_digits: int = 5
    depth: float | None = None
    filler: tuple[int, ...] = FILLER
    path: str = ""
    start: tuple[int, ...] = ()
    before: tuple[int, ...] = (14,)
    after: tuple[int, ...] = (15,)
    question: tuple[int, ...] = (16,)
    digits: tuple[int, ...] = tuple(range(10))
    vocab_size: int | None = None

    def __post_init__(self):
        make_tuples(self)
        check_at_least("num_digits", self.num_digits, 1)
        if self.depth is not None and not 0 <= self.depth <= 1:  # NaN is refused too
            raise ValueError(
                f"depth must lie in 0 .. 1, or be None for anywhere, got {self.depth}."
            )
        if self.path and self.filler != FILLER:
            raise ValueError(
                f"path={self.path!r} and filler={self.filler} are both the filler; "
                "leave one of them out."
            )
        for name in ("filler", "question"):
            if not getattr(self, name):
                raise ValueError(f"{name} must have at least one symbol, got none.")
        for name in _TEXTS:
            for symbol in getattr(self, name):
                if not 0 <= symbol < 2**31 - 1:
                    raise ValueError(
                        f"{name} has the symbol {symbol}; symbols are numbered from 0, "
                        "below 2**31 - 1."
                    )
        if len(set(self.digits)) < max(len(self.digits), 2):
            raise ValueError(
                "digits must be two or more symbols that all differ, got "
                f"{self.digits}."
            )
        draws.check_alphabet("number of digits", len(self.digits))
        largest = self._largest  # reads the file, and refuses one that is none
        if self.vocab_size is not None and self.vocab_size <= largest:
            raise ValueError(
                f"vocab_size={self.vocab_size} must be above the largest symbol, "
                f"{largest}."
            )

    @property
    def _content(self) -> np.ndarray:
        """The filler, once."""
        return file_symbols(self.path) if self.path else np.asarray(self.filler)

    @property
    def _largest(self) -> int:
        """The largest number of a symbol."""
        return max(self._largest_input, self.placeholder)

    @property
    def _largest_input(self) -> int:
        """The largest number of an input's symbols, the placeholder aside."""
        texts = self.start, self.before, self.after, self.question[:-1], self.digits
        return max(int(self._content.max()), *(max(text, default=0) for text in texts))

    @property
    def least_length(self) -> int:
        """Symbols of an input without any filler."""
        parts = self.start, self.before, self.after, self.question[:-1]
        return sum(map(len, parts)) + self.num_digits

    @property
    def input_vocab(self) -> int:
        """All of `vocab_size`; else up to the largest, the placeholder not counted."""
        return self._largest_input + 1 if self.vocab_size is None else self.vocab_size

    @property
    def output_vocab(self) -> int:
        """All of `vocab_size`; else up to the largest digit."""
        return max(self.digits) + 1 if self.vocab_size is None else self.vocab_size

    @property
    def placeholder(self) -> int:
        """The question's last symbol."""
        return self.question[-1]

    @property
    def num_symbols(self) -> int:
        """All of `vocab_size`; else up to the largest."""
        return self._largest + 1 if self.vocab_size is None else self.vocab_size

    def input_length(self, length):
        """As long as asked for, at least as long as sentence and question take."""
        least = self.least_length
        return max(length, least) if isinstance(length, int) else length.clip(least)

    def output_length(self, length):
        """The digits."""
        return self.num_digits + 0 * length

    def check_length(self, length: int) -> None:
        """Raises ValueError also where sentence and question do not fit."""
        super().check_length(length)
        if length < self.least_length:
            raise ValueError(
                f"{self.title} has no example of length {length}: sentence and "
                f"question take {self.least_length} symbols; ask for lengths from "
                f"{self.least_length} on, in training, buckets and evaluation, or for "
                "fewer digits."
            )

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        digits_rng, place_rng, filler_rng = jax.random.split(rng, 3)
        number = draws.symbols(digits_rng, self.num_digits, len(self.digits))
        number = _symbols(self.digits)[number]
        sentence = [_symbols(self.before), number, _symbols(self.after)]
        sentence = jnp.concatenate(sentence)
        size = self.input_length(length)
        fillers = size - self.least_length
        begin = len(self.start) + self._fillers_before(place_rng, fillers)
        place = jnp.arange(self.input_length(max_length))
        index = place - len(self.start)
        index = jnp.where(place < begin, index, index - sentence.shape[0])
        content = _symbols(self._content)
        if self.path:
            index += jax.random.randint(filler_rng, (), 0, content.size, jnp.int32)
        row = content[index % content.size]
        question = self.question[:-1]
        for text, at in (
            (_symbols(self.start), 0),
            (sentence, begin),
            (_symbols(question), size - len(question)),
        ):
            row = jax.lax.dynamic_update_slice(row, text, (at,))
        return Example(row, number)

    def _fillers_before(self, rng: Rng, fillers: Int[Array, ""]) -> Int[Array, ""]:
        """How much of the filler stands before the sentence."""
        if self.depth is None:
            return draws.below(draws.words(rng, 1)[0], fillers + 1)
        return jnp.round(self.depth * fillers).astype(jnp.int32)


def _symbols(text) -> Int[Array, " X"]:
    return jnp.asarray(text, jnp.int32)
