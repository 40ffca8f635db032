"""The symbol that a model answers, and what it answers where a logit is NaN: none."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

NO_SYMBOL = -1
"""Answered where a logit is NaN. It is the target of no task, so it is never right."""


def likeliest(logits: Float[Array, "*B V"]) -> Int[Array, "*B"]:
    """Returns the symbol of the largest logit, or `NO_SYMBOL` where a logit is NaN.

    The index of a largest number is 0 where a number is NaN, so that a model that is
    lost altogether would be right wherever the target is symbol 0.

    Args:
        logits: one for each symbol, `[*B, V]`; the first of equal ones is taken.

    Returns:
        Symbols `[*B]`, int32.
    """
    symbols = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return jnp.where(jnp.isnan(logits).any(axis=-1), NO_SYMBOL, symbols)
