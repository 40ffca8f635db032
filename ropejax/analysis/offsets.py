"""Whether content looks the same elsewhere: hidden states at shifted positions.

A model whose encoding sees differences only cannot tell where a sequence begins. One
with absolute positions can, and at positions that training never reached its hidden
states may have little in common with those it learned to read.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ropejax.analysis.passes import embed, trace_layers
from ropejax.nn import TransformerSpec
from ropejax.positions.base import Placement
from ropejax.typing import Params


def offset_similarity(
    model: TransformerSpec,
    params: Params,
    tokens: Int[Array, "B L"],
    placement: Placement,
    offsets: Int[Array, " O"],
    *,
    valid: Bool[Array, "B L"] | None = None,
) -> Float[Array, "O M"]:
    """Returns the mean cosine between hidden states at positions p and p + offset.

    Args:
        model: how the model is made.
        params: its parameters.
        tokens: symbols, `[B, L]`.
        placement: where they are at offset 0.
        offsets: added to all positions, in tokens, `[O]`.
        valid: False at padding, `[B, L]`; None if there is none.

    Returns:
        Means over tokens, for each offset, of the embedded input and of the hidden
        states after each layer: `[O, layers + 1]`.
    """
    bound = model.bind(params)
    length = tokens.shape[1]

    def hidden(offset):
        where = shifted(placement, length, offset)
        x = embed(bound, tokens, where, valid=valid)
        return trace_layers(bound, x, where, valid=valid).hidden.astype(jnp.float32)

    start = hidden(jnp.int32(0))
    counted = jnp.ones(tokens.shape, bool) if valid is None else valid

    def compared(offset):
        other = hidden(offset)
        dot = jnp.sum(start * other, axis=-1)
        norms = jnp.linalg.norm(start, axis=-1) * jnp.linalg.norm(other, axis=-1)
        cosine = dot / jnp.maximum(norms, 1e-12)
        return jnp.sum(jnp.where(counted, cosine, 0), axis=(1, 2)) / counted.sum()

    return jax.lax.map(compared, jnp.asarray(offsets, jnp.int32))


def shifted(
    placement: Placement, length: int, offset: int | Int[Array, ""]
) -> Placement:
    """Returns a placement with all positions moved; tables of distances stay.

    Args:
        placement: where tokens are.
        length: number of tokens.
        offset: added to all positions, in tokens.
    """
    positions = placement.positions
    if positions is None and placement.distances is None:
        positions = jnp.arange(length, dtype=jnp.int32)[None]
    if positions is None:
        return placement
    moved = positions + jnp.asarray(offset).astype(positions.dtype)
    return dataclasses.replace(placement, positions=moved)
