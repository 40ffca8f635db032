"""Dropout with cheap random bits: the same mask on any device, mesh or vmap.

JAX's generator draws 32 bits an element through twenty rounds, which on a CPU costs
more than a small model's own work. A dropout mask needs far less: here one draw from
the key seeds an integer hash of each element's index, which XLA fuses with the
multiplication.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped, UInt32

from ropejax.masks.hashing import mix
from ropejax.typing import Rng


def dropout(
    x: Float[Array, "*shape"],
    rate: float,
    rng: Rng | None,
    first_row: int | Int[Array, ""] = 0,
    index: Int[Array, "#B L"] | None = None,
) -> Float[Array, "*shape"]:
    """Zeroes each element with probability `rate`, and divides the rest by `1 - rate`.

    An element is kept where `hash(row, place; seeds) >= rate * 2**32`, the seeds two
    words drawn from `rng`: the mask depends on the key and on where in its row an
    element stands, not on devices, nor on how far rows are padded.

    Args:
        x: any array.
        rate: probability of dropping an element, in [0, 1).
        rng: PRNG key, or None at evaluation: then x comes back as it is.
        first_row: row of the whole batch with which x starts.
        index: where tokens, the second axis, are stored in another order than they
            have: the order that they have, so that the same elements are dropped.

    Returns:
        An array like `x`.

    Raises:
        ValueError: if `rate` is outside [0, 1).

    References:
        Srivastava et al. 2014, JMLR 15. The hash is two rounds of the finalizer of
        MurmurHash3 (Appleby).
    """
    check_rate(rate)
    if rng is None or rate == 0:
        return x
    seeds = jax.random.bits(rng, (2,), jnp.uint32)
    seeds = seeds.at[1].add(jnp.asarray(first_row, jnp.uint32))
    keep = hashed_bits(seeds, x.shape, index) >= jnp.uint32(round(rate * 2**32))
    return jnp.where(keep, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)


def check_rate(rate: float, name: str = "dropout rate") -> None:
    """Raises ValueError unless `rate` is a probability of dropping below one."""
    if not 0 <= rate < 1:
        raise ValueError(f"{name} must be in [0, 1), got {rate}.")


def hashed_bits(
    seeds: UInt32[Array, "2"],
    shape: tuple[int, ...],
    index: Int[Array, "#B L"] | None = None,
) -> Shaped[Array, "..."]:
    """Returns 32 hashed bits for each element of `shape`, uint32.

    Rows (the first axis) are hashed apart from the place within a row, and places are
    counted from the row's start, so that longer rows only add bits at their end.

    Args:
        seeds: two random words.
        shape: the wanted shape, rows of fewer than 2**32 elements.
        index: what to count along the second axis; its places if None.
    """
    place = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(1, len(shape))):
        along = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        if axis == 1 and index is not None:
            along = index.reshape(index.shape + (1,) * (len(shape) - 2))
            along = along.astype(jnp.uint32)
        place += along * jnp.uint32(stride)
        stride *= shape[axis]
    row = jnp.zeros((), jnp.uint32)
    if shape:
        row = jnp.arange(shape[0], dtype=jnp.uint32)
        row = row.reshape((-1,) + (1,) * (len(shape) - 1))
    return mix(mix(place + seeds[0]) ^ mix(row + seeds[1]))
