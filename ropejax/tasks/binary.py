"""Binary numbers of any length on the device: drawing, adding, multiplying.

No machine integer holds the numbers of the binary tasks, so they are arrays: of bits
where the tasks see them, of limbs (digits in base 2^12, `LIMB_BITS`) where they are
computed with. Twelve bits leave room for a limb product and the carries into it in 32
bits. All arrays here are little-endian, the least significant digit first.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, UInt32

from ropejax.tasks import draws
from ropejax.typing import Rng

LIMB_BITS = 12
LIMB_BASE = 2**LIMB_BITS


def to_limbs(bits: Int[Array, " L"]) -> Int[Array, " M"]:
    """Groups bits into M = ceil(L / `LIMB_BITS`) limbs."""
    padded = jnp.pad(bits, (0, -bits.shape[0] % LIMB_BITS))
    weights = 2 ** jnp.arange(LIMB_BITS)
    return jnp.sum(padded.reshape(-1, LIMB_BITS) * weights[None, :], axis=1)


def to_bits(limbs: Int[Array, " M"], count: int) -> Int[Array, " L"]:
    """The lowest `count` bits of a number in limbs of 0 .. `LIMB_BASE` - 1."""
    bits = (limbs[:, None] >> jnp.arange(LIMB_BITS)[None, :]) & 1
    return _fitted(bits.reshape(-1), count)


def carry(limbs: Int[Array, " M"]) -> Int[Array, " M"]:
    """Brings limbs of any size and sign into 0 .. `LIMB_BASE` - 1, value unchanged.

    The value is taken modulo `LIMB_BASE`^M: what leaves the last limb is dropped.
    """

    def step(carried, limb):
        total = limb + carried
        return total >> LIMB_BITS, total & (LIMB_BASE - 1)  # floor and remainder

    return lax.scan(step, jnp.zeros((), limbs.dtype), limbs)[1]


def add(first: Int[Array, " L"], second: Int[Array, " L"]) -> Int[Array, " L+1"]:
    """The bits of first + second, one more than the summands have."""
    length = first.shape[0] + 1
    first, second = _fitted(first, length), _fitted(second, length)
    return to_bits(carry(to_limbs(first) + to_limbs(second)), length)


def multiply(first: Int[Array, " L"], second: Int[Array, " L"]) -> Int[Array, " 2*L"]:
    """The bits of first * second, by long multiplication limb by limb."""
    first_limbs, second_limbs = to_limbs(first), to_limbs(second)
    num_limbs = first_limbs.shape[0]
    second_limbs = _fitted(second_limbs, 2 * num_limbs)

    def step(product, limb):
        # product <- product * LIMB_BASE + limb * second, then one round of carries,
        # which brings limbs from below 2^25 back to below 2^14.
        product = jnp.pad(product[:-1], (1, 0)) + limb * second_limbs
        carries = jnp.pad(product[:-1] >> LIMB_BITS, (1, 0))
        return (product & (LIMB_BASE - 1)) + carries, None

    product = jnp.zeros_like(second_limbs)
    product, _ = lax.scan(step, product, first_limbs, reverse=True)
    return to_bits(carry(product), 2 * first.shape[0])


def num_digits(bits: Int[Array, " L"]) -> Int[Array, ""]:
    """Number of binary digits without leading zeros; 0 for the number 0."""
    return jnp.max(jnp.where(bits == 1, jnp.arange(bits.shape[0]) + 1, 0))


def nonzero(
    bits: Int[Array, " L"],
    start: int | Int[Array, ""],
    length: Int[Array, ""],
    word: UInt32[Array, ""],
) -> Int[Array, " L"]:
    """Makes uniform `bits` in [start, start + length) a uniform nonzero number.

    Zeros throughout are replaced by a uniform number of 1 .. 2^k - 1, k = min(length,
    30), made from the spare `word`. Up to 30 bits the result is uniform (within 2^-32,
    the division of the word); above, the rare replacement is not spread over all of
    them, by 2^-31 in total variation.

    Args:
        bits: independent fair bits.
        start: first place of the number.
        length: number of its bits; nothing changes if it is below 1.
        word: a uniform word, independent of `bits`.

    Returns:
        The bits, unchanged outside the number.
    """
    place = jnp.arange(bits.shape[0]) - start
    is_inside = (place >= 0) & (place < length)
    is_zero = ~jnp.any(is_inside & (bits == 1))
    size = jnp.clip(length, 1, 30).astype(jnp.uint32)
    number = 1 + word % ((jnp.uint32(1) << size) - 1)
    spare = (number >> jnp.clip(place, 0, 31).astype(jnp.uint32)) & 1
    return jnp.where(is_inside & is_zero, spare.astype(bits.dtype), bits)


def draw_pair(
    rng: Rng, length: Int[Array, ""], max_length: int, sign: int
) -> tuple[Int[Array, " X"], Int[Array, " X"], Int[Array, " X"]]:
    """Draws two positive numbers and the input that holds them, `length` symbols.

    The input is the first number, `sign`, the second number. The first has a uniform
    number of bits in 1 .. length - 2; both are uniform among positive numbers of their
    number of bits. At lengths 1 and 2, which hold no pair, the first number alone is
    drawn, uniform in 0 .. 2^length - 1, and the second is zero.

    Returns:
        The input, the first number and the second number, each `[X]`, with
        `X = max_length`.
    """
    head_rng, bits_rng = jax.random.split(rng)
    split_word, first_word, second_word = draws.words(head_rng, 3)
    has_pair = length >= 3
    first_length = 1 + draws.below(split_word, jnp.maximum(length - 2, 1))
    first_length = jnp.where(has_pair, first_length, length)
    second_start = first_length + 1
    second_length = length - second_start  # below 1 without a pair

    bits = draws.symbols(bits_rng, max_length, 2)
    place = jnp.arange(max_length)
    bits = jnp.where(has_pair, nonzero(bits, 0, first_length, first_word), bits)
    bits = nonzero(bits, second_start, second_length, second_word)
    first = jnp.where(place < first_length, bits, 0)
    from_second = jnp.roll(bits, -second_start)
    second = jnp.where(place < second_length, from_second, 0)
    return jnp.where(place == first_length, sign, bits), first, second


def _fitted(digits: Int[Array, " L"], count: int) -> Int[Array, " count"]:
    """The lowest `count` digits, zeros above the given ones."""
    return jnp.pad(digits[:count], (0, max(count - digits.shape[0], 0)))
