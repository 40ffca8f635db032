"""Sweeps as plain data: lists of points, each the fields that a run changes.

A config file that defines a study has, beside `get_config`, a function `get_sweep` that
puts such lists together:

    def get_sweep(arg=""):
        names, options = ["rope", "alibi"], ["", "tie_break=True"]
        encodings = zipped({"encoding.name": names, "encoding.options": options})
        return product({"task.name": ["parity_check"]}, encodings, {"train.seed": [0]})

Names are those of a config's fields, with dots. That they exist, and that values are of
their type, is checked in experiments/study/sweep.py.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Point = dict[str, Any]
Sweep = list[Point]


def product(*parts: Mapping[str, Iterable[Any]] | Sequence[Point]) -> Sweep:
    """Returns every combination of what the parts offer; the last part varies fastest.

    Args:
        *parts: fields, each with its values, of which all combinations are made; or
            sweeps, of which each point goes with every other part's.

    Raises:
        ValueError: if two parts set the same field, or one offers nothing.
    """
    choices: list[Sequence[Point]] = []
    for part in parts:
        if isinstance(part, Mapping):
            for name, values in part.items():
                choices.append([{name: value} for value in _several(name, values)])
        else:
            choices.append(list(part))
        if not choices[-1]:
            raise ValueError("product: a part has no points, so neither has the whole.")
    return [_joined(combination) for combination in itertools.product(*choices)]


def zipped(fields: Mapping[str, Iterable[Any]]) -> Sweep:
    """Returns one point for each place of lists that belong together.

    Args:
        fields: fields, each with as many values.

    Raises:
        ValueError: if the lists differ in length.
    """
    columns = {name: _several(name, values) for name, values in fields.items()}
    if len({len(values) for values in columns.values()}) > 1:
        sizes = {name: len(values) for name, values in columns.items()}
        raise ValueError(f"zipped: lists must be equally long, got {sizes}.")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def union(*sweeps: Sequence[Point]) -> Sweep:
    """Returns the points of all sweeps, each once, in order of first appearance."""
    found: dict[frozenset, Point] = {}
    for point in itertools.chain(*sweeps):
        found.setdefault(frozenset(map(_hashable, point.items())), dict(point))
    return list(found.values())


def where(sweep: Sequence[Point], keep: Callable[[Point], bool]) -> Sweep:
    """Returns the points for which `keep` is true.

    Args:
        sweep: the points.
        keep: takes a point; `point["train.seed"]` is the value of a field.

    Raises:
        ValueError: if none is left, or `keep` asks for a field that a point lacks.
    """
    try:
        kept = [dict(point) for point in sweep if keep(dict(point))]
    except KeyError as error:
        raise ValueError(f"where: some point of the sweep has no {error}.") from None
    if not kept:
        raise ValueError(f"where: none of the {len(sweep)} points is left.")
    return kept


def _several(name: str, values: Iterable[Any]) -> list[Any]:
    """Returns a list of values; a lone string or number is a slip."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must have a list of values, got {values!r}.")
    return list(values)


def _hashable(item: tuple[str, Any]) -> tuple[str, Any]:
    """Returns a field and its value, or text that stands for a value such as a list."""
    try:
        hash(item)
    except TypeError:
        return item[0], repr(item[1])
    return item


def _joined(points: Iterable[Point]) -> Point:
    joined: Point = {}
    for point in points:
        for name, value in point.items():
            if name in joined:
                raise ValueError(
                    f"product: two parts set {name}; put their sweeps side by side "
                    "with union, or leave one out."
                )
            joined[name] = value
    return joined
