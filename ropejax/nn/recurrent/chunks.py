"""Sequences in chunks: a recurrence that keeps one state a chunk for its gradient.

A matrix a token is much more than a layer's activations. The backward pass keeps the
state at the start of each chunk, and walks each chunk again.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ropejax.typing import Array

CHUNK = 16
"""Tokens of a chunk; a power of two. Fastest of 8, 16, 32 and 64 on a CPU."""


def over_chunks(
    walk: Callable[[Any, tuple[Array, ...]], tuple[Any, Array]],
    state: Any,
    parts: tuple[Array, ...],
) -> Array:
    """Returns the outputs of a recurrence at all tokens.

    Args:
        walk: takes the state through a chunk, `(state, parts) -> (state, outputs)`,
            parts and outputs being `[C, B, ...]`.
        state: before the first token.
        parts: what is read at each token, `[B, L, ...]`. Behind the last one come
            zeros, whose outputs are left out.

    Returns:
        Outputs `[B, L, ...]`.
    """
    length = parts[0].shape[1]

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, -length % CHUNK)] + [(0, 0)] * (x.ndim - 2))
        x = jnp.moveaxis(x, 1, 0)
        return x.reshape(-1, CHUNK, *x.shape[1:])

    _, out = jax.lax.scan(jax.checkpoint(walk), state, tuple(map(cut, parts)))
    out = out.reshape(-1, *out.shape[2:])[:length]
    return jnp.moveaxis(out, 0, 1)
