"""Addition with a scratchpad: digit after digit with its carry, and then the sum."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.encodings.choices import check_choice
from ropejax.settings import make_tuples
from ropejax.tasks import draws
from ropejax.tasks.addition import Addition
from ropejax.tasks.base import Example, Task
from ropejax.tasks.written_numbers import WIDTHS
from ropejax.typing import Rng

SIZES = {"input": 2, "computation": 2, "output": 1, "carry": 1, "remaining": 0}
"""The parts of a step in order, and how many symbols of each do not vary."""


@dataclasses.dataclass(frozen=True)
class AdditionScratchpad(Task):
    """Adds two numbers in steps, one for each digit from the least significant on.

    The input is that of Addition in plain order, most significant digit first, and the
    same key gives the same numbers. The answer is the steps and then the sum, as
    Addition writes it. Step i is, of these parts, those that are asked for, in this
    order:

        input        a_i b_i, the digits that it adds
        computation  a_i + b_i + c_i, c_i the carry so far, in two digits
        output       s_i, the sum's digit, (a_i + b_i + c_i) mod base
        carry        c_{i+1}, the carry from now on
        remaining    the digits left, a_{n-1} .. a_{i+1} + b_{n-1} .. b_{i+1}

    so that with `remaining` the answer grows with the square of the length.

    Attributes:
        base: of the numbers.
        widths: "equal" or "zeros", how many digits the numbers have: see Addition.
        parts: what a step writes.
        scored: "all" symbols count in accuracy, or "answer", those of the sum alone, to
            compare with Addition.

    Examples:
        28+15 -> 85312140043    (8 + 5 is 3, carry 1; 2 + 1 + 1 is 4, carry 0; 043)
        9+0 -> 909009           (9 + 0 is 9, carry 0; 09)

    References:
        Nye et al. 2021, arXiv 2112.00114, for scratchpads of addition; Kazemnejad et
        al. 2023, arXiv 2305.19466, figure 5, for the five parts.

    Departures:
        The papers' steps are sentences; here they are the numbers of those sentences,
        of fixed widths, without separators.
    """

    title = "Addition, scratchpad"
    summary = "digit after digit with its carry, and then the sum"
    group = "scratchpad"

    base: int = 10
    widths: str = "equal"
    parts: tuple[str, ...] = ("input", "output", "carry")
    scored: str = "all"

    def __post_init__(self):
        make_tuples(self)
        check_choice("widths", self.widths, WIDTHS[:2])
        check_choice("scored", self.scored, ("all", "answer"))
        for part in self.parts:
            check_choice("parts", part, tuple(SIZES))
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(
                f"parts must name one part or more, each once, got {self.parts}; "
                "without a scratchpad the task is Addition."
            )
        draws.check_alphabet("base", self.base, draws.LARGEST_MODULUS)

    @property
    def problem(self) -> Addition:
        """The same sums without a scratchpad."""
        return Addition(base=self.base, order="plain", widths=self.widths)

    @property
    def input_vocab(self) -> int:
        """Digits and plus."""
        return self.problem.input_vocab

    @property
    def output_vocab(self) -> int:
        """Digits, and plus if steps write what remains."""
        return self.base + ("remaining" in self.parts)

    def input_length(self, length):
        """Two numbers and plus between them."""
        return self.problem.input_length(length)

    def output_length(self, length):
        """All steps and the sum."""
        return self._start(length, length) + self.problem.output_length(length)

    def check_length(self, length: int) -> None:
        """See `Task.check_length`."""
        self.problem.check_length(length)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        text, total, _ = self.problem.sample_row(rng, length, max_length)
        size = self.output_length(max_length)
        step = jnp.arange(max_length)
        start = self._start(step, length)[:, None]
        steps = self._steps(text, total, step, length)
        left = length - 1 - step[:, None]

        def write(answer, place, symbols, used):
            at = jnp.where(used, place, size)  # beyond the end what is not used
            return answer.at[at].set(symbols.astype(answer.dtype), mode="drop")

        answer = jnp.zeros(size, jnp.int32)
        place = start + jnp.arange(steps.shape[1])
        answer = write(answer, place, steps, left >= 0)
        if "remaining" in self.parts:
            at = jnp.arange(2 * max_length - 1)
            from_text = jnp.where(at < left, at, length + at - left)
            symbols = jnp.where(at == left, self.base, text[from_text])
            place = start + steps.shape[1] + at
            answer = write(answer, place, symbols, at <= 2 * left)
        sum_start = self._start(length, length)
        place = jnp.arange(total.shape[0])
        answer = write(answer, sum_start + place, total, place <= length)
        score_mask = None
        if self.scored == "answer":
            score_mask = jnp.arange(size) >= sum_start
        return Example(text, answer, score_mask)

    def _steps(self, text, total, step, length):
        """What each step writes, but for what remains."""
        a = text[length - 1 - step]
        b = text[2 * length - step]
        output = total[length - step]
        # The carry so far is what the digits lack to the sum's.
        carry = (a + b + (output - a - b) % self.base) // self.base
        written = {
            "input": [a, b],
            "computation": [carry, output],
            "output": [output],
            "carry": [carry],
            "remaining": [],
        }
        columns = [x for part in SIZES if part in self.parts for x in written[part]]
        return jnp.stack(columns, axis=1) if columns else jnp.zeros((len(step), 0), int)

    def _start(self, step, length):
        """How many symbols stand before a step."""
        before = step * sum(SIZES[part] for part in self.parts)
        if "remaining" in self.parts:
            # Step j leaves two numbers of length - 1 - j digits, and plus.
            before = before + step * (2 * length - step)
        return before
