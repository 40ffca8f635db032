"""Whether a class of settings overrides what it means to override.

A misspelt hook would never be called, and the class would silently be its base.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Iterator

_CLOSE = 0.85
"""Names at least as alike are taken for each other."""


def check_overrides(cls: type) -> None:
    """Raises ValueError for a misspelt name, or a method that cannot be called.

    Args:
        cls: a class; it and its bases are looked at, names with an underscore not.

    Raises:
        ValueError: if a method or class attribute that is in none of the bases has
            nearly the name of one of theirs, or an overriding method takes other
            arguments than the base gives it.
    """
    for at, kind in enumerate(cls.__mro__[:-1]):
        bases = cls.__mro__[at + 1 : -1]
        known = {name for base in bases for name in _public(base)}
        for name in _public(kind):
            if name in known:
                _check_arguments(kind, name, bases)
                continue
            nearest = difflib.get_close_matches(name, known, 1, _CLOSE)
            if nearest:
                raise ValueError(
                    f"{kind.__name__}.{name} overrides nothing; rename it to "
                    f"{nearest[0]} if that is meant, or to something less alike."
                )


def _check_arguments(kind: type, name: str, bases: tuple[type, ...]) -> None:
    own = vars(kind)[name]
    theirs = next(vars(base)[name] for base in bases if name in vars(base))
    if not (inspect.isfunction(own) and inspect.isfunction(theirs)):
        return
    given = inspect.signature(theirs).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in given):
        return
    by_place = [each for each in given if each.kind is not each.KEYWORD_ONLY]
    by_name = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
    try:
        inspect.signature(own).bind(*by_place, **by_name)
    except TypeError as error:
        raise ValueError(
            f"{kind.__name__}.{name} must take "
            f"({', '.join(each.name for each in given)}): {error}."
        ) from None


def _public(kind: type) -> Iterator[str]:
    """Names of methods and class attributes; fields are for `dataclasses` to judge."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    settings = {field.name for field in fields}
    for name in vars(kind):
        is_hook = name == "__call__" or not name.startswith("_")
        if is_hook and name not in settings:
            yield name
