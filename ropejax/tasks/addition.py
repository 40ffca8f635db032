"""Addition: numbers of any length in any base, written in the ways that papers try."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.encodings.choices import check_choice
from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.copy_string import check_at_least
from ropejax.tasks.scattered import chosen_places, spread
from ropejax.typing import Rng

ORDERS = ("reversed", "answer", "plain")
WIDTHS = ("equal", "zeros", "blanks")


@dataclasses.dataclass(frozen=True)
class Addition(Task):
    """Adds numbers of up to `length` digits: a length is digits, not symbols.

    The input is `a + b` (and further numbers); the answer has fixed room for the sum's
    digits, or ends with an end symbol. Symbols are the digits from 0 up, index hints if
    there are any, the symbol between running sums if they are asked for, plus, and
    blank if it is used; the placeholder stands for equals.

    Attributes:
        base: of the numbers.
        operands: how many numbers are added.
        order: "reversed", all numbers least significant digit first; "answer", the
            answer alone; "plain", none.
        widths: "equal", every number has `length` digits, the highest not zero unless
            it is the only one; "zeros", numbers have a uniform number of digits in
            1 .. `length`, one of them `length`, and are written with leading zeros;
            "blanks", the same with blanks in place of those zeros.
        terminate: write the answer without leading zeros, and an end symbol behind it;
            otherwise leading zeros fill the answer's room.
        num_hints: index hints (0 for none): before each digit, of the answer too,
            stands a symbol that names its significance. A row's hints are a contiguous
            run of these, from a random start on, the lowest for the lowest digit.
        blank_every: put one blank at a random place of the input for so many of its
            symbols (0 for none), so that places do not tell significance.
        running_sums: the answer is a scratchpad, the sums of the first 0, 1, 2, ...
            numbers up to the whole one, a symbol between them.

    Examples:
        12+25 -> 370    (21 + 52 = 73)
        99+10 -> 001    (99 + 1 = 100, the second number padded with a zero)

    References:
        Formats: reversed answers, Lee et al. 2023, arXiv 2307.03381; all reversed,
        McLeish et al. 2024 (Abacus), arXiv 2405.17399, section 3; zero padding, Cho et
        al. 2024 (position coupling), arXiv 2405.20671; index hints, Zhou et al. 2023,
        arXiv 2310.16028; random spaces, Shen et al. 2023, arXiv 2311.14737; running
        sums, Cho et al. 2024, arXiv 2410.15787.

    Departures:
        Blanks stand for a missing digit rather than nothing, so that every input of a
        length has as many symbols; there are no symbols around the sum. Beside running
        sums, numbers are not padded with zeros to the width of sums.
    """

    title = "Addition"
    summary = "the sum of numbers in any base and format; a length is digits"
    group = "arithmetic"

    base: int = 10
    operands: int = 2
    order: str = "reversed"
    widths: str = "equal"
    terminate: bool = False
    num_hints: int = 0
    blank_every: int = 0
    running_sums: bool = False

    def __post_init__(self):
        draws.check_alphabet("base", self.base, draws.LARGEST_MODULUS)
        check_at_least("operands", self.operands, 2)
        check_choice("order", self.order, ORDERS)
        check_choice("widths", self.widths, WIDTHS)
        check_at_least("num_hints", self.num_hints, 0)
        check_at_least("blank_every", self.blank_every, 0)
        if self.operands > draws.LARGEST_MODULUS:
            raise ValueError(
                f"operands must be at most {draws.LARGEST_MODULUS}, got "
                f"{self.operands}."
            )
        if self.running_sums and (self.terminate or self.num_hints):
            raise ValueError(
                "running_sums have a fixed width and no hints; set terminate=False and "
                "num_hints=0."
            )

    @property
    def plus(self) -> int:
        """The symbol between numbers."""
        return self.base + self.num_hints + self.running_sums

    @property
    def blank(self) -> int:
        """The symbol that means nothing."""
        return self.plus + 1

    @property
    def input_vocab(self) -> int:
        """Digits, hints, the step to the next sum, plus, and blank if it is used."""
        return self.plus + 1 + (self.widths == "blanks" or self.blank_every > 0)

    @property
    def output_vocab(self) -> int:
        """Digits, hints, and the end symbol, or the step to the next sum, if used."""
        return self.base + self.num_hints + (self.terminate or self.running_sums)

    @property
    def end_symbol(self) -> int | None:
        """The symbol after the answer, if answers end so."""
        return self.base + self.num_hints if self.terminate else None

    @property
    def step_symbol(self) -> int | None:
        """The symbol between running sums, in answers as it is read back."""
        return self.base if self.running_sums else None

    @property
    def symbols_a_digit(self) -> int:
        """2 with hints, else 1."""
        return 2 if self.num_hints else 1

    def sum_digits(self, length):
        """Most digits that a sum can have."""
        # operands (base^n - 1) < base^(n + e) for the least e with base^e >= operands.
        extra = next(e for e in range(1, 16) if self.base**e >= self.operands)
        return length + extra

    def input_length(self, length):
        """Symbols of all numbers, plus signs between them, and scattered blanks."""
        text = self._text_length(length)
        return text + (text // self.blank_every if self.blank_every else 0)

    def _text_length(self, length):
        return self.operands * (self.symbols_a_digit * length + 1) - 1

    def output_length(self, length):
        """Room for the sum, its hints, and the end symbol, or for all running sums."""
        if self.running_sums:
            return (self.operands + 1) * (self.sum_digits(length) + 1) - 1
        return self.symbols_a_digit * self.sum_digits(length) + self.terminate

    def check_length(self, length: int) -> None:
        """Raises ValueError also where there are too few hints, or rows too long."""
        super().check_length(length)
        longest = (draws.MAX_BOUND - 1) // (2 * self.operands * self.symbols_a_digit)
        if length > longest:
            raise ValueError(
                f"{self.title} has no example of length {length}: these numbers have "
                f"at most {longest} digits."
            )
        if self.num_hints and self.sum_digits(length) > self.num_hints:
            raise ValueError(
                f"sums of {length} digits need num_hints of at least "
                f"{self.sum_digits(length)}, got {self.num_hints}."
            )

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        numbers_rng, head_rng, blanks_rng = jax.random.split(rng, 3)
        which_word, hint_word = draws.words(head_rng, 2)
        rows = jnp.arange(self.operands)
        full = draws.below(which_word, self.operands)
        numbers, widths = jax.vmap(
            lambda row: self._number(
                jax.random.fold_in(numbers_rng, row), length, max_length, row == full
            )
        )(rows)
        hint = jnp.int32(self.base)
        if self.num_hints:
            room = self.num_hints - self.sum_digits(length) + 1
            hint = hint + draws.below(hint_word, room)
        text = self._text(numbers, widths, length, max_length, hint)
        if self.blank_every:
            words = draws.words(blanks_rng, self.input_length(max_length))
            text_length = self._text_length(length)
            places = chosen_places(words, self.input_length(length), text_length)
            text = spread(text, places, self.blank)
        room = self.sum_digits(max_length)
        if self.running_sums:
            columns = jnp.pad(jnp.cumsum(numbers, axis=0), ((1, 0), (0, 0)))
            sums = jax.vmap(lambda row: self._carried(row, room))(columns)
            return self._all_sums(text, sums, length)
        total = self._carried(jnp.sum(numbers, axis=0), room)
        return self._answered(text, total, length, hint)

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
        """The numbers as written, with plus between them."""
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
        return jnp.where(within == field, self.plus, text)

    def _carried(self, columns, room):
        """The digits of a sum of columns, least significant first."""
        columns = jnp.pad(columns, (0, room - columns.shape[0]))

        def step(carry, column):
            total = carry + column
            return total // self.base, total % self.base

        return jax.lax.scan(step, jnp.zeros((), columns.dtype), columns)[1]

    def _all_sums(self, text, sums, length):
        """All running sums as written, and what of them counts."""
        count = self.sum_digits(length)
        place = jnp.arange(sums.shape[0] * (sums.shape[1] + 1) - 1)
        row, at = place // (count + 1), place % (count + 1)
        significance = count - 1 - at if self.order == "plain" else at
        significance = jnp.clip(significance, 0, sums.shape[1] - 1)
        digits = sums[jnp.minimum(row, self.operands), significance]
        return Example(text, jnp.where(at == count, self.step_symbol, digits))

    def _answered(self, text, total, length, hint):
        """The answer as written, and what of it counts."""
        size = self.symbols_a_digit
        place = jnp.arange(size * total.shape[0] + self.terminate)
        count = self.sum_digits(length)
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
