"""Packed rows: several short sequences in one row, positions starting anew in each.

Attention stays within segments (`Tokens.segments`), and encodings see the positions
made here. What follows the length of a sequence (log-n scaling, dynamic NTK, dynamic
YaRN, LongRoPE, Dual Chunk Attention's factor) counts within a token's own segment. So
under a causal mask, a window or none, a packed sequence sees exactly what it sees
alone.

Masks that go by a token's place in its sequence (Lambda's and Prefix's first tokens,
Global's, the chunks of Chunked and other blocks) read `Tokens.index`, which goes on
through the row: by it only the first segment has first tokens, and chunks need not
begin where segments do. Give the index of each segment instead, which every mask and
every method of this list takes:

    where = tokens(length, positions=packed_positions(segments), segments=segments)
    where = where.replace(index=where.positions, consecutive_index=False)

Not so methods whose features accumulate along the row (the Forgetting Transformer,
CABLE, Wall attention, PaTH, GRAPE-M): they put tokens in order of index, so their index
must go on through the row; within a segment the sums are those of the sequence alone.
They refuse an index that is known to repeat within a row; a traced one gives NaN.
CoPE, GRAPE-A, GRAPE-AP and RePo take either.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ropejax.whole_numbers import check_whole


def packed_positions(segments: Int[Array, "B L"]) -> Int[Array, "B L"]:
    """Returns 0, 1, 2, ... within each run of equal segment ids.

    Args:
        segments: segment of each token, `[B, L]`; any ids, padding may have one too.

    Returns:
        Positions `[B, L]`, int32.
    """
    place = jnp.arange(segments.shape[1], dtype=jnp.int32)[None]
    starts = jnp.concatenate(
        [
            jnp.ones_like(segments[:, :1], dtype=bool),
            segments[:, 1:] != segments[:, :-1],
        ],
        axis=1,
    )
    return place - jax.lax.cummax(jnp.where(starts, place, 0), axis=1)


def segments_from_lengths(
    segment_lengths: Int[Array, "B M"], num_tokens: int
) -> tuple[Int[Array, "B L"], Bool[Array, "B L"]]:
    """Returns the segment of each token, for sequences that follow one another.

    Args:
        segment_lengths: length of each sequence in tokens, `[B, M]`; 0 for none; may be
            traced.
        num_tokens: the padded length L (static).

    Returns:
        Segments 0 .. M - 1, and M at padding, `[B, L]`; and False at padding, `[B, L]`.

    Raises:
        ValueError: if lengths are not integers `[B, M]`, or known ones are negative or
            sum to more than L.
    """
    known = check_whole("segment_lengths", segment_lengths)
    lengths = jnp.asarray(segment_lengths, jnp.int32)
    if lengths.ndim != 2:
        raise ValueError(
            "segment_lengths must be [B, M], a list for each row, got shape "
            f"{lengths.shape}; one row is [[3, 4]]."
        )
    if known is not None and known.size:
        if known.min() < 0:
            raise ValueError(f"segment_lengths must be at least 0, got {known.min()}.")
        if known.sum(axis=1).max() > num_tokens:
            raise ValueError(
                f"segment_lengths sum to {known.sum(axis=1).max()}, but rows hold "
                f"{num_tokens=}; raise num_tokens or pack fewer sequences."
            )
    ends = jnp.cumsum(lengths, axis=1)
    place = jnp.arange(num_tokens, dtype=jnp.int32)[None, :, None]
    # A token belongs to the first segment that ends after it.
    segments = jnp.sum(place >= ends[:, None, :], axis=-1, dtype=jnp.int32)
    return segments, segments < lengths.shape[1]
