"""A few symbols at random places among others, the same for every padded size."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt32


def chosen_places(
    words: UInt32[Array, " X"],
    length: int | Int[Array, ""],
    count: int | Int[Array, ""],
) -> Bool[Array, " X"]:
    """Chooses `count` of the first `length` places, every choice equally likely.

    Places are ranked by a random word each; two equal words, which keep their order,
    are no bias that could be measured.

    Args:
        words: a uniform word a place.
        length: number of places to choose from; may be traced.
        count: number of places to choose, at most `length`; may be traced.

    Returns:
        True at chosen places.
    """
    place = jnp.arange(words.shape[0])
    ranked = jnp.where(place < length, words, jnp.uint32(2**32 - 1))
    rank = jnp.argsort(jnp.argsort(ranked, stable=True), stable=True)
    return rank < count


def spread(
    symbols: Int[Array, " Y"], places: Bool[Array, " X"], filler: Int[Array, " X"] | int
) -> Int[Array, " X"]:
    """Puts symbols, in order, at the places that are True, and `filler` elsewhere."""
    number = jnp.cumsum(places.astype(jnp.int32)) - 1
    index = jnp.clip(number, 0, symbols.shape[0] - 1)
    return jnp.where(places, symbols[index], filler)
