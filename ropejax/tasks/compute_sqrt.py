"""Compute Sqrt: the floor of the square root of a binary number."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from ropejax.tasks import binary, draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.tasks.binary import LIMB_BASE, LIMB_BITS
from ropejax.typing import Rng


@dataclasses.dataclass(frozen=True)
class ComputeSqrt(Task):
    """Takes the floor of the square root of a binary number, leading bits first.

    The input is a uniform number in 1 .. 2^length - 1, big-endian, with leading zeros;
    the answer is its root in ceil(length / 2) binary digits, with leading zeros.

    Examples:
        100101 -> 110  (the root of 37 is 6.08...)
        111 -> 10      (the root of 7 is 2.64...)
        0001 -> 01     (the root of 1 is 1)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.3.
        google-deepmind/neural_networks_chomsky_hierarchy, tasks/cs/compute_sqrt.py.

    Departures:
        None (the public docstring gives 101 as the root of 37; its code gives 110).
    """

    title = "Compute Sqrt"
    summary = "the floor of the square root of a big-endian binary number"
    level = Level.CONTEXT_SENSITIVE

    @property
    def input_vocab(self) -> int:
        """0 and 1."""
        return 2

    @property
    def output_vocab(self) -> int:
        """0 and 1."""
        return 2

    def output_length(self, length):
        """Half of the input's length, rounded up."""
        return (length + 1) // 2

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        word_rng, bits_rng = jax.random.split(rng)
        bits = draws.symbols(bits_rng, max_length, 2)
        bits = binary.nonzero(bits, 0, length, draws.words(word_rng, 1)[0])
        bits = jnp.where(jnp.arange(max_length) < length, bits, 0)
        # Followed by zeros the number is scaled by a power of 2. With a zero in front
        # of an odd length it is a power of 4, 4^k; then the root is scaled by 2^k, and
        # begins with the bits of the root sought.
        room = max_length % 2
        aligned = jnp.where(
            length % 2 == 1,
            jnp.pad(bits, (1, 0))[: max_length + room],
            jnp.pad(bits, (0, room)),
        )
        return Example(bits, floor_sqrt(aligned))


def floor_sqrt(bits: Int[Array, " L"]) -> Int[Array, " R"]:
    """The floor of the square root of a big-endian binary number, exact at any length.

    Args:
        bits: the number, most significant bit first, `[L]`.

    Returns:
        The root in `R = ceil(L / 2)` bits, most significant bit first.
    """
    num_bits = bits.shape[0]
    num_root_bits = -(-num_bits // 2)
    bits = jnp.pad(bits, (num_bits % 2, 0))
    # To whole pairs of limbs: zeros behind multiply the root by a power of 2.
    bits = jnp.pad(bits, (0, -bits.shape[0] % (2 * LIMB_BITS)))
    # Without leading pairs of zeros, a fraction of 1 is at least 1/4, its root 1/2.
    leading_pairs = jnp.argmax(bits == 1) // 2
    limbs = binary.to_limbs(jnp.roll(bits, -2 * leading_pairs)[::-1])[::-1]
    root_limbs = _root_of_fraction(limbs)
    root = binary.to_bits(root_limbs[::-1], LIMB_BITS * root_limbs.shape[0])[::-1]
    is_root = (jnp.arange(root.shape[0]) >= leading_pairs) & jnp.any(bits == 1)
    return jnp.where(is_root, jnp.roll(root, leading_pairs), 0)[:num_root_bits]


def _root_of_fraction(limbs: Int[Array, " X"]) -> Int[Array, " M"]:
    """The first M = X / 2 limbs of the square root of a fraction in [1/4, 1).

    Limbs are fractional digits in base b = `LIMB_BASE`, the most significant first.
    Long-hand roots, a limb a step: with the root so far Q, of i limbs, and the exact
    remainder X - Q^2, the next limb is the remainder over 2 Q, rounded to the nearest
    integer in float32. Rounding makes limbs signed, so that a wrong guess is mended by
    the next limb: with e the error of Q in units of its last limb, the next error is at
    most 1/2 (the rounding) + e^2 / (2 Q b^(i-1)) (the linearisation) + 2^-8 (float32),
    that is at most 1/2, 0.76, 0.51, 0.51, ... A last error below 1 leaves two cases,
    told apart by the remainder's sign: Q, or Q less one unit.
    """
    num_limbs = limbs.shape[0] // 2
    index = jnp.arange(num_limbs)

    def leading(remainder):
        return remainder[0] * LIMB_BASE + remainder[1]

    def append(remainder, doubled, i, limb):
        """Subtracts (2 Q + limb) * limb, in place, and moves on by a limb."""
        divisor = jnp.where(index == i, limb, doubled)  # 2 Q + limb
        remainder = remainder - jnp.pad(limb * divisor, (1, num_limbs - 1))
        for _ in range(2):
            remainder = _round_carry(remainder)
        # The limb that moves out is small, or zero; it is kept in the one below it.
        remainder = jnp.append(remainder[1:].at[0].set(leading(remainder)), 0)
        return remainder, jnp.where(index == i, 2 * limb, doubled)

    def step(i, state):
        remainder, doubled, root = state
        guess = leading(remainder).astype(jnp.float32) / (2 * LIMB_BASE * root)
        limb = jnp.round(guess).astype(jnp.int32)
        root = root + limb * jnp.float32(LIMB_BASE) ** -(i + 1)
        return (*append(remainder, doubled, i, limb), root)

    first = jnp.round(jnp.sqrt(leading(limbs).astype(jnp.float32))).astype(jnp.int32)
    remainder, doubled = append(limbs, jnp.zeros_like(index), 0, first)
    # A root of zero only comes from a number of zero; the caller discards the result.
    root = jnp.maximum(first, 1).astype(jnp.float32) / LIMB_BASE
    state = lax.fori_loop(1, num_limbs, step, (remainder, doubled, root))
    remainder, doubled = state[:2]
    # In limbs of at most b / 2 + 2 the first that is not zero outweighs the rest.
    sign = jnp.sign(remainder[jnp.argmax(remainder != 0)])
    root_limbs = (doubled // 2).at[-1].add(jnp.minimum(sign, 0))
    return binary.carry(root_limbs[::-1])[::-1]


def _round_carry(limbs: Int[Array, " M"]) -> Int[Array, " M"]:
    """One round of carries towards limbs in -b/2 .. b/2; the first limb keeps all."""
    carries = (limbs + LIMB_BASE // 2) >> LIMB_BITS
    carries = carries.at[0].set(0)
    return limbs - carries * LIMB_BASE + jnp.pad(carries[1:], (0, 1))
