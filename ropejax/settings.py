"""Checks that every kind of settings shares."""

import dataclasses
import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ropejax.overriding import check_overrides


class Settings:
    """What settings derive from, so that each argument is of the type that it names.

    A wrong one is refused before `__post_init__` compares it with anything. Checked are
    numbers, flags, text, tuples of them, and settings within settings; what is
    annotated otherwise (arrays, functions) is left to the class.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Makes an object, which `__init__` then fills.

        Raises:
            ValueError: if an argument is not of the type of its annotation, the class
                is no frozen dataclass, or a method of it has a name or arguments by
                which it overrides nothing (`ropejax.overriding`).
        """
        signature, hints = _described(cls)
        try:
            given = signature.bind_partial(*args, **kwargs).arguments
        except TypeError:
            given = {}  # __init__ says which argument there is not
        for name, value in given.items():
            hint = hints.get(name, Any)
            if not _fits(value, hint):
                raise ValueError(
                    f"{name} must be {_meaning(hint)}, got {value!r} for "
                    f"{cls.__name__}."
                )
        return super().__new__(cls)


@functools.lru_cache(maxsize=1024)
def _described(cls: type) -> tuple[inspect.Signature, dict[str, Any]]:
    """The arguments of a class, and the types of its fields."""
    _check_dataclass(cls)
    check_overrides(cls)
    try:
        hints = typing.get_type_hints(cls)
    except NameError:  # one of them names what is not there, or is made in a function
        written = [inspect.get_annotations(kind) for kind in reversed(cls.__mro__)]
        hints = {name: hint for one in written for name, hint in one.items()}
    return inspect.signature(cls), hints


def _check_dataclass(cls: type) -> None:
    """Settings that are no fields would count neither when compared nor when hashed.

    Programs compiled for one object would then serve another with other settings.
    """
    fields = getattr(cls, "__dataclass_fields__", {})
    params = getattr(cls, "__dataclass_params__", None)
    forgotten = "__dataclass_params__" not in vars(cls) and (
        "__init__" in vars(cls) or any(name not in fields for name in _annotated(cls))
    )
    if forgotten or params is None:
        reason = "is no dataclass"
    elif not (params.frozen and params.eq):
        reason = "is no frozen dataclass that compares by its fields"
    else:
        return
    raise ValueError(
        f"{cls.__name__} {reason}; write @dataclasses.dataclass(frozen=True) above it, "
        "settings as annotated fields, and checks in __post_init__."
    )


def _annotated(cls: type) -> list[str]:
    """Names that the class itself annotates, but for what all its objects share."""
    hints = inspect.get_annotations(cls)
    return [name for name, hint in hints.items() if "ClassVar" not in str(hint)]


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if hint in (None, type(None)):
        return value is None
    if origin in (tuple, Sequence):
        if not isinstance(value, tuple | list):  # an array, perhaps
            return hasattr(value, "__len__") and not isinstance(value, str)
        if origin is tuple and (not parts or parts[-1] is not Ellipsis):
            return True  # each place has a type of its own, and the class its reasons
        return all(_fits(item, parts[0]) for item in value)
    if hint in _KINDS:
        return isinstance(value, _KINDS[hint][0]) and (
            hint is bool or not isinstance(value, bool | np.bool_)
        )
    if isinstance(hint, type) and issubclass(hint, Settings):
        return isinstance(value, hint)
    return True


_KINDS: dict[Any, tuple[Any, str]] = {
    bool: (bool | np.bool_, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "text"),
}


def _meaning(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_meaning, parts))
    if hint in (None, type(None)):
        return "None"
    if origin in (tuple, Sequence):
        return f"a tuple of {_meaning(parts[0])} each" if parts else "a tuple"
    if hint in _KINDS:
        return _KINDS[hint][1]
    return f"a {getattr(hint, '__name__', hint)}"


def make_tuples(settings: Any) -> None:
    """Makes tuples of lists and arrays that were given for them, and plain numbers.

    Settings are compared and hashed (compiled programs are kept by them), and a list
    has no hash: it would be found where the settings are used first. A number of
    numpy's wraps around where Python's grows, `np.int32(65536) ** 2` being 0.

    Args:
        settings: a dataclass that is being made; its annotations tell what is a tuple.
    """
    _, hints = _described(type(settings))
    for field in dataclasses.fields(settings):
        value, hint = getattr(settings, field.name), hints.get(field.name)
        if isinstance(value, np.generic):
            object.__setattr__(settings, field.name, value.item())
            continue
        kinds = (hint, *typing.get_args(hint))
        if any(typing.get_origin(kind) is tuple for kind in kinds):
            object.__setattr__(settings, field.name, _as_tuple(value))


def _as_tuple(value: Any) -> Any:
    if hasattr(value, "dtype") and getattr(value, "ndim", 0):
        value = np.asarray(value).tolist()
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def check_finite(settings: Any) -> None:
    """Raises ValueError for a number among settings that is NaN or infinite.

    Such a number passes many comparisons, and would be found in the loss only.

    Args:
        settings: a dataclass; numbers within its tuples and lists count.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if not _all_finite(value):
            raise ValueError(
                f"{field.name} must be finite, got {value!r} for "
                f"{type(settings).__name__}."
            )


def _all_finite(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_all_finite, value))
    return not isinstance(value, numbers.Real) or math.isfinite(value)
