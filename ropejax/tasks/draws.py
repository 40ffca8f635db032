"""Uniform symbols from few random bits, the same for every padded size.

A row must not change when it is padded further. One-dimensional draws have that
property: with JAX's default threefry keys (`jax_threefry_partitionable`), the first
words of a longer draw are the words of a shorter one. Two-dimensional draws do not have
it, so samplers draw one-dimensionally, one row at a time, under `vmap`. Keys of other
kinds ("rbg", faster on TPUs) do not have it either: their rows are as random, but
others for every padded size, and under `vmap` others beside other rows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from ropejax.typing import Rng

MAX_BOUND = 2**16
"""The largest bound of `below`, hence the longest length and the largest alphabet."""

LARGEST_MODULUS = 2**14
"""The largest modulus of arithmetic tasks: their products stay within 32 bits."""


def words(rng: Rng, count: int) -> UInt32[Array, " count"]:
    """Draws `count` words of 32 independent fair bits each."""
    return jax.random.bits(rng, (count,), jnp.uint32)


def below(
    word: UInt32[Array, "*W"], bound: int | Int[Array, "..."]
) -> Int[Array, "*W"]:
    """Maps uniform 32-bit words to uniform integers: floor(word * bound / 2^32).

    No value's probability differs from 1 / bound by more than the fraction
    bound / 2^32 (none at all if `bound` is a power of two).

    Args:
        word: uniform words, any shape.
        bound: number of values, 1 .. `MAX_BOUND`; may be traced.

    Returns:
        Integers in 0 .. bound - 1.
    """
    # The product has up to 48 bits; two 16-bit halves keep it within 32-bit arithmetic.
    bound = jnp.asarray(bound).astype(jnp.uint32)
    high, low = word >> 16, word & 0xFFFF
    return ((high * bound + ((low * bound) >> 16)) >> 16).astype(jnp.int32)


def symbols(rng: Rng, count: int, base: int) -> Int[Array, " count"]:
    """Draws `count` independent uniform symbols in 0 .. base - 1.

    A word is read as a fraction of 2^32 and its leading digits in `base` are the
    symbols; drawing bits is most of the cost of a sampler. With k symbols a word, a
    word's symbols have their joint probability base^-k within a fraction base^k / 2^32:
    at most 2^-20, or `base` / 2^32 for alphabets above 2^12; none for powers of two.

    Args:
        rng: PRNG key.
        count: number of symbols (static).
        base: size of the alphabet, 2 .. `MAX_BOUND`.

    Returns:
        Symbols, `[count]`; a smaller `count` gives the first of the same symbols.
    """
    per_word = _symbols_per_word(base)
    fractions = words(rng, -(-count // per_word))
    # Multiplying by base^i drops the leading i digits: they overflow out of the word.
    powers = jnp.asarray([base**i for i in range(per_word)], jnp.uint32)
    return below(fractions[:, None] * powers[None, :], base).reshape(-1)[:count]


def _symbols_per_word(base: int) -> int:
    """The most symbols that a word gives without bias, or with a negligible one."""
    if base & (base - 1) == 0:
        return 32 // (base.bit_length() - 1)
    per_word = 1
    while base ** (per_word + 1) <= 2**12:
        per_word += 1
    return per_word


def check_alphabet(name: str, size: int, largest: int = MAX_BOUND) -> None:
    """Raises ValueError unless 2 <= `size` <= `largest`; `name` is reported."""
    if not 2 <= size <= largest:
        raise ValueError(f"{name} must lie in 2 .. {largest}, got {name}={size}.")
