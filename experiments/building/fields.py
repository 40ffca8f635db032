"""The fields that a config has, and what is said of one that it has not."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from configs import base
from experiments.building.fitting import fitted
from experiments.building.nearest import close_fields, meant

REMEDY = "start from configs.base.get_config() and change its fields"


def all_fields(config: ConfigDict, prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of all fields of a config."""
    for name in config:
        value = config.get_ref(name).get()
        if isinstance(value, ConfigDict):
            yield from all_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def check_name(path: str, fields: Iterable[str], flag: str = "") -> None:
    """Raises ValueError, saying what was perhaps meant, unless a field has this name.

    Args:
        path: a dotted name.
        fields: dotted names of all fields.
        flag: what stands before a name where it is given, such as `--config.`.
    """
    fields = list(fields)
    if path in fields:
        return
    inside = [field for field in fields if field.startswith(f"{path}.")]
    if inside:
        raise ValueError(
            f"{flag or 'config.'}{path} is a group of fields; set one of "
            f"{', '.join(inside)}."
        )
    hint = meant(flag + field for field in close_fields(path, fields))
    if not hint:
        groups = ", ".join(dict.fromkeys(field.split(".")[0] for field in fields))
        hint = (
            f" It has {groups}; settings of a method are text in its group, as "
            f"{flag}encoding.options='max_wavelength=5e5'."
        )
    raise ValueError(f"the config has no field {path!r}.{hint}")


def check_fields(config: ConfigDict | Mapping[str, Any]) -> None:
    """Raises ValueError unless a config has the base config's fields, of their types.

    A ConfigDict that is not locked, and a plain dictionary, take any name and value.
    """
    known = _types(base.get_config())
    given = dict(_given(ConfigDict(config).to_dict()))
    for path, value in given.items():
        if value != {} or path in known:
            _check_field(path, value, known)
    missing = [path for path in known if path not in given]
    if missing:
        raise ValueError(f"the config lacks {', '.join(missing)}; {REMEDY}.")


def _check_field(path: str, value: Any, known: Mapping[str, Any]) -> None:
    check_name(path, known)
    hint = known[path]
    whole = isinstance(value, float) and value.is_integer()
    if whole and hint in (int, int | None):
        raise ValueError(f"{path} must be an integer, got {value}; write {int(value)}.")
    fitted(value, hint, path)


def _types(config: ConfigDict, prefix: str = "") -> dict[str, Any]:
    """Returns the type of each field; one without a value may also be None."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            found |= _types(value, f"{prefix}{name}.")
        else:
            kind = config.get_type(name)
            found[prefix + name] = kind | None if value is None else kind
    return found


def _given(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _given(value, f"{prefix}{name}.")
        else:
            yield (
                f"{prefix}{name}",
                value.item() if isinstance(value, np.generic) else value,
            )
