"""LEGO: a chain of variables, each the next one's value or its negation."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.encodings.choices import check_choice
from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.sort_numbers import at_least
from ropejax.typing import Rng

ASKED = ("any", "last")


@dataclasses.dataclass(frozen=True)
class Lego(Task):
    """Resolves a chain of signs: `a = +1, b = -a, c = +b, ...`, in shuffled order.

    The input is clauses of three symbols, variable, sign, and variable before (or one,
    at the chain's root), in uniform order, and then the variable whose value is asked:
    0 for -1, 1 for +1. Signs are fair, and the chain's variables differ, uniform among
    all. An input of n symbols holds (n - 1) / 3 clauses; at other lengths it is the
    next shorter one, and below 4 symbols that of 4.

    Attributes:
        num_variables: names there are; no chain is longer. Published ones are letters.
        asked: "any" variable of the chain, each equally likely, or the "last" one.

    Examples:
        4 201 200 4 -> 1            (a = +1: what is a? 200 is one, 201 +, 202 -)
        7 201 3 3 202 200 7 -> 0    (b = +a, a = -1: what is b?)

    References:
        Zhang et al. 2022, "Unveiling Transformers with LEGO", arXiv 2206.04301;
        Kazemnejad et al. 2023, arXiv 2305.19466, table 1, and its code at
        McGill-NLP/length-generalization (s2s_lego).

    Departures:
        The first paper asks for all variables at once; here one is, as in the second.
    """

    title = "LEGO"
    summary = "the value of a variable, along a shuffled chain of signs"
    group = "tracking a state"

    num_variables: int = 200
    asked: str = "any"

    def __post_init__(self):
        draws.check_alphabet("num_variables", self.num_variables)
        check_choice("asked", self.asked, ASKED)

    @property
    def one(self) -> int:
        """The symbol of the number that a chain starts from."""
        return self.num_variables

    @property
    def input_vocab(self) -> int:
        """Variables, one, plus and minus."""
        return self.num_variables + 3

    @property
    def output_vocab(self) -> int:
        """-1 and +1."""
        return 2

    def num_clauses(self, length):
        """Clauses that an input of `length` symbols holds (int or traced)."""
        return at_least(1, (length - 1) // 3)

    def input_length(self, length):
        """As many clauses as fit, of one at least, and the variable asked."""
        return 3 * self.num_clauses(length) + 1

    def output_length(self, length):
        """One symbol."""
        return 1 + 0 * length

    def check_length(self, length: int) -> None:
        """Raises ValueError also where there are too few variables."""
        super().check_length(length)
        if self.num_clauses(length) > self.num_variables:
            raise ValueError(
                f"{self.title} has no example of length {length}: its "
                f"{self.num_clauses(length)} clauses need as many variables, and "
                f"num_variables={self.num_variables}."
            )

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        names_rng, signs_rng, order_rng, asked_rng = jax.random.split(rng, 4)
        most, count = self.num_clauses(max_length), self.num_clauses(length)
        names = jnp.argsort(draws.words(names_rng, self.num_variables))[:most]
        minus = draws.symbols(signs_rng, most, 2)
        before = jnp.concatenate([jnp.array([self.one]), names[:-1]])
        clauses = jnp.stack([names, self.one + 1 + minus, before], axis=1)
        # Ranks of random words, those of clauses that are not used behind all others.
        words = draws.words(order_rng, most) >> 1
        place = jnp.where(jnp.arange(most) < count, words, jnp.uint32(2**31))
        text = clauses[jnp.argsort(place, stable=True)].reshape(-1)
        at = count - 1
        if self.asked == "any":
            at = draws.below(draws.words(asked_rng, 1)[0], count)
        text = jnp.pad(text, (0, 1)).at[3 * count].set(names[at])
        value = (1 + jnp.cumsum(minus)[at]) % 2
        return Example(text, value[None])
