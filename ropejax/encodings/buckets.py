"""Buckets of distances: exact up close, logarithmic further out.

Bucket edges are decided on the host in integer arithmetic, so no logarithm is rounded
and every device agrees on which bucket a distance at an edge belongs to.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np

from ropejax.typing import Int
from ropejax.whole_numbers import whole_number

_FARTHEST = 2**22
"""The largest `max_distance`: there is a row of numbers for each distance up to it."""


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
    # Python's, since numpy's overflow.
    num_buckets = whole_number("num_buckets", num_buckets)
    max_distance = whole_number("max_distance", max_distance)
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
    _check_farthest(max_distance)
    wide = side - exact

    def reached(step: int, distance: int) -> bool:
        return distance**wide * exact**step >= exact**wide * max_distance**step

    edges = [
        _first(
            functools.partial(reached, step),
            exact * (max_distance / exact) ** (step / wide),
        )
        for step in range(1, wide)
    ]
    distances = np.arange(max_distance + 1)
    steps = np.searchsorted(edges, distances, side="right")
    bucket = np.where(distances < exact, distances, exact + steps)
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
    # Python's, since numpy's overflow.
    num_buckets = whole_number("num_buckets", num_buckets)
    max_distance = whole_number("max_distance", max_distance)
    middle = num_buckets // 2
    if middle < 2:
        raise ValueError(f"num_buckets must be at least 4, got {num_buckets}.")
    if max_distance - 1 <= middle:
        raise ValueError(
            f"max_distance must exceed half the buckets and one, got {max_distance} "
            f"for {num_buckets} buckets."
        )
    _check_farthest(max_distance)
    wide, most = middle - 1, max_distance - 1

    def passed(step: int, distance: int) -> bool:
        return distance**wide * middle**step > most**step * middle**wide

    edges = []
    for step in itertools.count():
        guess = middle * (most / middle) ** (step / wide)
        edges.append(_first(functools.partial(passed, step), guess))
        if edges[-1] > max_distance:
            break
    distances = np.arange(max_distance + 1)
    steps = np.searchsorted(edges, distances, side="right")
    bucket = np.where(distances <= middle, distances, middle + steps)
    return bucket.astype(np.int32)


def _first(holds: Callable[[int], bool], guess: float) -> int:
    """Returns the least whole number that something holds for, which is near a guess.

    Args:
        holds: False below some number, True from there on.
        guess: a number near by.
    """
    number = round(guess)
    while holds(number - 1):
        number -= 1
    while not holds(number):
        number += 1
    return number


def _check_farthest(max_distance: int) -> None:
    if max_distance > _FARTHEST:
        raise ValueError(
            f"max_distance must be at most {_FARTHEST}, got {max_distance}: each "
            "distance up to it takes a row of memory, and all beyond share a bucket."
        )
