"""Polynomial: the value of a polynomial at a point, modulo a number."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.key_lookup import num_pairs
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class Polynomial(Task):
    """Evaluates `c_1 x^d_1 + c_2 x^d_2 + ...` at a given x, modulo a number.

    The input is x and then, term after term, coefficient and degree: `x c_1 d_1 c_2 d_2
    ...`. x, coefficients and degrees are uniform, terms of one degree are not joined,
    and `0^0 = 1`. An input of n symbols holds (n - 1) / 2 terms; at even
    lengths it is the next shorter one, and below 3 symbols that of 3.

    Attributes:
        modulus: of the value; x and coefficients are 0 .. modulus - 1.
        max_degree: degrees are 0 .. max_degree, which are symbols of their own.

    Examples:
        2 3 11 4 10 -> 0        (3 * 2^1 + 4 * 2^0 = 10, modulo 10; degrees from 10 up)
        3 1 12 9 13 5 10 -> 7   (9 + 9 * 27 + 5 = 257, modulo 10)

    References:
        Kazemnejad et al. 2023, arXiv 2305.19466, table 1, and its code at
        McGill-NLP/length-generalization (s2s_poly): modulo 10.

    Departures:
        Ranges of x, coefficients and degrees are this task's own: published ones were
        not found (an example there has coefficients -3 to -1 and degrees 0 to 3). Signs
        and the name of the variable are not written.
    """

    title = "Polynomial"
    summary = "the value of a polynomial at a point, modulo a number"
    group = "arithmetic"

    modulus: int = 10
    max_degree: int = 3

    def __post_init__(self):
        draws.check_alphabet("modulus", self.modulus, draws.LARGEST_MODULUS)
        if not 1 <= self.max_degree <= 63:
            raise ValueError(
                f"max_degree must lie in 1 .. 63, got max_degree={self.max_degree}."
            )

    @property
    def input_vocab(self) -> int:
        """Numbers below the modulus, and degrees."""
        return self.modulus + self.max_degree + 1

    @property
    def output_vocab(self) -> int:
        """Numbers below the modulus."""
        return self.modulus

    def input_length(self, length):
        """x, and two symbols for each of as many terms as fit, of one at least."""
        return 1 + 2 * num_pairs(length)

    def output_length(self, length):
        """One symbol."""
        return 1 + 0 * length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        size = self.input_length(max_length)
        words = draws.words(rng, size)  # of x, and then of each term two
        numbers = draws.below(words, self.modulus)
        x, coefficients = numbers[0], numbers[1::2]
        degrees = draws.below(words[2::2], self.max_degree + 1)
        powers = [jnp.ones_like(x)]
        for _ in range(self.max_degree):
            powers.append(powers[-1] * x % self.modulus)
        terms = coefficients * jnp.stack(powers)[degrees] % self.modulus
        used = jnp.arange(terms.shape[0]) < num_pairs(length)
        value = jnp.sum(jnp.where(used, terms, 0)) % self.modulus
        inputs = numbers.at[2::2].set(self.modulus + degrees)
        return Example(inputs, value[None])
