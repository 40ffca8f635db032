"""Random expressions with brackets, drawn and evaluated for all positions at once.

The grammar of the modular-arithmetic tasks (the public code of Deletang et al. 2022,
tasks/dcf/modular_arithmetic_brackets.py). An expression of n symbols is

    n = 1: d      n = 3: (d)      n >= 5: (A o B), A of m symbols, B of n - 3 - m,
    n = 2: -d     n = 4: (-d)             m uniform in 1 .. n - 4

with uniform digits d and operators o. Each position descends from the whole expression
to the smallest part that holds it, all positions together: as many rounds as the tree
is deep, which is of the order of log(n). Then the values climb back as many rounds.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, UInt32

from ropejax.tasks import draws
from ropejax.typing import Rng


class Codes(NamedTuple):
    """The input symbols of the signs; digits are 0 .. modulus - 1."""

    plus: int
    minus: int
    times: int | None  # None: expressions without multiplication
    opening: int
    closing: int


class Expression(NamedTuple):
    """A drawn expression.

    Attributes:
        symbols: input symbols, `[P]`; zero past the expression's size.
        is_digit: True where a digit stands, `[P]`.
        value: the expression's value modulo `modulus`.
    """

    symbols: Int[Array, " P"]
    is_digit: Bool[Array, " P"]
    value: Int[Array, ""]


class _Parts(NamedTuple):
    """At each position, the part of the expression that holds it.

    Attributes:
        first: the part's first position.
        size: the part's number of symbols.
        left: if it splits, the number of symbols of its left operand.
    """

    first: Int[Array, " P"]
    size: Int[Array, " P"]
    left: Int[Array, " P"]


def draw(
    rng: Rng, size: Int[Array, ""], max_size: int, modulus: int, codes: Codes
) -> Expression:
    """Draws an expression of `size` symbols from the grammar above.

    Args:
        rng: PRNG key.
        size: number of symbols; traced; a `size` below 1 gives an empty expression.
        max_size: number of positions of the result (static).
        modulus: number of digits, 2 .. `draws.LARGEST_MODULUS`.
        codes: the input symbols of the signs.

    Returns:
        The expression and its value.
    """
    # A position has one role (a bracket that splits, an operator, a digit, or none with
    # a choice), so one word for each position decides everything, and is used once.
    words = draws.words(rng, max_size)
    place = jnp.arange(max_size)
    parts, depth = _descend(words, size)

    offset = place - parts.first
    splits = parts.size >= 5
    is_operator = splits & (offset == parts.left + 1)
    # A leaf is one of d, -d, (d), (-d): its digit stands at offset size // 2.
    is_digit = ~splits & (parts.size > 0) & (offset == parts.size // 2)
    is_signed = parts.size % 2 == 0
    has_brackets = parts.size >= 3

    digits = draws.below(words, modulus)
    operators = draws.below(words, 2 if codes.times is None else 3)
    signs = (codes.plus, codes.minus, codes.times)[: 2 if codes.times is None else 3]
    symbols = jnp.full(max_size, codes.minus)  # what is nothing else is a leaf's minus
    symbols = jnp.where(is_digit, digits, symbols)
    symbols = jnp.where(is_operator, jnp.asarray(signs)[operators], symbols)
    symbols = jnp.where(has_brackets & (offset == 0), codes.opening, symbols)
    symbols = jnp.where(
        has_brackets & (offset == parts.size - 1), codes.closing, symbols
    )
    symbols = jnp.where(place < size, symbols, 0)

    digit = digits[jnp.minimum(place + parts.size // 2, max_size - 1)]
    leaf_values = jnp.where(is_signed, -digit, digit) % modulus
    values = _climb(parts, depth, operators, leaf_values, modulus)
    return Expression(symbols, is_digit, values[0])


def _descend(
    words: UInt32[Array, " P"], size: Int[Array, ""]
) -> tuple[_Parts, Int[Array, ""]]:
    """Splits parts until each position is in a leaf or is a sign of its own part.

    Returns:
        The parts and the depth of the tree, the number of rounds that split any.
    """
    place = jnp.arange(words.shape[0])

    def left_size(first, size):
        # The opening bracket's word splits its part.
        return 1 + draws.below(words[first], jnp.maximum(size - 4, 1))

    def split(state):
        first, size, depth, _ = state
        left = left_size(first, size)
        offset = place - first
        splits = size >= 5
        in_left = splits & (offset >= 1) & (offset <= left)
        in_right = splits & (offset >= left + 2) & (offset <= size - 2)
        first += jnp.where(in_left, 1, jnp.where(in_right, left + 2, 0))
        size = jnp.where(in_right, size - 3 - left, jnp.where(in_left, left, size))
        progress = jnp.any(in_left | in_right)
        return first, size, depth + progress, progress

    size = jnp.where(place < size, size, 0)
    start = (jnp.zeros_like(place), size, jnp.zeros((), jnp.int32), jnp.array(True))
    first, size, depth, _ = lax.while_loop(lambda state: state[-1], split, start)
    return _Parts(first, size, left_size(first, size)), depth


def _climb(
    parts: _Parts,
    depth: Int[Array, ""],
    operators: Int[Array, " P"],
    leaf_values: Int[Array, " P"],
    modulus: int,
) -> Int[Array, " P"]:
    """The value of each part, at its first position; other positions are meaningless.

    All parts are combined in every round; after r rounds those of height r are right.
    """
    max_size = leaf_values.shape[0]
    place = jnp.arange(max_size)
    splits = (parts.size >= 5) & (place == parts.first)
    at_operator = jnp.minimum(place + parts.left + 1, max_size - 1)
    operator = operators[at_operator]
    right_first = jnp.minimum(at_operator + 1, max_size - 1)

    def combine(_, values):
        left, right = jnp.roll(values, -1), values[right_first]
        result = jnp.where(operator == 0, left + right, left - right)
        result = jnp.where(operator == 2, left * right, result) % modulus
        return jnp.where(splits, result, values)

    return lax.fori_loop(0, depth, combine, leaf_values)
