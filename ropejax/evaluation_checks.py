"""What cannot be scored is refused before anything is compiled."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ropejax.nn import TransformerSpec
from ropejax.positions.base import PositionScheme
from ropejax.seeds import whole_seed
from ropejax.tasks.base import Task
from ropejax.training.alphabets import check_alphabets, check_named_symbols
from ropejax.training.buckets import bucket_of, grid_buckets
from ropejax.training.placed_rows import check_rows
from ropejax.training.places import check_reach
from ropejax.training.reading import check_read
from ropejax.whole_numbers import whole_number


class Amounts(NamedTuple):
    """How much is scored, in whole numbers of Python.

    Attributes:
        lengths: input lengths, increasing, each once.
        buckets: increasing lengths to which batches are padded.
        samples: rows a length.
        draws: position draws a length.
        seed: determines examples and positions.
    """

    lengths: tuple[int, ...]
    buckets: tuple[int, ...]
    samples: int
    draws: int
    seed: int


def check_kinds(task: Task, positions: PositionScheme) -> None:
    """Raises ValueError for what is no task, or no scheme: a class, as a rule.

    Args:
        task: what is scored.
        positions: where tokens are.
    """
    for name, value, kind in (
        ("task", task, Task),
        ("positions", positions, PositionScheme),
    ):
        if not isinstance(value, kind):
            raise ValueError(
                f"{name} must be a {kind.__name__}, such as "
                f"{'EvenPairs' if kind is Task else 'Consecutive'}(), got {value!r}."
            )


def checked(
    model: TransformerSpec,
    task: Task,
    positions: PositionScheme,
    lengths: Iterable[int],
    *,
    samples: int,
    draws: int,
    seed: int,
    buckets: Iterable[int] | None,
    padded: Callable[[int], int] | None = None,
) -> Amounts:
    """Returns what is to be scored; arguments are those of `counted_by_length`.

    Raises:
        ValueError: as `ropejax.evaluation.evaluate`.
    """
    check_alphabets(model, task)
    check_named_symbols(positions, task)
    lengths = sorted(set(_whole("lengths", lengths)))
    sizes = grid_buckets(lengths) if buckets is None else _whole("buckets", buckets)
    amounts = Amounts(
        lengths=tuple(lengths),
        # A bucket beyond every length asked for need only hold the longest of them.
        buckets=tuple(min(size, max(lengths, default=size)) for size in sorted(sizes)),
        samples=whole_number("samples", samples),
        draws=whole_number("draws", draws),
        seed=whole_seed("seed", seed),
    )
    whole_number("the smallest of buckets", min(sizes, default=1), least=1)
    samples, draws = amounts.samples, amounts.draws
    if draws < 1 or samples < 1 or samples % draws:
        raise ValueError(
            f"{draws=} must divide {samples=}, so that each draw places as many rows."
        )
    for length in amounts.lengths:
        task.check_length(length)
        bucket_of(length, amounts.buckets)
    for size in amounts.buckets:
        num_tokens = task.num_tokens(size)
        what = f"test inputs of {size} symbols are {num_tokens} tokens"
        if padded is not None and padded(num_tokens) > num_tokens:
            num_tokens = padded(num_tokens)
            what += f", padded to {num_tokens} to divide over the mesh"
        remedy = "train it with a larger max_position"
        # Of a model of one's own that states no encodings, nothing is known.
        pattern = getattr(model, "pattern", ())
        check_reach(positions, pattern, num_tokens, what=what, remedy=remedy)
        if pattern:
            check_read(positions, model, num_tokens, what=what)
    if amounts.lengths:
        longest = amounts.lengths[-1]
        check_rows(positions, task, longest, what=f"test inputs of {longest} symbols")
    return amounts


def _whole(name: str, values: Iterable[int]) -> list[int]:
    """Whole numbers of the host, of whatever integers they were."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise ValueError(
            f"{name} must be whole numbers one by one, such as [3] or range(1, 4), got "
            f"{values!r}."
        )
    return [whole_number(f"each of {name}", value) for value in values]
