"""Modular Arithmetic (Simple): the value of an expression without brackets."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class ModularArithmetic(Task):
    """Evaluates a sum of products modulo 5.

    The input alternates digits 0 .. modulus - 1 and operators (+, -, * are the symbols
    modulus, modulus + 1, modulus + 2), all uniform, and so has an odd length; at an
    even length the input is one symbol shorter. Multiplication binds tighter; + and -
    are read from left to right. The answer is one symbol, the value modulo `modulus`.

    Attributes:
        modulus: number of digits; 5 as published.

    Examples:
        1+2*3 -> 2
        1-1-1 -> 4
        0*1+4*3-2 -> 0

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.1.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/regular/modular_arithmetic.py.

    Departures:
        The public code counts a blank input symbol that it never draws; it is not
        counted here.
    """

    title = "Modular Arithmetic (Simple)"
    summary = "the value modulo 5 of a sum of products, without brackets"
    level = Level.REGULAR

    modulus: int = 5

    def __post_init__(self):
        draws.check_alphabet("modulus", self.modulus, draws.LARGEST_MODULUS)

    @property
    def input_vocab(self) -> int:
        """The digits, then +, -, *."""
        return self.modulus + 3

    @property
    def output_vocab(self) -> int:
        """The digits."""
        return self.modulus

    def input_length(self, length):
        """`length` if odd, else `length - 1`: digits and operators alternate."""
        return length - (1 - length % 2)

    def output_length(self, length):
        """One symbol."""
        return 1

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        max_length = self.input_length(max_length)
        # One draw serves both roles of a place: a digit, or one of three operators.
        drawn = draws.symbols(rng, max_length, 3 * self.modulus)
        digits, operators = drawn % self.modulus, drawn % 3
        is_digit = jnp.arange(max_length) % 2 == 0
        expression = jnp.where(is_digit, digits, self.modulus + operators)
        operators, digits = operators[1::2], digits[::2]
        is_used = jnp.arange(operators.shape[0]) < (length - 1) // 2
        value = _evaluate(operators, digits, is_used, self.modulus)
        return Example(expression, jnp.atleast_1d(value))


class _Step(NamedTuple):
    """The effect of some symbols on (total, term), the closed sum and the open product.

    total <- total + add * term + shift
    term  <- scale * term + start
    """

    add: Int[Array, " E"]
    shift: Int[Array, " E"]
    scale: Int[Array, " E"]
    start: Int[Array, " E"]


def _evaluate(
    operators: Int[Array, " E"],
    digits: Int[Array, " E+1"],
    is_used: Bool[Array, " E"],
    modulus: int,
) -> Int[Array, ""]:
    """The value of digits[0] operators[0] digits[1] ..., over the used operators.

    An operator and its digit act on (total, term) affinely: * d scales the term by d;
    + d and - d add the term to the total and open a new term. Affine maps compose
    associatively, so halving the number of maps log2(E) times replaces E steps.
    """
    operand = digits[1:]
    is_times = operators == 2
    closes = is_used & ~is_times
    steps = _Step(
        add=closes.astype(jnp.int32),
        shift=jnp.zeros_like(operand),
        scale=jnp.where(is_used, jnp.where(is_times, operand, 0), 1),
        start=jnp.where(closes, jnp.where(operators == 1, -operand, operand), 0),
    )
    identity = _Step(add=0, shift=0, scale=1, start=0)
    while (count := steps.add.shape[0]) > 1:
        padded = _Step(
            *(
                jnp.pad(part, (0, count % 2), constant_values=neutral)
                for part, neutral in zip(steps, identity, strict=True)
            )
        )
        first = _Step(*(part[::2] for part in padded))
        second = _Step(*(part[1::2] for part in padded))
        steps = _compose(first, second, modulus)
    term = digits[0]
    if steps.add.shape[0] == 0:  # a single digit
        return term
    total = steps.add[0] * term + steps.shift[0]
    return (total + steps.scale[0] * term + steps.start[0]) % modulus


def _compose(first: _Step, second: _Step, modulus: int) -> _Step:
    """The effect of `first` and then `second`."""
    return _Step(
        add=(first.add + second.add * first.scale) % modulus,
        shift=(first.shift + second.shift + second.add * first.start) % modulus,
        scale=(second.scale * first.scale) % modulus,
        start=(second.scale * first.start + second.start) % modulus,
    )
