"""Numbers that do not divide over a mesh, and what would: tried, never guessed."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

Change = Mapping[str, int]
"""Other numbers by name: of `batch_size`, of `accumulate`, or of mesh axes."""

_NEIGHBOUR = "data"
"""The mesh axis that takes what devices another one leaves."""


class UndividedError(ValueError):
    """A number does not divide over a mesh.

    Attributes:
        number: how many there are.
        axes: mesh axes over which they are spread, those with several devices.
    """

    def __init__(self, what: str, number: int, parts: int, axes: Sequence[str]):
        self.number, self.axes = number, tuple(axes)
        super().__init__(
            f"{what} does not divide over {parts} devices of the mesh "
            f"({' x '.join(axes)})"
        )


def check_divides(
    what: str, number: int, axes: Sequence[str], sizes: Mapping[str, int]
) -> None:
    """Raises UndividedError unless a number divides over mesh axes.

    Args:
        what: what is cut, for the message: "num_heads=6".
        number: how many there are.
        axes: mesh axes over which they are spread.
        sizes: of the mesh, by axis.
    """
    several = [axis for axis in axes if sizes[axis] > 1]
    parts = math.prod(sizes[axis] for axis in several)
    if number % parts:
        raise UndividedError(what, number, parts, several)


def remedies(
    problem: UndividedError,
    accepts: Callable[[Change], bool],
    *,
    batch_size: int | None,
    accumulate: int,
    batch_parts: int,
    sizes: Mapping[str, int],
    all_devices: bool,
) -> str:
    """Returns the end of a message: the nearest numbers with which nothing is refused.

    Args:
        problem: what does not divide.
        accepts: whether all is well with other numbers.
        batch_size: rows of a batch; None if nobody chose them.
        accumulate: in how many parts they are computed.
        batch_parts: over how many devices each part is spread.
        sizes: of the mesh, by axis.
        all_devices: the mesh must keep its number of devices.
    """
    series: list[tuple[int, Mapping[int, Change]]] = []
    if batch_size is not None:
        unit = batch_parts * accumulate
        below = batch_size // unit * unit
        rows = {n: {"batch_size": n} for n in (below, below + unit) if n}
        parts = {n: {"accumulate": n} for n in _divisors(batch_size)}
        series += [(batch_size, rows), (accumulate, parts)]
    for axis in problem.axes:
        resized = _resized(axis, problem.number, sizes, all_devices)
        series.append((sizes[axis], dict(resized)))
    found = [
        ",".join(f"{name}={number}" for name, number in change.items())
        for number, changes in series
        for change in _nearest(number, changes, accepts)
    ]
    if not found:
        return "; more than one number must change"
    return f"; it would with {' or '.join(found)}"


def _resized(
    axis: str, number: int, sizes: Mapping[str, int], all_devices: bool
) -> Iterator[tuple[int, Change]]:
    """Other sizes of a mesh axis that divide a number."""
    if not all_devices:
        yield from ((size, {axis: size}) for size in _divisors(number))
    elif axis != _NEIGHBOUR:  # which has no neighbour
        shared = sizes[axis] * sizes[_NEIGHBOUR]
        for size in _divisors(number):
            if shared % size == 0:
                yield size, {axis: size, _NEIGHBOUR: shared // size}


def _nearest(
    number: int,
    changes: Mapping[int, Change],
    accepts: Callable[[Change], bool],
) -> Iterator[Change]:
    """The largest below a number that is accepted, and the smallest above."""
    known = sorted(changes)
    for side in (
        [n for n in reversed(known) if n < number],
        [n for n in known if n > number],
    ):
        yield from itertools.islice(filter(accepts, (changes[n] for n in side)), 1)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
