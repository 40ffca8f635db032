"""Modular Arithmetic: the value of an expression with brackets."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws, expressions
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class ModularArithmeticBrackets(Task):
    """Evaluates an expression with brackets modulo 5.

    The input is a random expression in digits 0 .. modulus - 1, the operators +, -, *,
    unary minus, and brackets around every operation (`ropejax.tasks.expressions` gives
    the grammar); the symbols +, -, *, (, ) are modulus, modulus + 1, ... in this order.
    The answer is one symbol, the value modulo `modulus`.

    Attributes:
        modulus: number of digits; 5 as published.
        multiplication: whether * is among the operators; it is in the published
            experiments, though off by default in the public code.

    Examples:
        3 -> 3
        -3 -> 2
        (-4) -> 1
        (1+(2*4)) -> 4
        ((-2)-(3*(4+1))) -> 3

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.2.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/dcf/modular_arithmetic_brackets.py; multiplication as in
        google-deepmind/randomized_positional_encodings, experiments/constants.py.

    Departures:
        The public code counts an input symbol more than it draws; it is not counted.
    """

    title = "Modular Arithmetic"
    summary = "the value modulo 5 of an expression with brackets"
    level = Level.DETERMINISTIC_CONTEXT_FREE

    modulus: int = 5
    multiplication: bool = True

    def __post_init__(self):
        draws.check_alphabet("modulus", self.modulus, draws.LARGEST_MODULUS)

    @property
    def input_vocab(self) -> int:
        """The digits, then +, -, *, (, )."""
        return self.modulus + 5

    @property
    def output_vocab(self) -> int:
        """The digits."""
        return self.modulus

    def output_length(self, length):
        """One symbol."""
        return 1

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        codes = expressions.Codes(
            plus=self.modulus,
            minus=self.modulus + 1,
            times=self.modulus + 2 if self.multiplication else None,
            opening=self.modulus + 3,
            closing=self.modulus + 4,
        )
        expression = expressions.draw(rng, length, max_length, self.modulus, codes)
        return Example(expression.symbols, jnp.atleast_1d(expression.value))
