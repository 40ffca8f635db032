"""Solve Equation: the unknown digit of an equation with brackets."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws, expressions
from ropejax.tasks.base import Example, Level, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class SolveEquation(Task):
    """Finds the digit x for which an expression with brackets has a given value.

    The input is a random expression of length - 2 symbols with the operators + and -
    (`ropejax.tasks.expressions` gives the grammar), in which x replaces one digit, then
    = and the value modulo `modulus`. The replaced digit is the first one from a uniform
    position on, around the end. The symbols +, -, (, ), x, = are modulus, modulus + 1,
    ... in this order. The answer is one symbol, the digit; it is unique, because x has
    the coefficient 1 or -1. At lengths 1 and 2 there is no equation: as published, both
    input and answer are zeros.

    Attributes:
        modulus: number of digits; 5 as published.

    Examples:
        x=3 -> 3
        -x=3 -> 2
        (1+x)=0 -> 4
        ((-2)-(x-4))=1 -> 1
        00 -> 0  (length 2)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.2.
        google-deepmind/neural_networks_chomsky_hierarchy, tasks/dcf/solve_equation.py.

    Departures:
        None.
    """

    title = "Solve Equation"
    summary = "the unknown digit of an equation with brackets, modulo 5"
    level = Level.DETERMINISTIC_CONTEXT_FREE

    modulus: int = 5

    def __post_init__(self):
        draws.check_alphabet("modulus", self.modulus, draws.LARGEST_MODULUS)

    @property
    def input_vocab(self) -> int:
        """The digits, then +, -, (, ), x, =."""
        return self.modulus + 6

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
            times=None,
            opening=self.modulus + 2,
            closing=self.modulus + 3,
        )
        unknown, equals = self.modulus + 4, self.modulus + 5
        expression_rng, unknown_rng = jax.random.split(rng)
        size = length - 2
        # Room for the whole input, though the expression is two symbols shorter.
        expression = expressions.draw(
            expression_rng, size, max_length, self.modulus, codes
        )
        place = jnp.arange(max_length)
        word = draws.words(unknown_rng, 1)[0]
        num_places = jnp.maximum(size, 1)
        start = draws.below(word, num_places)
        distance = (place - start) % num_places
        chosen = jnp.argmin(jnp.where(expression.is_digit, distance, max_length))

        inputs = jnp.where(place == chosen, unknown, expression.symbols)
        inputs = jnp.where(place == size, equals, inputs)
        inputs = jnp.where(place == size + 1, expression.value, inputs)
        has_equation = length >= 3
        answer = jnp.where(has_equation, expression.symbols[chosen], 0)
        return Example(jnp.where(has_equation, inputs, 0), jnp.atleast_1d(answer))
