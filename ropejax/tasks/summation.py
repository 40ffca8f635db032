"""Summation: the sum of all digits, modulo a number."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Summation(Task):
    """Adds up uniform digits, modulo a number: one symbol answers.

    Attributes:
        base: number of digits that are added, 0 .. base - 1.
        modulus: of the sum; the answer is uniform if it divides `base`.

    Examples:
        331861 -> 2    (22 mod 10)
        7 -> 7

    References:
        Kazemnejad et al. 2023, arXiv 2305.19466, table 1, and its code at
        McGill-NLP/length-generalization (s2s_sum): single digits, modulo 10.

    Departures:
        No plus signs between the digits.
    """

    title = "Summation"
    summary = "the sum of all digits, modulo a number"
    group = "arithmetic"

    base: int = 10
    modulus: int = 10

    def __post_init__(self):
        draws.check_alphabet("base", self.base, draws.LARGEST_MODULUS)
        draws.check_alphabet("modulus", self.modulus, draws.LARGEST_MODULUS)

    @property
    def input_vocab(self) -> int:
        """The digits."""
        return self.base

    @property
    def output_vocab(self) -> int:
        """What a sum leaves."""
        return self.modulus

    def output_length(self, length):
        """One symbol."""
        return 1 + 0 * length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        digits = draws.symbols(rng, max_length, self.base)
        total = jnp.sum(jnp.where(jnp.arange(max_length) < length, digits, 0))
        return Example(digits, total[None] % self.modulus)
