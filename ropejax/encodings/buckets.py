"""Buckets of distances: exact up close, logarithmic further out.

Bucket edges are decided on the host in integer arithmetic, so no logarithm is rounded
and every device agrees on which bucket a distance at an edge belongs to.
"""

import functools

import numpy as np

from ropejax.typing import Int


@functools.cache
def t5_buckets(
    num_buckets: int, max_distance: int, bidirectional: bool
) -> Int[np.ndarray, " R"]:
    """Returns T5's bucket of each offset `-max_distance .. max_distance`.

    With B buckets a side (half of them if bidirectional), E = B / 2, and r the distance
    into the past (or to either side): bucket r below E, then
    `min(B - 1, E + floor(log(r / E) / log(max_distance / E) * (B - E)))`. Keys after
    the query take the upper half of the buckets, or bucket 0 if not bidirectional.

    Args:
        num_buckets: number of buckets in all.
        max_distance: distances from here on share the last bucket of their side.
        bidirectional: tell keys after the query apart.

    Returns:
        Bucket numbers `[2 max_distance + 1]`, offsets being key minus query.

    Raises:
        ValueError: if there are too few buckets, or they reach too near.

    References:
        Raffel et al., 2019, arXiv:1910.10683, section 2.1;
        huggingface/transformers v5.24, `T5Attention._relative_position_bucket`.
    """
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    if exact < 1 or num_buckets % 2:
        raise ValueError(
            f"num_buckets must be even and at least {4 if bidirectional else 2}, got "
            f"{num_buckets}."
        )
    if max_distance <= exact:
        raise ValueError(
            f"max_distance must exceed the {exact} exact distances, got {max_distance}."
        )
    wide = side - exact
    bucket = np.minimum(np.arange(max_distance + 1), exact)
    step = 0
    for distance in range(exact, max_distance + 1):
        while step < wide - 1 and distance**wide * exact ** (
            step + 1
        ) >= exact**wide * max_distance ** (step + 1):
            step += 1
        bucket[distance] = exact + step
    future = bucket + side if bidirectional else np.zeros_like(bucket)
    return np.concatenate([bucket[:0:-1], bucket[:1], future[1:]]).astype(np.int32)


@functools.cache
def deberta_buckets(num_buckets: int, max_distance: int) -> Int[np.ndarray, " R"]:
    """Returns DeBERTa's bucket of each distance `0 .. max_distance`.

    With M = num_buckets / 2: r itself up to M, then
    `M + ceil(log(r / M) / log((max_distance - 1) / M) * (M - 1))`; negative offsets
    have negative buckets. From `max_distance` on, buckets lie beyond `num_buckets - 1`,
    where a table of `2 num_buckets` rows ends.

    Args:
        num_buckets: rows of the table for each sign.
        max_distance: `max_relative_positions` in configs.

    Returns:
        Bucket numbers `[max_distance + 1]`, not decreasing.

    Raises:
        ValueError: if there are too few buckets, or they reach too near.

    References:
        He et al., 2021, arXiv:2006.03654 (v2 code); huggingface/transformers v5.24,
        `make_log_bucket_position`.
    """
    middle = num_buckets // 2
    if middle < 2:
        raise ValueError(f"num_buckets must be at least 4, got {num_buckets}.")
    if max_distance - 1 <= middle:
        raise ValueError(
            f"max_distance must exceed half the buckets and one, got {max_distance} "
            f"for {num_buckets} buckets."
        )
    wide = middle - 1
    bucket = np.arange(max_distance + 1)
    step = 0
    for distance in range(middle + 1, max_distance + 1):
        while distance**wide * middle**step > (max_distance - 1) ** step * middle**wide:
            step += 1
        bucket[distance] = middle + step
    return bucket.astype(np.int32)
