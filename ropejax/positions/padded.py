"""Padded rows: positions count real tokens, not places in the array.

With padding on the left, a token's place is not its position: counting places gives one
prompt other positions, and other logits, in every batch it stands in. Both what a model
sees (`positions`) and the order by which masks go (`Tokens.index`) must count real
tokens.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.positions.rows import real_places


def count_real(valid: Bool[Array, "B L"]) -> Int[Array, "B L"]:
    """Returns, at each real token, how many real tokens stand before it.

    Args:
        valid: False at padding, on either side or in between, `[B, L]`.

    Returns:
        Positions `[B, L]`, int32. Padding has the position of the real token before it,
        or 0: in range, but it means nothing.
    """
    return jnp.maximum(jnp.cumsum(valid.astype(jnp.int32), axis=1) - 1, 0)


def right_padded(lengths: Int[Array, " B"], num_tokens: int) -> Bool[Array, "B L"]:
    """Returns True at the real tokens of rows that are padded on the right.

    Args:
        lengths: number of real tokens in each row, `[B]`; may be traced.
        num_tokens: the padded length L (static).

    Returns:
        Validity `[B, L]`.

    Raises:
        ValueError: if known lengths leave 0 .. L.
    """
    return real_places(lengths, num_tokens)


def left_padded(lengths: Int[Array, " B"], num_tokens: int) -> Bool[Array, "B L"]:
    """Returns True at the real tokens of rows that are padded on the left.

    Args:
        lengths: number of real tokens in each row, `[B]`; may be traced.
        num_tokens: the padded length L (static).

    Returns:
        Validity `[B, L]`.

    Raises:
        ValueError: if known lengths leave 0 .. L.
    """
    return jnp.flip(real_places(lengths, num_tokens), axis=1)
