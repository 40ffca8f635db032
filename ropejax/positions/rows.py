"""The rows of a padded batch: which places hold real tokens, and one draw for each row.

Rows are padded on the right to a static length P; `lengths` says how many of its places
each row really uses. `lengths` may be traced, so one compiled shape serves all of them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ropejax.seeds import check_key
from ropejax.typing import Rng
from ropejax.whole_numbers import check_whole, whole_number


def real_places(lengths: Int[Array, " B"], num_tokens: int) -> Bool[Array, "B P"]:
    """Returns True at the real tokens of rows that are padded on the right.

    Args:
        lengths: number of real tokens in each row, `[B]`; may be traced.
        num_tokens: the padded length P (static).

    Returns:
        `place < length`, `[B, P]`.

    Raises:
        ValueError: if `lengths` has not one axis, is not of integers, or known lengths
            leave 0 .. P.
    """
    num_tokens = whole_number("num_tokens", num_tokens, least=0)
    known = check_whole("lengths", lengths)
    if known is not None and known.size:
        low, high = known.min(), known.max()
        if low < 0 or high > num_tokens:
            raise ValueError(
                f"lengths run from {low} to {high}, but rows hold 0 to {num_tokens=} "
                "tokens; raise num_tokens or drop the rows outside."
            )
    lengths = jnp.asarray(lengths, jnp.int32)
    if lengths.ndim != 1:
        raise ValueError(
            f"lengths must have one axis, one entry a row, got shape {lengths.shape}."
        )
    return jnp.arange(num_tokens, dtype=jnp.int32)[None] < lengths[:, None]


def draw_rows(
    draw: Callable[[Rng], Array], rng: Rng, num_rows: int, *, per_sequence: bool
) -> Array:
    """Returns `draw(rng)`, once for all rows or once for each.

    Row b draws with `fold_in(rng, b)`, so it does not depend on how many rows there
    are, and no two rows share a key.

    Args:
        draw: a function of a PRNG key.
        rng: PRNG key.
        num_rows: B (static).
        per_sequence: whether each row has a draw of its own.

    Returns:
        Draws with a new leading axis: B, or 1 if rows share one.

    Raises:
        ValueError: if `rng` is no PRNG key.
    """
    check_key(rng)
    if not per_sequence:
        return draw(rng)[None]
    return jax.vmap(lambda row: draw(jax.random.fold_in(rng, row)))(
        jnp.arange(num_rows)
    )


def draw_tokens(draw: Callable[[Rng], Array], rng: Rng, num_tokens: int) -> Array:
    """Returns `draw(rng)` once for each token, whatever the number of tokens.

    A draw of shape `[num_tokens]` from one key may change with its shape; here token t
    draws with `fold_in(rng, t)`, so that longer padding never changes a row.

    Args:
        draw: a function of a PRNG key.
        rng: PRNG key.
        num_tokens: number of tokens (static).

    Returns:
        Draws with a new leading axis, one for each token.
    """
    return jax.vmap(lambda place: draw(jax.random.fold_in(rng, place)))(
        jnp.arange(num_tokens)
    )


def unit_draw(rng: Rng, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
    """Returns uniform draws from [0, 1), float32: the same ones where x64 is on."""
    return jax.random.uniform(rng, shape, jnp.float32)


def uniform_below(
    unit: Float[Array, "#B"], bound: Int[Array, " B"]
) -> Int[Array, " B"]:
    """Returns integers `0 .. bound - 1` from uniform draws in [0, 1); 0 if none exist.

    For bounds that depend on traced lengths: the draw itself does not depend on them.

    Args:
        unit: uniform draws, `[B or 1]`.
        bound: how many integers there are to choose from, `[B]`, at most 2^23.

    Returns:
        Integers `[B]`, int32.
    """
    scaled = jnp.floor(unit * bound).astype(jnp.int32)
    return jnp.clip(scaled, 0, jnp.maximum(bound - 1, 0))


def draw_starts(
    rng: Rng, room: Int[Array, " B"], *, random: bool, per_sequence: bool
) -> Int[Array, " B"]:
    """Returns where ids of each row begin: uniform over `1 .. room`, or at 1.

    Args:
        rng: PRNG key.
        room: how many starts a row has, `[B]`, at least 1.
        random: False for 1 always.
        per_sequence: whether each row has a draw of its own.

    Returns:
        Starts `[B]`.
    """
    if not random:
        return jnp.ones_like(room)
    unit = draw_rows(unit_draw, rng, room.shape[0], per_sequence=per_sequence)
    return 1 + uniform_below(unit, room)
