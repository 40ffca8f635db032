"""Multiplication: the product of two numbers in any base, in any way of writing."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks.base import Example
from ropejax.tasks.written_numbers import WrittenNumbers, carried
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Multiplication(WrittenNumbers):
    """Multiplies two numbers of up to `length` digits: a length is digits, not symbols.

    The input is `a * b`; the answer has fixed room for the product's digits, or ends
    with an end symbol. Symbols are the digits from 0 up, index hints if there are any,
    times, and blank if it is used; the placeholder stands for equals.

    Attributes:
        base: of the numbers.
        order: "reversed", all numbers least significant digit first; "answer", the
            answer alone; "plain", none.
        widths: "equal", both numbers have `length` digits, the highest not zero unless
            it is the only one; "zeros", numbers have a uniform number of digits in
            1 .. `length`, one of them `length`, and are written with leading zeros;
            "blanks", the same with blanks in place of those zeros.
        terminate: write the answer without leading zeros, and an end symbol behind it;
            otherwise leading zeros fill the answer's room.
        num_hints: index hints, as in `Addition`; 0 for none.
        blank_every: put one blank at a random place of the input for so many of its
            symbols; 0 for none.

    Examples:
        12*25 -> 2901    (21 * 52 = 1092)
        99*10 -> 9900    (99 * 1 = 99, the second number padded with a zero)

    References:
        McLeish et al. 2024 (Abacus), arXiv 2405.17399, all numbers reversed; Jelassi et
        al. 2023, arXiv 2306.15400.

    Departures:
        As Addition: blanks stand for a missing digit rather than nothing, and there are
        no symbols around the product.
    """

    title = "Multiplication"
    summary = "the product of two numbers in any base and format; a length is digits"
    operands: ClassVar[int] = 2

    base: int = 10
    order: str = "reversed"
    widths: str = "equal"
    terminate: bool = False
    num_hints: int = 0
    blank_every: int = 0

    def __post_init__(self):
        self.check_writing()

    @property
    def times(self) -> int:
        """The symbol between numbers."""
        return self.sign

    def answer_digits(self, length):
        """Most digits that a product can have."""
        return 2 * length

    def check_length(self, length: int) -> None:
        """Raises ValueError also where sums of products leave 32 bits."""
        super().check_length(length)
        longest = (2**31 - 1) // (self.base * (self.base - 1)) - 1
        if length > longest:
            raise ValueError(
                f"{self.title} has no example of length {length} in base={self.base}: "
                f"numbers have at most {longest} digits; choose a smaller base."
            )

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        (first, second), text, hint = self.drawn(rng, length, max_length)
        room = self.answer_digits(max_length)
        first = jnp.pad(first, (0, room - max_length))

        def step(columns, digit):
            # Horner's rule, from the highest digit of the second number down.
            return jnp.pad(columns[:-1], (1, 0)) + digit * first, None

        columns, _ = jax.lax.scan(step, jnp.zeros_like(first), second, reverse=True)
        total = carried(columns, room, self.base)
        return self.answered(text, total, length, hint)
