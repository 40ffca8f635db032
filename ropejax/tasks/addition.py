"""Addition: the sum of numbers of any length in any base, in any way of writing."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example
from ropejax.tasks.copy_string import check_at_least
from ropejax.tasks.written_numbers import WrittenNumbers, carried
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Addition(WrittenNumbers):
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

    base: int = 10
    operands: int = 2
    order: str = "reversed"
    widths: str = "equal"
    terminate: bool = False
    num_hints: int = 0
    blank_every: int = 0
    running_sums: bool = False

    def __post_init__(self):
        self.check_writing()
        check_at_least("operands", self.operands, 2)
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
        return self.sign

    @property
    def sign(self) -> int:
        """Plus, behind the step to the next sum if there is one."""
        return super().sign + self.running_sums

    @property
    def output_vocab(self) -> int:
        """Digits, hints, and the end symbol, or the step to the next sum, if used."""
        return super().output_vocab + self.running_sums

    @property
    def step_symbol(self) -> int | None:
        """The symbol between running sums, in answers as it is read back."""
        return self.base if self.running_sums else None

    def answer_digits(self, length):
        """Most digits that a sum can have."""
        # operands (base^n - 1) < base^(n + e) for the least e with base^e >= operands.
        extra = next(e for e in range(1, 16) if self.base**e >= self.operands)
        return length + extra

    def output_length(self, length):
        """Room for the sum, its hints, and the end symbol, or for all running sums."""
        if self.running_sums:
            return (self.operands + 1) * (self.answer_digits(length) + 1) - 1
        return super().output_length(length)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        numbers, text, hint = self.drawn(rng, length, max_length)
        room = self.answer_digits(max_length)
        digits = lambda columns: carried(columns, room, self.base)
        if self.running_sums:
            columns = jnp.pad(jnp.cumsum(numbers, axis=0), ((1, 0), (0, 0)))
            return self._all_sums(text, jax.vmap(digits)(columns), length)
        return self.answered(text, digits(jnp.sum(numbers, axis=0)), length, hint)

    def _all_sums(self, text, sums, length):
        """All running sums as written, and what of them counts."""
        count = self.answer_digits(length)
        place = jnp.arange(sums.shape[0] * (sums.shape[1] + 1) - 1)
        row, at = place // (count + 1), place % (count + 1)
        significance = count - 1 - at if self.order == "plain" else at
        significance = jnp.clip(significance, 0, sums.shape[1] - 1)
        digits = sums[jnp.minimum(row, self.operands), significance]
        return Example(text, jnp.where(at == count, self.step_symbol, digits))
