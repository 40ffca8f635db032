"""Random bits that are a function of integers: the same in any block, engine and shard.

A generator that walks through an array gives an element other bits when the array is
cut in other blocks. A hash of (seed, row, column) does not, needs no memory, and works
on traced indices.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32


def mix(x: UInt32[Array, "*S"]) -> UInt32[Array, "*S"]:
    """Returns each word with its bits mixed: the finalizer of MurmurHash3 (Appleby)."""
    x = x ^ (x >> 16)
    x = x * jnp.uint32(0x85EBCA6B)
    x = x ^ (x >> 13)
    x = x * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def random_bits(*words: int | Int[Array, "*S"]) -> UInt32[Array, "*S"]:
    """Returns 32 random bits for every combination of the broadcast integer words.

    Args:
        *words: integers or integer arrays that broadcast; equal words give equal bits.
    """
    state = jnp.uint32(0x9E3779B9)
    for word in words:
        if isinstance(word, int):
            word = word % 2**32
        state = mix(state * jnp.uint32(5) ^ mix(jnp.asarray(word).astype(jnp.uint32)))
    return state
