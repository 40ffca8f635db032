"""Answers of varying length: symbols, an end symbol, zeros to the full length."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

END = 2
"""The end symbol, beside the answer's 0 and 1."""


def terminate(
    symbols: Int[Array, " Y"], count: Int[Array, ""]
) -> tuple[Int[Array, " Y"], Bool[Array, " Y"]]:
    """Ends an answer after its first `count` symbols.

    Args:
        symbols: the answer from index 0; entries from `count` on are ignored.
        count: number of symbols before the end symbol.

    Returns:
        The targets (`symbols`, then `END`, then zeros), `[Y]`, and the mask of what
        accuracy counts, the answer and its end symbol, `[Y]`.
    """
    place = jnp.arange(symbols.shape[0])
    targets = jnp.where(place < count, symbols, jnp.where(place == count, END, 0))
    return targets, place <= count
