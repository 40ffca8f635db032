"""Few shapes for all lengths: a batch of any length is padded up to its bucket."""

from collections.abc import Iterable

from ropejax.whole_numbers import whole_number


def even_buckets(max_length: int, count: int) -> tuple[int, ...]:
    """Returns `count` evenly spaced bucket sizes that end at `max_length`.

    For lengths uniform over 1 .. `max_length`, even spacing pads least: about `1 /
    count` more tokens than needed.

    Args:
        max_length: the longest length, in symbols.
        count: how many shapes to compile; fewer are returned if `max_length` is
            smaller.

    Returns:
        Increasing sizes.

    Raises:
        ValueError: if either is below 1, or not whole.
    """
    max_length = whole_number("max_length", max_length, least=1)
    count = whole_number("count", count, least=1)
    count = min(count, max_length)
    return tuple(-(-max_length * part // count) for part in range(1, count + 1))


def grid_buckets(lengths: Iterable[int]) -> tuple[int, ...]:
    """Returns the sizes 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ... that `lengths` need.

    Four sizes an octave: at most 25% of padding, and 25 shapes for all lengths to 512,
    the same ones whatever lengths are asked for, so that compiled programs are reused.

    Args:
        lengths: the lengths to serve, in symbols.

    Returns:
        Increasing sizes, each needed by some length.

    Raises:
        ValueError: if there are no lengths, or one is below 1 or not whole.
    """
    lengths = sorted({whole_number("each of lengths", length) for length in lengths})
    if not lengths or lengths[0] < 1:
        raise ValueError(f"lengths must be one or more numbers from 1 up: {lengths}.")
    return tuple(sorted({_grid_size(length) for length in lengths}))


def bucket_of(length: int, buckets: tuple[int, ...]) -> int:
    """Returns the smallest bucket that holds `length`.

    Args:
        length: a length in symbols.
        buckets: increasing sizes.

    Returns:
        One of `buckets`.

    Raises:
        ValueError: if no bucket is large enough.
    """
    for size in buckets:
        if length <= size:
            return size
    raise ValueError(f"no bucket of {buckets} holds {length=}; add a larger one.")


def _grid_size(length: int) -> int:
    quarter_octave = max(2, 2 ** ((length - 1).bit_length() - 3))
    return max(8, -(-length // quarter_octave) * quarter_octave)
