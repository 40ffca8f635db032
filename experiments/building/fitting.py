"""Whether a value is what the type of a setting says, with a message where it is not.

Settings come from text and from plain dictionaries, where nothing keeps `"false"` from
being a condition, True from being a number, or a map of distances from being one of
frequencies.
"""

import collections.abc
import math
import numbers
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from experiments.building.nearest import nearest

Classes = Mapping[str, type]

NAMES_SHOWN = 20
"""Classes named in a message at most; `--list` shows all of them."""


def fitted(value: Any, hint: Any, name: str, classes: Classes | None = None) -> Any:
    """Returns a value as a setting of a type holds it: 1e3 as 1000 for an integer.

    Args:
        value: what is given.
        hint: the type: bool, int, float, str, a class, `Literal[...]`, a tuple or
            sequence of them, or a union. Values of other types are returned as given.
        name: of the setting, for messages.
        classes: classes that text may call, to say what would fit.

    Raises:
        ValueError: if the value does not fit.
    """
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _one_of(value, typing.get_args(hint), name, classes)
    if origin in (tuple, collections.abc.Sequence):
        return _several(value, typing.get_args(hint)[0], name, classes)
    if hint is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}.")
        return value
    if hint in (int, float):
        return _number(value, hint, name)
    if hint is str or origin is Literal:
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a name, got {value!r}.")
        return value
    if isinstance(hint, type) and not isinstance(value, hint):
        raise ValueError(
            f"{name} must be an object of class {hint.__name__}"
            f"{_such_as(hint, classes or {})}, got {value!r}."
            f"{_meant(value, hint, classes or {}) if isinstance(value, str) else ''}"
        )
    return value


def _meant(name: str, hint: type, classes: Classes) -> str:
    """Says that the name of a class wants parentheses, or which one may be meant."""
    if issubclass(classes.get(name, object), hint):
        return f" Write {name}(...), with its settings in the parentheses."
    return nearest(name, classes)


def _one_of(value: Any, hints: tuple, name: str, classes: Classes | None) -> Any:
    if value is None and types.NoneType in hints:
        return None
    *others, last = (hint for hint in hints if hint is not types.NoneType)
    for hint in others:
        try:
            return fitted(value, hint, name, classes)
        except ValueError:
            continue
    return fitted(value, last, name, classes)


def _several(value: Any, hint: Any, name: str, classes: Classes | None) -> tuple:
    if not isinstance(value, tuple | list):
        raise ValueError(
            f"{name} must be values in parentheses, as (1, 2), or (1,) for a single "
            f"one, got {value!r}."
        )
    return tuple(
        fitted(item, hint, f"{name}[{at}]", classes) for at, item in enumerate(value)
    )


def _number(value: Any, hint: type, name: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}.")
    if isinstance(value, numbers.Integral):
        return value
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}.")
    if hint is float:
        return value
    if not float(value).is_integer():
        raise ValueError(f"{name} must be an integer, got {value}.")
    return int(value)


def _such_as(hint: type, classes: Classes) -> str:
    fitting = [
        name
        for name, cls in classes.items()
        if issubclass(cls, hint) and cls is not hint
    ]
    if not fitting:
        return ""
    more = ", ..." if len(fitting) > NAMES_SHOWN else ""
    return f" (one of {', '.join(fitting[:NAMES_SHOWN])}{more})"
