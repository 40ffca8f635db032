"""Coupled positions for addition: digits of equal significance share one position.

The structure of the task goes into the positions: in `653+49=702` the digits 3, 9 and 2
are at one position, 5, 4 and 0 at the next, whatever their places in the text. What the
model has to learn is then the same column of digits over and over, at any length.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.concrete import known_values
from ropejax.positions.abacus import is_symbol
from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import LARGEST_SCALED, SCALED, check_range
from ropejax.positions.rows import draw_starts, real_places
from ropejax.typing import Rng


class Columns(NamedTuple):
    """The digits of an addition by significance.

    Attributes:
        significance: 0 for the least significant digit of a number, `[B, L]`; 0 where
            there is no digit.
        is_digit: True at digits, `[B, L]`.
        width: number of columns that the sum may need, `[B]`: one more than the longest
            operand has digits, or the answer's digits if those are more.
    """

    significance: Int[Array, "B L"]
    is_digit: Bool[Array, "B L"]
    width: Int[Array, " B"]


def digit_columns(
    tokens: Int[Array, "B L"],
    valid: Bool[Array, "B L"],
    separators: tuple[int, ...],
    *,
    placeholder: int | None = None,
    operands_least_first: bool = False,
    answer_least_first: bool = True,
    last_unread: bool = False,
) -> Columns:
    """Returns the significance of every digit in rows like `a + b = answer`.

    Numbers are what stands between separators; what follows the last separator is the
    answer. If the answer is read at placeholder symbols, it also begins where these do,
    with or without an equals sign before it.

    Args:
        tokens: symbols, `[B, L]`.
        valid: False at padding, `[B, L]`.
        separators: the symbols that end a number: plus, and equals if there is one.
        placeholder: the symbol at which an answer is read; None if answers are digits.
        operands_least_first: whether operands are written least significant digit
            first.
        answer_least_first: whether the answer is.
        last_unread: whether the last symbol of answers is missing, as it is for
            decoders, which never read it.

    Returns:
        The `Columns` of the rows.
    """
    separator = is_symbol(tokens, separators) & valid
    number = jnp.cumsum(separator.astype(jnp.int32), axis=1)
    if placeholder is not None:
        number = number + ((tokens == placeholder) & valid)
    is_digit = valid & ~separator
    # Digits of one number stand together, so first and last ones give place and size.
    run = jnp.where(is_digit, number, -1)
    edge = jnp.full_like(run[:, :1], -1)
    starts = run != jnp.concatenate([edge, run[:, :-1]], axis=1)
    ends = run != jnp.concatenate([run[:, 1:], edge], axis=1)
    at = jnp.broadcast_to(jnp.arange(run.shape[1], dtype=jnp.int32), run.shape)
    first = jax.lax.cummax(jnp.where(starts, at, 0), axis=1)
    final = jax.lax.cummin(jnp.where(ends, at, run.shape[1]), axis=1, reverse=True)
    latest = jnp.max(jnp.where(valid, number, 0), axis=1, keepdims=True)
    in_answer = is_digit & (number == latest)
    from_left = jnp.where(in_answer, answer_least_first, operands_least_first)
    final = final + (in_answer & last_unread)
    significance = jnp.where(from_left, at - first, final - at)
    size = jnp.where(is_digit, final - first + 1, 0)
    operand = jnp.max(jnp.where(in_answer, 0, size), axis=1)
    answer = jnp.max(jnp.where(in_answer, size, 0), axis=1)
    return Columns(
        significance=jnp.where(is_digit, significance, 0),
        is_digit=is_digit,
        width=jnp.maximum(operand + 1, answer),
    )


@dataclasses.dataclass(frozen=True)
class Coupled(PositionScheme):
    """Positions by column: `end - 1 - significance` for digits, `end` for separators.

    `end = start + width`, with `start` uniform over `1 .. max_position - width` in
    training, so that all positions are trained; padding is at 0. A row's width is one
    more than its longest operand has digits, or the answer's digits if more.

    Attributes:
        max_position: largest position; tables need `max_position + 1` rows. It must
            exceed the width of the longest test row.
        separators: the symbols that end a number: plus, and equals if there is one.
        placeholder: the symbol at which answers are read; None if answers are digits.
        operands_least_first: whether operands are written least significant digit
            first.
        answer_least_first: whether the answer is (a "reversed" answer).
        last_unread: whether the last symbol of answers is missing, as it is for
            decoders, which never read it; of answers that are not least_first, all
            columns depend on it.
        random_start: False starts at 1 always, as a test may.
        per_sequence: one start a row, as published, instead of one for the batch.

    Raises:
        ValueError: if `max_position` is not in 1 .. 2^23, or `separators` is empty.

    References:
        Cho, Cha, Awasthi, Bhojanapalli, Gupta, Yun (2024), "Position coupling:
        improving length generalization of arithmetic transformers using task
        structure", arXiv:2405.20671; HanseulJo/position-coupling at 01dd272,
        `src/data/addition.py` (`AdditionDatasetWithCoupledPositions`, neither cyclic
        nor vanilla).

    Departures:
        Rows whose answer has more digits than any sum needs (fixed numbers of
        placeholders) are wide enough for it; the authors' rows never have.
    """

    max_position: int = 256
    separators: tuple[int, ...] = (10, 11)
    placeholder: int | None = None
    operands_least_first: bool = False
    answer_least_first: bool = True
    last_unread: bool = False
    random_start: bool = True
    per_sequence: bool = True

    title: ClassVar[str] = "Coupled"
    summary: ClassVar[str] = "digits of equal significance share a position"
    reference: ClassVar[str] = "Cho et al. 2024, arXiv:2405.20671"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        check_range("max_position", self.max_position, most=LARGEST_SCALED, why=SCALED)
        if not self.separators:
            raise ValueError(
                "separators is empty; name the symbols of plus and equals."
            )

    @property
    def named_symbols(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The separators, and the placeholder if it is one."""
        own = (("separators", self.separators),)
        if self.placeholder is not None:
            own += (("placeholder", (self.placeholder,)),)
        return own

    @property
    def rows_differ(self) -> bool:
        """True if each row has a start of its own."""
        return self.per_sequence and self.random_start

    def position_bound(self, num_tokens: int) -> int:
        """Returns `max_position + 1`."""
        return self.max_position + 1

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Returns positions `[B, P]`; see `PositionScheme.__call__`.

        Raises:
            ValueError: if `tokens` is None, or known rows are wider than
                `max_position - 1`. Traced ones then get positions past the table, which
                a table turns into NaN.
        """
        if tokens is None:
            raise ValueError("Coupled reads the symbols: pass tokens, got None.")
        real = real_places(lengths, num_tokens)
        columns = digit_columns(
            tokens,
            real,
            self.separators,
            placeholder=self.placeholder,
            operands_least_first=self.operands_least_first,
            answer_least_first=self.answer_least_first,
            last_unread=self.last_unread,
        )
        room = self.max_position - columns.width
        width = known_values(columns.width)
        if width is not None and width.size and width.max() >= self.max_position:
            raise ValueError(
                f"An addition is {width.max()} columns wide and needs max_position "
                f"above that, got {self.max_position}; raise max_position."
            )
        start = draw_starts(
            rng, room, random=self.random_start, per_sequence=self.per_sequence
        )
        end = (start + columns.width)[:, None]
        column = jnp.where(columns.is_digit, end - 1 - columns.significance, end)
        return Placement(positions=jnp.where(real, column, 0))
