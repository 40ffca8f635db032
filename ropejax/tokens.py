"""One side of an attention: where its tokens are, in order and in position.

Two different things are kept apart. `index` is the order of tokens in their sequence:
masks and counts go by it. `positions` are what an encoding sees: they may be random,
repeated, fractional or on several axes. Nothing in ropejax infers either from an array
index, so packed, permuted, cached and sharded sequences are one case.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from ropejax.concrete import known_values
from ropejax.number_types import check_places, widened
from ropejax.padding import padding_before, padding_between
from ropejax.whole_numbers import whole_number

_PER_TOKEN = ("index", "positions", "segments", "valid", "streams", "features")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tokens:
    """What attention knows of its queries or its keys, apart from their content.

    Every array's leading axis is the batch, or 1 where rows agree. Integers of any type
    become int32, floating-point numbers float32; see Raises.

    Attributes:
        index: order in the sequence, from 0, `[B or 1, L]`.
        positions: position of each token, in tokens, `[B or 1, L]`, or `[B or 1, L, A]`
            for A axes.
        segments: tokens attend within equal segments only, `[B or 1, L]`.
        valid: False at padding, `[B or 1, L]`.
        streams: named further positions, each `[B or 1, L]` (Abacus: `digit`).
        features: what an encoding computed for each token (set by `ropejax.attention`).
        distances: a table of distances, increasing from 0, `[B or 1, n]`: tokens whose
            indices differ by d are `distances[d]` apart, whatever their positions.
        consecutive_index: static; True promises `index[t + 1] == index[t] + 1`.
        consecutive_positions: static; True promises the same of (one-axis) positions.

    Raises:
        ValueError: if an integer is known to leave int32, or positions, distances or
            streams are floating-point of less than 32 bits.
    """

    index: Int[Array, "#B L"]
    positions: Shaped[Array, "#B L"] | Shaped[Array, "#B L A"]
    segments: Int[Array, "#B L"] | None = None
    valid: Bool[Array, "#B L"] | None = None
    streams: dict[str, Shaped[Array, "#B L"]] | None = None
    features: Any = None
    distances: Shaped[Array, "#B n"] | None = None
    consecutive_index: bool = dataclasses.field(
        default=False, metadata={"static": True}
    )
    consecutive_positions: bool = dataclasses.field(
        default=False, metadata={"static": True}
    )

    def __post_init__(self):
        for name in ("index", "positions", "segments", "distances"):
            object.__setattr__(self, name, widened(name, getattr(self, name)))
        if isinstance(self.streams, dict):
            streams = {name: widened(name, ids) for name, ids in self.streams.items()}
            object.__setattr__(self, "streams", streams)

    @property
    def length(self) -> int:
        """Number of tokens on this side (static)."""
        return self.index.shape[1]

    def replace(self, **changes) -> "Tokens":
        """Returns a copy with some attributes changed.

        Args:
            **changes: new values by name. Promises are not looked at: give new
                positions together with `consecutive_positions=False`.
        """
        return dataclasses.replace(self, **changes)

    def per_token(self) -> dict[str, Any]:
        """Returns the attributes with a token axis (axis 1), as a pytree."""
        return {name: getattr(self, name) for name in _PER_TOKEN}

    def block(self, start, size: int) -> "Tokens":
        """Returns some tokens in a row; promises of consecutive ones are kept.

        Args:
            start: the first of them, by place in the arrays; may be traced.
            size: how many (static).
        """
        cut = jax.tree.map(
            lambda x: jax.lax.dynamic_slice_in_dim(x, start, size, axis=1),
            self.per_token(),
        )
        return self.replace(**cut)

    def permuted(self, order: Int[Array, " L"]) -> "Tokens":
        """Returns the tokens in another storage order; nothing is consecutive then.

        Args:
            order: which token comes to each place, for all rows alike.
        """
        moved = jax.tree.map(lambda x: jnp.take(x, order, axis=1), self.per_token())
        return self.replace(
            **moved, consecutive_index=False, consecutive_positions=False
        )


def tokens(
    length: int,
    *,
    offset: int | Int[Array, ""] | Int[Array, "#B 1"] = 0,
    positions: Shaped[Array, "#B L"] | Shaped[Array, "#B L A"] | None = None,
    segments: Int[Array, "#B L"] | None = None,
    valid: Bool[Array, "#B L"] | None = None,
    left_padded: bool = False,
    streams: dict[str, Shaped[Array, "#B L"]] | None = None,
    distances: Shaped[Array, "#B n"] | None = None,
) -> Tokens:
    """Describes `length` tokens in order, by default at consecutive positions.

    Nested lists serve as arrays.

    Args:
        length: number of tokens (static).
        offset: index of the first one: in decoding, the number of cached tokens. Of
            each row its own, `[B, 1]`.
        positions: positions in tokens, `[B or 1, L]` or `[B or 1, L, A]`; the index if
            None.
        segments: segment of each token, `[B or 1, L]`.
        valid: False at padding, `[B or 1, L]`, behind the tokens unless `left_padded`.
            What stands between tokens keeps its place: the index counts it.
        left_padded: padding stands before the tokens: order, and positions if None,
            count from the first valid token (below it, order is negative, and positions
            are 0).
        streams: named further positions, each `[B or 1, L]`.
        distances: table of distances `[B or 1, n]` instead of differences of positions.

    Returns:
        A `Tokens` whose index is `offset .. offset + length - 1`, or starts earlier by
        the padding on the left.

    Raises:
        ValueError: if an array, or the offset, is of another shape or type, or has
            another number of rows than others, the table of distances does not begin
            with 0 or reach from the first token to the last, `left_padded` lacks
            `valid`, known `valid` has padding on the left that is not declared, or,
            where positions are not given, between tokens, a known position or distance
            is NaN or infinite (one that is traced makes NaN of what it meets), a number
            is known to leave +-2^31 (traced integers beyond wrap around) or to be no
            float32, or positions are no numbers (booleans) or floating-point of less
            than 32 bits.
    """
    length = whole_number("length", length, least=0)
    index = jnp.arange(length, dtype=jnp.int32)[None] + _first_index(offset, length)
    consecutive = positions is None
    positions = _as_array("positions", positions)
    segments = _as_array("segments", segments)
    valid, distances = _as_array("valid", valid), _as_array("distances", distances)
    streams = streams and {name: _as_array(name, ids) for name, ids in streams.items()}
    given = {"positions": positions, "segments": segments, "valid": valid}
    _check_arrays(length, given | dict(streams or {}), distances, offset)
    places = {"positions": positions, "distances": distances, **(streams or {})}
    for name, array in places.items():
        if array is not None:
            check_places(name, array)
    if left_padded and valid is None:
        raise ValueError("left_padded=True needs valid, which says where padding is.")
    if positions is None:
        _check_padding(valid, left_padded)
    if left_padded:
        consecutive = False
        index = index - jnp.argmax(valid, axis=1).astype(jnp.int32)[:, None]
        positions = jnp.maximum(index, 0) if positions is None else positions
    first = known_values(offset)
    reach = length if first is None else length + int(first.max(initial=0))
    if distances is not None and distances.shape[-1] < reach:
        raise ValueError(
            f"a table of {distances.shape[-1]} distances is too short for {reach} "
            "tokens; draw at least that many."
        )
    made = Tokens(
        index=index,
        positions=index if positions is None else positions,
        segments=segments,
        valid=valid,
        streams=streams,
        distances=distances,
        consecutive_index=True,
        consecutive_positions=consecutive,
    )
    known = None if distances is None else known_values(made.distances)
    if known is not None and (known[:, :1] != 0).any():
        raise ValueError(
            f"distances must begin with 0, a token's from itself, got {known[0]}."
        )
    return made


def _as_array(name: str, given: Any) -> Any:
    """Returns nested lists as an array, of numpy where their values are known."""
    if not isinstance(given, list | tuple):
        return given
    leaves = jax.tree.leaves(given, is_leaf=lambda leaf: leaf is None)
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    try:
        array = (jnp if traced else np).asarray(given)
    except ValueError:
        raise ValueError(
            f"{name} has rows of unlike lengths: {given!r}; pad them, and say where "
            "with valid."
        ) from None
    if array.dtype.kind not in "biufV":  # V: floating-point types of JAX's own
        raise ValueError(f"{name} must be numbers within int32, got {given!r}.")
    return array


def _check_arrays(
    length: int,
    arrays: dict[str, Any],
    distances: Shaped[Array, "#B n"] | None,
    offset: int | Int[Array, "..."],
) -> None:
    """Refuses arrays that do not describe so many tokens of one batch."""
    arrays = {name: array for name, array in arrays.items() if array is not None}
    for name, array in arrays.items():
        axes = (2, 3) if name == "positions" else (2,)
        if array.ndim not in axes or array.shape[1] != length:
            raise ValueError(
                f"{name} must be [B or 1, {length}{', ...' * (len(axes) - 1)}] for "
                f"{length} tokens, got shape {array.shape}."
            )
    if distances is not None:
        if distances.ndim != 2:
            raise ValueError(
                f"distances must be [B or 1, n], got shape {distances.shape}."
            )
        arrays["distances"] = distances
    rows = {name: array.shape[0] for name, array in arrays.items()}
    if jnp.ndim(offset):
        rows["offset"] = jnp.shape(offset)[0]
    if len(set(rows.values()) - {1}) > 1:
        raise ValueError(
            f"arrays must have a row for each sequence of one batch, or a single one "
            f"for all, got rows {rows}."
        )


def _first_index(
    offset: int | Int[Array, "..."], length: int
) -> int | Int[Array, "..."]:
    """Returns the offset, small enough for the indices of all tokens if it is known."""
    if not jnp.issubdtype(getattr(offset, "dtype", type(offset)), jnp.integer):
        raise ValueError(f"offset must be an integer, got {offset}.")
    shape = jnp.shape(offset)
    if shape not in ((), (1,)) and (len(shape) != 2 or shape[1] != 1):
        raise ValueError(
            "offset must be one number, or [B, 1] with one for each row, got shape "
            f"{shape}{'; give offset[:, None]' if len(shape) == 1 else ''}."
        )
    known = known_values(offset)
    if known is not None and known.size:
        last, limits = int(known.max()) + max(length, 1) - 1, np.iinfo(np.int32)
        if known.min() < limits.min or last > limits.max:
            raise ValueError(
                f"offset={offset} puts {length} tokens at indices up to {last}, beyond "
                f"int32 ({limits.min} .. {limits.max}); count from a later token."
            )
    return widened("offset", offset)


def _check_padding(valid: Bool[Array, "#B L"] | None, left_padded: bool) -> None:
    """A place in the array is no position where padding stands before it."""
    if not left_padded and padding_before(valid):
        raise ValueError(
            "valid has padding before the tokens of a row; pass left_padded=True, so "
            "that positions count from the first token, or give positions."
        )
    if padding_between(valid):
        raise ValueError(
            "valid has padding between the tokens of a row; give positions: those of "
            "ropejax.positions.count_real(valid) leave it out, jnp.arange(length)[None]"
            " counts it."
        )


def relative_positions(
    query: Tokens, key: Tokens, axis: int | None = None
) -> Float[Array, "B T S"] | Int[Array, "B T S"]:
    """Returns key position minus query position, so the past is negative.

    With a table of distances on the key side, it is
    `sign(j - i) * distances[|j - i|]` of the indices i, j instead.

    Args:
        query: the queries, T of them.
        key: the keys, S of them.
        axis: which axis of positions with several, from 0 or, negative, from the last;
            they are refused if None. Positions on one axis, and tables of distances,
            have axis 0 alone.

    Returns:
        Differences `[B or 1, T, S]`: int32 of integers, float32 of others. Those beyond
        int32 wrap around.

    Raises:
        ValueError: if positions have several axes and `axis` is None, there is no such
            axis, or queries and keys have positions on unlike axes.
    """
    _check_axis(query.positions, key, axis)
    if key.distances is not None:
        offset = key.index[:, None, :] - query.index[:, :, None]
        batch = max(offset.shape[0], key.distances.shape[0])
        offset = jnp.broadcast_to(offset, (batch,) + offset.shape[1:])
        table = jnp.broadcast_to(key.distances, (batch, key.distances.shape[1]))
        # Beyond the table there is no distance: NaN, or int32's lowest, shows it.
        look_up = lambda row, at: row.at[at].get(mode="fill")
        distance = jax.vmap(look_up)(table, jnp.abs(offset))
        return jnp.sign(offset).astype(distance.dtype) * distance
    q, k = query.positions, key.positions
    if q.ndim == 3:
        if axis is None:
            raise ValueError(
                "distances are taken of positions on one axis, [batch, length], got "
                f"shape {q.shape}; choose an encoding of several axes (AxialRotary), "
                "or positions on one."
            )
        q, k = q[..., axis], k[..., axis]
    return k[:, None, :] - q[:, :, None]


def _check_axis(of_queries: Shaped[Array, "..."], key: Tokens, axis: Any) -> None:
    """Refuses an axis that positions, or a table of distances, do not have."""
    one = key.distances is not None or of_queries.ndim == 2
    if key.distances is None and of_queries.shape[2:] != key.positions.shape[2:]:
        raise ValueError(
            "queries and keys must have positions on the same axes, got shapes "
            f"{of_queries.shape} and {key.positions.shape}."
        )
    if axis is None:
        return
    count = 1 if one else of_queries.shape[2]
    if not -count <= whole_number("axis", axis) < count:
        what = "distances" if key.distances is not None else "positions"
        raise ValueError(
            f"axis={axis} does not exist: {what} have {count} of them, 0 to {count - 1}"
            f"{'; leave axis None' if one else ''}."
        )


def signed_offsets(distances: Shaped[Array, "B n"]) -> Shaped[Array, "B m"]:
    """Returns a table of distances mirrored: `-d[n-1] .. -d[1], 0, d[1] .. d[n-1]`.

    Args:
        distances: increasing from 0, `[B, n]`.
    """
    distances = widened("distances", distances)
    return jnp.concatenate([-distances[:, :0:-1], distances], axis=1)
