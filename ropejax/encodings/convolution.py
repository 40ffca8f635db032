"""A short causal convolution along a sequence, channel by channel.

Every token takes in a few tokens before it, with the same taps everywhere: what PaTH's
reflections are made of, and, in models, queries, keys and values
(`ropejax.nn.token_shifts`). Neighbours are neighbours by index, wherever they are
stored; padding is passed over, other segments count for nothing, and what later chunks
need is handed on.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ropejax.encodings.sequence_order import (
    in_one_order,
    in_sequence,
    in_storage,
    without_padding,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float

Past = tuple[Float[Array, "B P *F"], Array | None]
"""The last P = W - 1 inputs, and the segment of each, None where there are none."""


def causal_convolution(
    u: Float[Array, "B L *F"],
    taps: Float[Array, " W *F"],
    where: Tokens,
    title: str,
    past: Past | None = None,
) -> tuple[Float[Array, "B L *F"], Past]:
    """Returns `sum over back of taps[-1 - back] u[t - back]`, and the past.

    Before the first token of a segment there are zeros. At padding, the result means
    nothing.

    Args:
        u: inputs, float32, tokens on axis 1, in any order.
        taps: factors of each channel, `[W, *F]`, that of the token itself last.
        where: where the tokens are.
        title: the method's name, for messages.
        past: what the call before this one returned, for tokens that follow; None where
            there are none before.

    Returns:
        The convolution, stored as u is, and the past of the tokens to come: the last
        `W - 1` inputs that are no padding.

    Raises:
        ValueError: if an index is known to repeat in a row, or some tokens have
            segments and others have none.
    """
    u = in_one_order(without_padding(u, where), where, title)
    valid, segments = (
        None if part is None else in_sequence(part, where, axis=1)
        for part in (where.valid, where.segments)
    )
    out, past = _ordered(u, taps, valid, segments, past)
    return in_storage(out, where, axis=1), past


def _ordered(u, taps, valid, segments, past: Any):
    """The same of tokens in their order."""
    (batch, length), before = u.shape[:2], taps.shape[0] - 1
    if segments is not None:
        segments = jnp.broadcast_to(segments, (batch, length))
    if valid is not None:
        valid = jnp.broadcast_to(valid, (batch, length))
        real_first = jnp.argsort(~valid, axis=1, stable=True)
        u, segments = jax.tree.map(lambda x: _rows_at(x, real_first), (u, segments))
    if past is None:
        nothing = jnp.zeros((batch, before, *u.shape[2:]), u.dtype)
        # Zeros count for nothing, whatever segment they are of.
        whose = segments if segments is None else segments[:, :1].repeat(before, axis=1)
        past = nothing, whose
    if (past[1] is None) != (segments is None):
        raise ValueError(
            "tokens must have segments if those before them, which the state is of, "
            "had some, and none if not; give segments with every chunk, or with none."
        )
    known = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b], axis=1), past, (u, segments)
    )
    out = u * taps[-1][None, None]
    for back in range(1, before + 1):
        earlier, whose = jax.tree.map(
            lambda x, first=before - back: x[:, first : first + length], known
        )
        if segments is not None:
            same = (whose == segments).reshape(batch, length, *[1] * (u.ndim - 2))
            earlier = jnp.where(same, earlier, 0.0)
        out = out + earlier * taps[-1 - back][None, None]
    if valid is None:
        return out, jax.tree.map(lambda x: x[:, -before:], known)
    last = valid.sum(axis=1, keepdims=True) + jnp.arange(before)[None]
    out = _rows_at(out, jnp.argsort(real_first, axis=1))
    return out, jax.tree.map(lambda x: _rows_at(x, last), known)


def _rows_at(x: Array, at: Array) -> Array:
    """Returns the tokens at given places of each row."""
    return jax.vmap(lambda row, places: row[places])(x, at)
