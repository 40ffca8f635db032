"""Dyck: which bracket has to be closed next?"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Task
from ropejax.tasks.scattered import chosen_places
from ropejax.typing import Rng
from ropejax.whole_numbers import whole_number


@dataclasses.dataclass(frozen=True)
class Dyck(Task):
    """Tells of a beginning of a well-nested string which kind of bracket closes next.

    Brackets are of `num_kinds` kinds, and at most `max_depth` are open at once. The
    input is A ( B: the bracket ( is the innermost open one, so its kind is the answer.
    B, well nested, has an even number of symbols, uniform among those that fit, so that
    bracket is at any distance alike. Kinds of opening brackets are uniform, and so is
    the answer. Symbols 0, 1, ... open, `num_kinds`, `num_kinds` + 1, ... close the same
    kinds; the answer is the kind's number.

    Depths are those of a fair walk held within bounds (it turns round at them): from 0
    to `max_depth - 2` in A; in B, of a walk that returns to where it began, from the
    depth of ( to `max_depth`.

    Attributes:
        num_kinds: kinds of brackets.
        max_depth: the most brackets that are open at once, 3 to 2^16.

    Examples:
        ([]< -> 3    (the kinds are ( [ { < in this order)
        ({}[] -> 0
        { -> 2

    References:
        Hewitt et al. 2020, arXiv 2010.07515 (Dyck-(k,m)), and the published code for
        the walk; Murty et al. 2023, arXiv 2305.18741, who score closing brackets.

    Departures:
        Of a string drawn by the walk alone, every second beginning ends with the
        bracket that is asked for; distances are uniform here instead. One bracket is
        asked for in a row.
    """

    title = "Dyck"
    summary = "the kind of the bracket that has to be closed next"
    group = "state tracking"

    num_kinds: int = 4
    max_depth: int = 10

    def __post_init__(self):
        draws.check_alphabet("num_kinds", self.num_kinds)
        whole_number("max_depth", self.max_depth, least=3, most=draws.MAX_BOUND)

    @property
    def input_vocab(self) -> int:
        """Opening brackets, then closing ones."""
        return 2 * self.num_kinds

    @property
    def output_vocab(self) -> int:
        """The kinds."""
        return self.num_kinds

    def output_length(self, length):
        """One symbol."""
        return 1 + 0 * length

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        inner_rng, before_rng, inside_rng, kinds_rng = jax.random.split(rng, 4)
        word = draws.words(inner_rng, 1)[0]
        inside = 2 * draws.below(word, (length - 1) // 2 + 1)  # symbols of B
        asked = length - 1 - inside  # the place of the bracket that is asked for
        place = jnp.arange(max_length)

        coins = draws.symbols(before_rng, max_length, 2) == 1
        before = _held(_walk(coins), self.max_depth - 2)
        outside = jnp.where(asked > 0, before[asked - 1], 0)
        ups = chosen_places(draws.words(inside_rng, max_length), inside, inside // 2)
        deeper = _held(_walk(ups), self.max_depth - 1 - outside)
        nested = outside + 1 + deeper[jnp.maximum(place - asked - 1, 0)]
        depth = jnp.where(place < asked, before, nested)
        depth = jnp.where(place == asked, outside + 1, depth)

        opens = depth > jnp.pad(depth[:-1], (1, 0))
        kinds = draws.symbols(kinds_rng, max_length, self.num_kinds)
        closed = _closed_kinds(kinds, opens, depth)
        inputs = jnp.where(opens, kinds, self.num_kinds + closed)
        return Example(inputs, kinds[asked][None])


def _walk(ups: Bool[Array, " X"]) -> Int[Array, " X"]:
    """Where a walk from 0 is after each step, up by 1 or down."""
    return jnp.cumsum(jnp.where(ups, 1, -1))


def _held(walk: Int[Array, " X"], top: int | Int[Array, ""]) -> Int[Array, " X"]:
    """The walk folded into 0 .. `top`: it turns round at both, and is fair between."""
    folded = walk % (2 * top)
    return jnp.minimum(folded, 2 * top - folded)


def _closed_kinds(
    kinds: Int[Array, " X"], opens: Bool[Array, " X"], depth: Int[Array, " X"]
) -> Int[Array, " X"]:
    """At each closing bracket, the kind of the one that it closes.

    Brackets between two depths open and close in turn. In order of the deeper of the
    two, and then of place, what a bracket closes is the one before it.
    """
    order = jnp.argsort(jnp.where(opens, depth, depth + 1), stable=True)
    previous = jnp.roll(kinds[order], 1)
    return jnp.zeros_like(kinds).at[order].set(previous)
