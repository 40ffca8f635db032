"""Coupled positions on two levels: the column of a digit, and the number it is in.

Where many numbers are added, columns alone do not tell which number comes next. Here
each token has two ids: one for its column, shared by digits of equal significance, and
one for its number, shared by an operand and the running sum that is about to take it
in. A model that writes down running sums then looks at the same few ids at every step,
however many digits and however many operands there are.

The ids are streams of their own, for a table each (`Learned(stream="digit")` with
`Learned(stream="operand")`), and two axes of positions, for rotations by both.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ropejax.concrete import known_values
from ropejax.positions.abacus import is_symbol
from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.ranges import LARGEST_SCALED, SCALED, check_range
from ropejax.positions.rows import draw_starts, real_places
from ropejax.seeds import check_key
from ropejax.typing import Rng


class Levels(NamedTuple):
    """Ids of an addition on both levels, counted from 0.

    Attributes:
        digit: 0 at separators, 1 at the least significant digit of a number, 2 at the
            next, `[B, L]`.
        operand: number of the operand, from 0; in answers, of the sum, `[B, L]`.
        width: the largest id of a digit, `[B]`.
        operands: how many numbers are added, `[B]`; the largest id of an operand.
        places: how many places the answer has, `[B]`.
    """

    digit: Int[Array, "B L"]
    operand: Int[Array, "B L"]
    width: Int[Array, " B"]
    operands: Int[Array, " B"]
    places: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class CoupledLevels(PositionScheme):
    """Streams `digit` and `operand` for rows like `a + b + c = 0 > a > a+b > a+b+c`.

    On the level of digits, separators are at `start` and digits at `start + 1 +
    significance`. On that of operands, the i-th operand (from 0) is at `start + i`, and
    so is the sum of i operands; a separator goes with the number behind it, but one
    behind an operand that is written most significant digit first goes with that
    operand. Each start is uniform over what fits, so that all ids are trained. Padding
    is at 0 on both levels.

    Answers are not read, only counted: all running sums have as many digits as their
    number of places allows, and the last place may be missing, as for decoders, which
    never read it.

    Attributes:
        max_digits: largest id on the level of digits; a table needs one row more. It
            must exceed the digits of the longest number, sums included.
        max_operands: largest id on the level of operands, likewise; it must exceed the
            number of operands.
        separators: the symbols between operands and before the answer: plus, and
            equals if there is one; not the one between running sums.
        placeholder: the symbol at which answers are read; None if answers follow the
            last separator.
        operands_least_first: whether operands are written least significant digit
            first.
        answer_least_first: whether sums are.
        running_sums: whether the answer is all running sums from 0 (n + 1 numbers for n
            operands), or the last of them alone, which keeps its id, n.
        random_start: False starts at 1 always, as a test may.
        per_sequence: one pair of starts a row, as published, not one for the batch.
        base: scheme of the tokens' ordinary positions, with a key of its own; if None,
            positions have two axes, digit and operand, for `AxialRotary`.

    Raises:
        ValueError: if a largest id is not in 1 .. 2^23, `separators` is empty, or a
            single sum is written most significant digit first (how many digits a
            decoder's answer has does not show in its places, so their significance is
            unknown).

    References:
        Cho, Cha, Bhojanapalli, Yun (2024), "Arithmetic transformers can length-
        generalize in both operand length and count", arXiv:2410.15787;
        HanseulJo/position-coupling at 83e4d5e, `src/data/addition.py`
        (`MultipleAdditionScratchPadDatasetWithCoupledPositions`). The authors add the
        rows of one learned table a level to the embeddings.

    Departures:
        The code was read, not the paper's figures. Sums in reverse order are left out.
        Two axes of positions and other schemes beside the ids are additions.
    """

    max_digits: int = 64
    max_operands: int = 32
    separators: tuple[int, ...] = (11, 12)
    placeholder: int | None = None
    operands_least_first: bool = False
    answer_least_first: bool = True
    running_sums: bool = True
    random_start: bool = True
    per_sequence: bool = True
    base: PositionScheme | None = None

    title: ClassVar[str] = "Multi-level coupled"
    summary: ClassVar[str] = "ids by a digit's significance and by its number"
    reference: ClassVar[str] = "Cho et al. 2024, arXiv:2410.15787"
    random: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        for name in ("max_digits", "max_operands"):
            check_range(name, getattr(self, name), most=LARGEST_SCALED, why=SCALED)
        if not self.separators:
            raise ValueError(
                "separators is empty; name the symbols of plus and equals."
            )
        if not (self.running_sums or self.answer_least_first):
            raise ValueError(
                "a single sum is placed least significant digit first only; set "
                "answer_least_first=True or running_sums=True."
            )

    @property
    def named_symbols(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The separators, and the placeholder if it is one; those of `base`."""
        own = (("separators", self.separators),)
        if self.placeholder is not None:
            own += (("placeholder", (self.placeholder,)),)
        return own + (() if self.base is None else self.base.named_symbols)

    @property
    def rows_differ(self) -> bool:
        """True if each row has starts of its own, or `base` places it so."""
        own = self.per_sequence and self.random_start
        return own or (self.base is not None and self.base.rows_differ)

    def position_bound(self, num_tokens: int) -> int | None:
        """Returns the bound of the ordinary positions, or of all ids."""
        if self.base is not None:
            return self.base.position_bound(num_tokens)
        return 1 + max(self.max_digits, self.max_operands)

    def stream_bound(self, stream: str, num_tokens: int) -> int | None:
        """Returns `max_digits + 1`, `max_operands + 1`, or the bound of `base`."""
        own = {"digit": self.max_digits + 1, "operand": self.max_operands + 1}
        if stream in own or self.base is None:
            return own.get(stream)
        return self.base.stream_bound(stream, num_tokens)

    def check(self, num_tokens: int) -> None:
        """Raises ValueError if `base` cannot place rows of `num_tokens` tokens."""
        if self.base is not None:
            self.base.check(num_tokens)

    def levels(self, tokens: Int[Array, "B L"], valid: Bool[Array, "B L"]) -> Levels:
        """Returns the ids of both levels, counted from 0.

        Args:
            tokens: symbols, `[B, L]`.
            valid: False at padding, `[B, L]`.
        """
        at = jnp.broadcast_to(
            jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape
        )
        length = valid.sum(axis=1, keepdims=True, dtype=jnp.int32)
        separator = is_symbol(tokens, self.separators) & valid
        if self.placeholder is None:
            start = jnp.where(separator, at + 1, 0).max(axis=1, keepdims=True)
        else:
            asked = (tokens == self.placeholder) & valid
            start = jnp.where(asked, at, length).min(axis=1, keepdims=True)
        answer = valid & (at >= start)
        separator = separator & ~answer
        equals = separator & (at == start - 1)
        plus = separator & ~equals
        operands = 1 + plus.sum(axis=1, dtype=jnp.int32)
        places = answer.sum(axis=1, dtype=jnp.int32)
        # Of operands: places since the separator before, and until the one behind.
        before = jax.lax.cummax(jnp.where(separator, at, -1), axis=1)
        behind = jnp.where(separator, at, start)
        behind = jax.lax.cummin(behind, axis=1, reverse=True)
        least = self.operands_least_first
        digit = at - before if least else behind - at
        digit = jnp.where(separator | ~valid, 0, digit)
        widest = jnp.where(answer, 0, digit).max(axis=1)
        plus = plus.astype(jnp.int32)
        operand = jnp.cumsum(plus, axis=1) - (0 if least else plus)
        # Of answers: groups of a separator and the digits of a sum; equals leads.
        groups = operands + 1 if self.running_sums else jnp.ones_like(operands)
        room = jnp.maximum(places // groups, 1)
        since, size = at - start + 1, room[:, None] + 1
        within = since % size
        if not self.answer_least_first:
            within = jnp.where(within > 0, size - within, 0)
        last = operands[:, None] if not self.running_sums else since // size
        in_answer = answer | equals
        return Levels(
            digit=jnp.where(in_answer, within, digit),
            operand=jnp.where(in_answer, last, operand),
            width=jnp.maximum(widest, jnp.where(places > 0, room, 0)),
            operands=operands,
            places=places,
        )

    def __call__(
        self,
        rng: Rng,
        lengths: Int[Array, " B"],
        *,
        num_tokens: int,
        num_layers: int = 1,
        tokens: Int[Array, "B P"] | None = None,
    ) -> Placement:
        """Returns streams `[B, P]`, and positions of `base` or `[B, P, 2]`.

        Raises:
            ValueError: if `tokens` is None, or known rows need larger ids than there
                are, or have places for answers that running sums do not fill. Traced
                ones then get ids past the table, which a table turns into NaN.
        """
        if tokens is None:
            raise ValueError("CoupledLevels reads the symbols: pass tokens, got None.")
        check_key(rng)
        real = real_places(lengths, num_tokens)
        levels = self.levels(tokens, real)
        self._check(levels)
        digit_rng, operand_rng, base_rng = jax.random.split(rng, 3)
        digit, operand = (
            self._moved(rng, real, ids, most - widest)
            for rng, ids, most, widest in (
                (digit_rng, levels.digit, self.max_digits, levels.width),
                (operand_rng, levels.operand, self.max_operands, levels.operands),
            )
        )
        if self.base is None:
            placement = Placement(positions=jnp.stack([digit, operand], axis=-1))
        else:
            placement = self.base(
                base_rng,
                lengths,
                num_tokens=num_tokens,
                num_layers=num_layers,
                tokens=tokens,
            )
        streams = {**(placement.streams or {}), "digit": digit, "operand": operand}
        return dataclasses.replace(placement, streams=streams)

    def _moved(self, rng, real, ids, room):
        """Returns ids from a random start on, of which there are `room`."""
        start = draw_starts(
            rng, room, random=self.random_start, per_sequence=self.per_sequence
        )
        return jnp.where(real, start[:, None] + ids, 0)

    def _check(self, levels: Levels) -> None:
        width, operands, places = map(
            known_values, (levels.width, levels.operands, levels.places)
        )
        if width is None or not width.size:
            return
        for name, most, found in (
            ("max_digits", self.max_digits, width),
            ("max_operands", self.max_operands, operands),
        ):
            if found.max() >= most:
                raise ValueError(
                    f"an addition has {found.max()} {name.removeprefix('max_')} and "
                    f"needs {name} above that, got {most}; raise {name}."
                )
        missing = -(places + 1) % (operands + 1)
        if self.running_sums and np.any((missing > 1) & (places > 0)):
            wrong = int(np.argmax((missing > 1) & (places > 0)))
            raise ValueError(
                f"row {wrong} adds {operands[wrong]} numbers and has {places[wrong]} "
                f"places for answers, which {operands[wrong] + 1} sums of equal width "
                "do not fill; set running_sums=False if the answer is the last alone."
            )
