"""Placing rows whose padding does not stand behind their tokens.

Position schemes take rows as tasks make them: tokens first, padding behind. Of a row
with padding elsewhere, the scheme must see the tokens alone, in their order, and what
it says of them must go back to the places where they stand. The row is then placed as
it would be without padding.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from ropejax.positions.base import Placement, PositionScheme
from ropejax.positions.padded import count_real
from ropejax.typing import Rng


def place_real(
    scheme: PositionScheme,
    rng: Rng,
    valid: Bool[Array, "B P"],
    *,
    num_layers: int = 1,
    tokens: Int[Array, "B P"] | None = None,
) -> Placement:
    """Places the real tokens of rows, wherever padding stands.

    A real token gets the position that it has in its row without padding.

        placement = place_real(scheme, rng, valid, num_layers=6, tokens=tokens)
        logits = model(tokens, placement, valid=valid, left_padded=True)

    Args:
        scheme: where tokens are said to be.
        rng: PRNG key; see `PositionScheme.__call__`.
        valid: False at padding, before, behind or between the tokens, `[B, P]`. A table
            of distances (`Randomized` of distances) goes by places, so that with one
            no padding may stand between tokens.
        num_layers: number of layers, for schemes that draw once a layer.
        tokens: the symbols `[B, P]`, as they stand, for schemes that read them
            (Abacus).

    Returns:
        A `Placement` with `by_place`. What it says of padding is in range but means
        nothing.

    Raises:
        ValueError: if `valid` is not boolean `[B, P]`, or as the scheme does.
    """
    valid = jnp.asarray(valid)
    if valid.ndim != 2 or valid.dtype != bool:
        raise ValueError(
            f"valid must be boolean [B, P], False at padding, got {valid.dtype} of "
            f"shape {valid.shape}."
        )
    if tokens is not None:
        real_first = jnp.argsort(~valid, axis=1, stable=True)
        tokens = jnp.take_along_axis(tokens, real_first, axis=1)
    placement = scheme(
        rng,
        jnp.sum(valid, axis=1, dtype=jnp.int32),
        num_tokens=valid.shape[1],
        num_layers=num_layers,
        tokens=tokens,
    )
    rank = count_real(valid)
    back = lambda array: _at(array, rank)
    positions = placement.positions
    if positions is None and placement.distances is None:
        positions = rank
    elif positions is not None:
        positions = (
            jax.vmap(back)(positions) if placement.per_layer else back(positions)
        )
    streams = jax.tree.map(back, placement.streams)
    return dataclasses.replace(
        placement, positions=positions, streams=streams, by_place=True
    )


def _at(array: Shaped[Array, "#B P *A"], rank: Int[Array, "B P"]) -> Array:
    """What an array says of the token of each rank, in every row."""
    array = jnp.broadcast_to(array, (rank.shape[0], *array.shape[1:]))
    return jax.vmap(lambda row, at: row[at])(array, rank)
