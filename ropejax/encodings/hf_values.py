"""Reading single entries of a config: the wrong type or range is refused by name.

Configs come from JSON, so that a number may be a string and a list a number. Null
counts as absent, as in transformers; zero and the empty list do not.
"""

import numbers
import sys
from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


def need(place: Config, name: str) -> Any:
    """Returns an entry, or raises ValueError if the config lacks it."""
    if place.get(name) is None:
        raise ValueError(f"the config lacks {name!r}; add it.")
    return place[name]


def need_number(place: Config, name: str) -> float:
    """Returns a finite positive number that must not be absent."""
    need(place, name)
    return read_number(place, name)


def need_count(place: Config, name: str) -> int:
    """Returns a positive whole number that must not be absent."""
    need(place, name)
    return read_count(place, name)


def read_number(place: Config, name: str, *, zero: bool = False) -> float | None:
    """Returns a finite positive number (or zero, if `zero`); None if absent."""
    value = place.get(name)
    if value is None:
        return None
    _check_number(name, value, zero=zero)
    return float(value)


def read_first(*entries: tuple[Config, str]) -> float | None:
    """Returns the first number that is given, None if none is."""
    numbers = [read_number(place, name) for place, name in entries]
    return next((number for number in numbers if number is not None), None)


def read_count(place: Config, name: str, *, zero: bool = False) -> int | None:
    """Returns a positive whole number (or zero, if `zero`); None if absent."""
    number = read_number(place, name, zero=zero)
    if number is None:
        return None
    if number != int(number):
        raise ValueError(f"{name} must be a whole number, got {place[name]!r}.")
    return int(number)


def read_flag(place: Config, name: str, default: bool | None = None) -> bool | None:
    """Returns true or false, or the default if absent."""
    value = place.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(
            f"{name} must be true or false, got {value!r}; drop the quotes, or the "
            "entry, if it is text."
        )
    return value


def read_name(place: Config, name: str) -> str | None:
    """Returns a string; None if absent."""
    value = place.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a name in quotes, got {value!r}.")
    return value


def read_section(place: Config, name: str) -> dict[str, Any]:
    """Returns a config within the config, without its nulls; `{}` if absent."""
    value = place.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{name} must be a dict or null, got {value!r}; write for instance "
            '{"rope_type": "linear", "factor": 2.0}.'
        )
    return {key: each for key, each in value.items() if each is not None}


def read_numbers(
    place: Config, name: str, *, whole: bool = False, zero: bool = False
) -> tuple:
    """Returns a list of positive numbers (or zeros, if `zero`), or of counts."""
    values = need(place, name)
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{name} must be a list of numbers, got {values!r}.")
    for index, value in enumerate(values):
        _check_number(f"{name}[{index}]", value, zero=whole or zero)
        if whole and value != int(value):
            raise ValueError(f"{name}[{index}] must be a whole number, got {value!r}.")
    return tuple(int(value) if whole else float(value) for value in values)


def read_names(place: Config, name: str) -> tuple[str, ...]:
    """Returns a list of strings; empty if absent."""
    values = place.get(name)
    if values is None:
        return ()
    named = isinstance(values, list | tuple)
    if not named or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be a list of names, got {values!r}.")
    return tuple(values)


def read_flags(place: Config, name: str) -> tuple[bool, ...] | None:
    """Returns a list of 0 or 1, or of true or false; None if absent or empty."""
    values = place.get(name)
    if values is None:
        return None
    if not isinstance(values, list | tuple) or any(
        not isinstance(value, int) or value not in (0, 1) for value in values
    ):
        raise ValueError(f"{name} must be a list of 0 and 1, got {values!r}.")
    return tuple(map(bool, values)) or None


def _check_number(name: str, value: Any, *, zero: bool) -> None:
    """Raises ValueError unless the value is a finite number in range."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}; drop quotes if any.")
    # Python's: numpy's narrow ones warn where they are compared with larger numbers.
    if not 0 <= float(value) <= sys.float_info.max or (value == 0 and not zero):
        range_ = "zero or positive" if zero else "positive"
        raise ValueError(f"{name} must be finite and {range_}, got {value!r}.")
