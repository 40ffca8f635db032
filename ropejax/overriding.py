"""Whether a class of settings overrides what it means to override.

A misspelt hook would never be called, and the class would silently be its base.
"""

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

_CLOSE = 0.85
"""Names at least as alike are taken for each other."""

_VALUES = (property, functools.cached_property, bool, int, float, str)
"""What is read, not called; a method in its place would be true whatever it returns."""


def check_overrides(cls: type) -> None:
    """Raises ValueError for a misspelt name, or for what cannot stand for its base's.

    Args:
        cls: a class; it and its bases are looked at, names with an underscore not. A
            mixin is held to the classes after it, all others to their own bases.

    Raises:
        ValueError: if a method or class attribute that is in none of the bases has
            nearly the name of one of theirs; if an overriding method takes other
            arguments than the base gives it; if a value or a setting stands for a
            method, or a method for a value or property; or if a class gives a setting
            of its base a value without an annotation, which is no new default.
    """
    for at, kind in enumerate(cls.__mro__[:-1]):
        is_mixin = not dataclasses.is_dataclass(kind)
        bases = cls.__mro__[at + 1 : -1] if is_mixin else kind.__mro__[1:-1]
        known = {name for base in bases for name in _public(base)}
        for name in _public(kind):
            if name in known:
                _check_override(kind, name, _first(bases, name))
                continue
            nearest = difflib.get_close_matches(name, known, 1, _CLOSE)
            if nearest:
                raise ValueError(
                    f"{kind.__name__}.{name} overrides nothing; rename it to "
                    f"{nearest[0]} if that is meant, or to something less alike."
                )
        _check_settings(kind, bases)


def _check_override(kind: type, name: str, theirs: Any) -> None:
    """Checks what stands for a method, a property or a class attribute of a base."""
    own, what = vars(kind)[name], f"{kind.__name__}.{name}"
    if inspect.isfunction(theirs):
        if inspect.isfunction(own):
            _check_arguments(what, own, theirs)
        elif not (callable(own) or hasattr(own, "__get__")):
            raise ValueError(
                f"{what} stands for a method of that name; define one, or rename it."
            )
    elif inspect.isfunction(own) and isinstance(theirs, _VALUES):
        raise ValueError(
            f"{what} is a method, but is read, not called, and so always true; write "
            "@property above it, or set a value."
        )


def _check_arguments(what: str, own: Any, theirs: Any) -> None:
    given = inspect.signature(theirs).parameters.values()
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in given):
        return  # it does not say what it is given
    by_place = [each for each in given if each.kind is not each.KEYWORD_ONLY]
    by_name = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(own).bind(*by_place, **by_name)
    except TypeError as error:
        raise ValueError(
            f"{what} must take ({', '.join(each.name for each in given)}): {error}."
        ) from None


def _check_settings(kind: type, bases: Iterable[type]) -> None:
    """Checks fields, which hide methods, and values that alter no field."""
    annotated = inspect.get_annotations(kind)
    for name in _settings(kind):
        what = f"{kind.__name__}.{name}"
        if name in annotated and inspect.isfunction(_first(bases, name)):
            raise ValueError(
                f"{what} is a setting and hides the method of that name; rename it."
            )
        own = vars(kind).get(name)
        is_new = name in annotated or inspect.isdatadescriptor(own)
        if name in vars(kind) and not is_new:
            raise ValueError(
                f"{what} has no annotation, so that the setting keeps its default; "
                f"write {name}: ... = ... with its type."
            )


def _first(bases: Iterable[type], name: str) -> Any:
    """What stands for a name in the first base that has it; None if none has."""
    return next((vars(base)[name] for base in bases if name in vars(base)), None)


def _public(kind: type) -> Iterator[str]:
    """Names of methods and class attributes."""
    settings = _settings(kind)
    for name in vars(kind):
        is_hook = name == "__call__" or not name.startswith("_")
        if is_hook and name not in settings:
            yield name


def _settings(kind: type) -> set[str]:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {field.name for field in fields}
