"""Word Problem: the product of a sequence of elements of a finite group."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.encodings.choices import check_choice
from ropejax.tasks import draws, groups
from ropejax.tasks.base import Example, Task
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class WordProblem(Task):
    """Multiplies x_1 x_2 ... x_n in a group, from left to right.

    It is the state of a permutation that is permuted on and on. The answer is one
    element, uniform whatever the length is if the input is elements. For S5 and A5,
    which are not solvable, the problem is complete for NC1: it is believed that no
    Transformer of fixed depth solves it at every length. A4xZ5 is solvable and does not
    commute, Z60 commutes; both have the 60 elements of A5.

    Elements are numbered as `ropejax.tasks.groups` says; 0 is the identity.

    Attributes:
        group_name: one of Z60, S3, S4, S5, A4, A5, A4xZ5.
        symbols: the input is uniform "elements"; or "generators", where symbol 0 is the
            identity and i the i-th generator, uniform too (without the identity, the
            length alone would tell a part of the answer).
        answers: "last" asks for the whole product behind the input; "each" for the
            product up to each symbol, at the symbol itself.

    Examples:
        21 40 25 -> 5    (A5; 21 40 is 13, and 40 21 is 33)
        7 -> 7

    References:
        Merrill, Petty and Sabharwal 2024, arXiv 2404.08819, and the published code,
        src/generate_data.py, whose answers are "each"; Liu et al. 2023, arXiv
        2210.10749, for generators.

    Departures:
        Rows are independent draws, where the published code samples without
        repetition; elements are numbered otherwise than there.
    """

    title = "Word Problem"
    summary = "the product of elements of a group such as A5: tracking a state"
    group = "state tracking"

    group_name: str = "A5"
    symbols: str = "elements"
    answers: str = "last"

    def __post_init__(self):
        check_choice("group_name", self.group_name, groups.GENERATORS)
        check_choice("symbols", self.symbols, ("elements", "generators"))
        check_choice("answers", self.answers, ("last", "each"))

    @property
    def in_place(self) -> bool:
        """Whether each product is asked for, where its last factor is."""
        return self.answers == "each"

    @property
    def input_vocab(self) -> int:
        """The elements, or the identity and the generators."""
        if self.symbols == "elements":
            return self.output_vocab
        return 1 + len(groups.GENERATORS[self.group_name])

    @property
    def output_vocab(self) -> int:
        """The elements."""
        return len(groups.elements(self.group_name))

    def output_length(self, length):
        """One symbol; none behind the input if answers are in place."""
        return 0 * length + (not self.in_place)

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        inputs = draws.symbols(rng, max_length, self.input_vocab)
        factors = inputs
        if self.symbols == "generators":
            numbers = (0, *groups.generator_numbers(self.group_name))
            factors = jnp.asarray(numbers, jnp.int32)[inputs]
        table = jnp.asarray(groups.table(self.group_name))
        products = jax.lax.associative_scan(lambda p, q: table[p, q], factors)
        if self.in_place:
            return Example(inputs, products)
        return Example(inputs, products[length - 1][None])
