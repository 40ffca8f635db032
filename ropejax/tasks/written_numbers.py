"""Tasks on numbers of any length in any base, written in the ways that papers try."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from ropejax.encodings.choices import check_choice
from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.copy_string import check_at_least
from ropejax.tasks.scattered import chosen_places, spread
from ropejax.typing import Rng

ORDERS = ("reversed", "answer", "plain")
WIDTHS = ("equal", "zeros", "blanks")


class WrittenNumbers(Task):
    """Numbers with a sign between them, and the digits of one number as the answer.

    What derives from it declares these attributes as its settings, and says what the
    answer is: `answer_digits`, and a `sample_row` around `drawn` and `answered`.
    Symbols are the digits from 0 up, index hints if there are any, one more where
    answers need it, the sign, and blank if it is used; the placeholder stands for
    equals.

    Attributes:
        base: of the numbers.
        operands: how many numbers there are.
        order: "reversed", all numbers least significant digit first; "answer", the
            answer alone; "plain", none.
        widths: how many digits numbers have, "equal", "zeros" or "blanks".
        terminate: whether the answer ends with an end symbol.
        num_hints: index hints; 0 for none.
        blank_every: symbols of the input for each blank among them; 0 for none.
    """

    base: int
    operands: int
    order: str
    widths: str
    terminate: bool
    num_hints: int
    blank_every: int
    group = "arithmetic"

    def check_writing(self) -> None:
        """Raises ValueError where the settings above mean nothing."""
        draws.check_alphabet("base", self.base, draws.LARGEST_MODULUS)
        check_choice("order", self.order, ORDERS)
        check_choice("widths", self.widths, WIDTHS)
        check_at_least("num_hints", self.num_hints, 0)
        check_at_least("blank_every", self.blank_every, 0)

    @property
    def sign(self) -> int:
        """The symbol between numbers."""
        return self.base + self.num_hints

    @property
    def blank(self) -> int:
        """The symbol that means nothing."""
        return self.sign + 1

    @property
    def input_vocab(self) -> int:
        """Digits, hints, the sign, and blank if it is used."""
        return self.sign + 1 + (self.widths == "blanks" or self.blank_every > 0)

    @property
    def output_vocab(self) -> int:
        """Digits, hints, and the end symbol if answers end so."""
        return self.base + self.num_hints + self.terminate

    @property
    def end_symbol(self) -> int | None:
        """The symbol after the answer, if answers end so."""
        return self.base + self.num_hints if self.terminate else None

    @property
    def symbols_a_digit(self) -> int:
        """2 with hints, else 1."""
        return 2 if self.num_hints else 1

    def answer_digits(self, length):
        """Most digits that the answer can have (int or traced)."""
        raise NotImplementedError(f"{type(self).__name__} must define answer_digits.")

    def input_length(self, length):
        """Symbols of all numbers, signs between them, and scattered blanks."""
        text = self._text_length(length)
        return text + (text // self.blank_every if self.blank_every else 0)

    def output_length(self, length):
        """Room for the answer, its hints, and the end symbol."""
        return self.symbols_a_digit * self.answer_digits(length) + self.terminate

    def check_length(self, length: int) -> None:
        """Raises ValueError also where there are too few hints, or rows too long."""
        super().check_length(length)
        longest = (draws.MAX_BOUND - 1) // (2 * self.operands * self.symbols_a_digit)
        if length > longest:
            raise ValueError(
                f"{self.title} has no example of length {length}: these numbers have "
                f"at most {longest} digits."
            )
        if self.num_hints and self.answer_digits(length) > self.num_hints:
            raise ValueError(
                f"answers to {length} digits need num_hints of at least "
                f"{self.answer_digits(length)}, got {self.num_hints}."
            )

    def drawn(
        self, rng: Rng, length: Int[Array, ""], max_length: int
    ) -> tuple[Int[Array, "N L"], Int[Array, " X"], Int[Array, ""]]:
        """Draws the numbers of a row.

        Args:
            rng: PRNG key of this row alone.
            length: digits, traced.
            max_length: the most digits that the arrays must hold (static).

        Returns:
            Digits of all numbers, least significant first, zeros behind them; the
            input as it is written; and the hint of the lowest digit.
        """
        numbers_rng, head_rng, blanks_rng = jax.random.split(rng, 3)
        which_word, hint_word = draws.words(head_rng, 2)
        rows = jnp.arange(self.operands)
        full = draws.below(which_word, self.operands)
        numbers, widths = jax.vmap(
            lambda row: self._number(
                jax.random.fold_in(numbers_rng, row), length, max_length, row == full
            )
        )(rows)
        hint = self._lowest_hint(hint_word, length)
        text = self._text(numbers, widths, length, max_length, hint)
        if self.blank_every:
            words = draws.words(blanks_rng, self.input_length(max_length))
            text_length = self._text_length(length)
            places = chosen_places(words, self.input_length(length), text_length)
            text = spread(text, places, self.blank)
        return numbers, text, hint

    def _lowest_hint(self, word: UInt32[Array, ""], length) -> Int[Array, ""]:
        hint = jnp.int32(self.base)
        if self.num_hints:
            room = self.num_hints - self.answer_digits(length) + 1
            hint = hint + draws.below(word, room)
        return hint

    def _text_length(self, length):
        return self.operands * (self.symbols_a_digit * length + 1) - 1

    def _number(self, rng, length, max_length, is_full):
        """One number's digits, least significant first, and how many there are."""
        digits_rng, head_rng = jax.random.split(rng)
        width_word, top_word = draws.words(head_rng, 2)
        width = length
        if self.widths != "equal":
            drawn = 1 + draws.below(width_word, length)
            width = jnp.where(is_full, length, drawn)
        digits = draws.symbols(digits_rng, max_length, self.base)
        place = jnp.arange(max_length)
        top = 1 + draws.below(top_word, self.base - 1)
        digits = jnp.where((place == width - 1) & (width > 1), top, digits)
        return jnp.where(place < width, digits, 0), width

    def _text(self, numbers, widths, length, max_length, hint):
        """The numbers as written, with the sign between them."""
        size = self.symbols_a_digit
        field = size * length
        place = jnp.arange(self._text_length(max_length))
        row = jnp.minimum(place // (field + 1), self.operands - 1)
        within = place - row * (field + 1)
        at = within // size
        significance = at if self.order == "reversed" else length - 1 - at
        significance = jnp.clip(significance, 0, max_length - 1)
        text = numbers[row, significance]
        if self.num_hints:
            text = jnp.where(within % 2 == 0, hint + significance, text)
        if self.widths == "blanks":
            text = jnp.where(significance < widths[row], text, self.blank)
        return jnp.where(within == field, self.sign, text)

    def answered(
        self,
        text: Int[Array, " X"],
        total: Int[Array, " D"],
        length: Int[Array, ""],
        hint: Int[Array, ""],
    ) -> Example:
        """Returns the row with its answer as it is written, and what of it counts.

        Args:
            text: the input, from `drawn`.
            total: the answer's digits, least significant first.
            length: see `drawn`.
            hint: see `drawn`.
        """
        size = self.symbols_a_digit
        place = jnp.arange(size * total.shape[0] + self.terminate)
        count = self.answer_digits(length)
        if self.terminate:
            used = jnp.where(total > 0, jnp.arange(total.shape[0]) + 1, 1)
            count = jnp.max(used)  # zero is written 0
        at = place // size
        significance = count - 1 - at if self.order == "plain" else at
        significance = jnp.clip(significance, 0, total.shape[0] - 1)
        answer = total[significance]
        if self.num_hints:
            answer = jnp.where(place % 2 == 0, hint + significance, answer)
        if not self.terminate:
            return Example(text, answer)
        end = size * count
        answer = jnp.where(place < end, answer, 0)
        answer = jnp.where(place == end, self.end_symbol, answer)
        return Example(text, answer, place <= end)


def carried(columns: Int[Array, " C"], room: int, base: int) -> Int[Array, " D"]:
    """Returns the digits of `sum_i columns_i base^i`, least significant first.

    Args:
        columns: numbers that are not negative.
        room: how many digits there are (static), enough for all.
        base: of the digits.
    """
    columns = jnp.pad(columns, (0, room - columns.shape[0]))

    def step(carry, column):
        total = carry + column
        return total // base, total % base

    return jax.lax.scan(step, jnp.zeros((), columns.dtype), columns)[1]
