"""Configs from the command line: `--config=FILE:argument --config.train.steps=2e4`.

The work is done by `ml_collections.config_flags`. Around it, names are checked against
the file first, so that a slip is answered with the nearest names and not a traceback.
"""

import importlib.util
import inspect
import pathlib
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from configs import base
from experiments.building.fields import all_fields, check_fields, check_name
from experiments.building.nearest import nearest


class WholeNumber(flags.IntegerParser):
    """Reads integers, also when written as 1e4."""

    def convert(self, argument):
        """Returns the number that a text says; ValueError if it is no whole one."""
        try:
            return super().convert(argument)
        except ValueError:
            number = _number(argument, "whole number, such as 20000 or 2e4")
            if not number.is_integer():
                raise ValueError(f"{argument} is no whole number") from None
            return int(number)


class _Number(flags.FloatParser):
    """Reads numbers, and says in plain words what is none."""

    def convert(self, argument):
        return _number(argument, "number, such as 0.001 or 1e-3")


class _Condition(flags.BooleanParser):
    """Reads true and false, and says in plain words what is neither."""

    def parse(self, argument):
        try:
            return super().parse(argument)
        except ValueError:
            raise ValueError(f"{argument!r} is neither true nor false") from None


def _number(argument, what: str) -> float:
    try:
        return float(argument)
    except ValueError:
        raise ValueError(f"{argument!r} is no {what}") from None


for _type, _parser in ((int, WholeNumber), (float, _Number), (bool, _Condition)):
    config_flags.register_flag_parser_for_type(_type, _parser())


def load(config_file: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the config of a file with the given fields replaced.

    Args:
        config_file: path of a Python file with `get_config`, and behind a colon its
            argument, if any: `configs/che.py:task=even_pairs`.
        overrides: `--config.group.field=value`, or `--config.group.field` and `value`.

    Raises:
        ValueError: if the file, a field or a value is not as it should be, or fields
            are missing.
    """
    config = changed(_get_config(*_split(config_file)), overrides)
    check_fields(config)
    return config


def changed(config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """Returns a config with the given fields replaced; it may be altered.

    Args:
        config: the config.
        overrides: as in `load`.

    Raises:
        ValueError: if a field or a value is not as it should be.
    """
    fields = list(all_fields(config))
    for path in paths(overrides):
        check_name(path, fields, "--config.")
    overrides, unset = _without_none(overrides)
    argv = ["experiments", *overrides]
    values = flags.FlagValues()
    try:
        holder = config_flags.DEFINE_config_dict(
            "config", config, lock_config=True, flag_values=values, sys_argv=argv
        )
        left = values(argv)
    except (flags.Error, ValueError, TypeError, AttributeError) as error:
        raise ValueError(str(error).replace("flag --", "--", 1)) from None
    if left[1:]:
        raise ValueError(
            f"{left[1]!r} is no argument; write fields as --config.group.field=value."
        )
    loaded = holder.value
    for path in unset:
        group, _, field = path.rpartition(".")
        loaded[group][field] = None
    return loaded


def values(config: ConfigDict, overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the values of the fields that a command line sets, by dotted name.

    Args:
        config: one with these fields, for their types; it may be altered.
        overrides: as in `load`.

    Raises:
        ValueError: if a field or a value is not as it should be.
    """
    found = changed(config, overrides)
    return {path: _value(found, path) for path in paths(overrides)}


def _without_none(overrides: Sequence[str]) -> tuple[list[str], set[str]]:
    """Takes `--config.field=None` out, where a field may be without a value.

    Returns:
        The other texts, and the fields that are None.
    """
    plain = base.get_config()
    kept: list[tuple[str, str]] = []
    unset: set[str] = set()
    texts = iter(overrides)
    for text in texts:
        path = next(paths([text]), "")
        if not path or _value(plain, path) is not None:
            kept.append(("", text))
            continue
        value = text.partition("=")[2] if "=" in text else next(texts, "")
        unset.discard(path)
        if value == "None":
            kept = [one for one in kept if one[0] != path]
            unset.add(path)
        else:
            kept.append((path, f"--config.{path}={value}"))
    return [text for _, text in kept], unset


def _value(config: ConfigDict, path: str):
    """Returns a field's value; "" if there is no such field."""
    for name in path.split("."):
        if not isinstance(config, ConfigDict) or name not in config:
            return ""
        config = config[name]
    return config


def _split(config_file: str) -> tuple[pathlib.Path, str]:
    """Returns the path of a config's file, which exists, and its argument."""
    name, _, argument = config_file.partition(":")
    file = pathlib.Path(name)
    if file.suffix != ".py" or not file.is_file():
        known = [str(path) for path in sorted(file.parent.glob("*.py"))]
        raise ValueError(f"--config: there is no file {name!r}.{nearest(name, known)}")
    return file, argument


def load_module(file: pathlib.Path) -> types.ModuleType:
    """Returns a config's file as a module."""
    spec = importlib.util.spec_from_file_location(f"config_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _get_config(file: pathlib.Path, argument: str) -> ConfigDict:
    module = load_module(file)
    if not hasattr(module, "get_config"):
        raise ValueError(f"--config: {file} defines no get_config.")
    if inspect.signature(module.get_config).parameters:
        config = module.get_config(argument)
    elif argument:
        raise ValueError(
            f"--config: get_config of {file} takes no argument, got {argument!r}."
        )
    else:
        config = module.get_config()
    if not isinstance(config, ConfigDict):
        raise ValueError(
            f"--config: get_config of {file} must return a ConfigDict, such as that of "
            f"configs.base with fields changed; got {type(config).__name__}."
        )
    return config


def paths(overrides: Sequence[str]) -> Iterator[str]:
    """Yields the dotted names of the fields that a command line sets."""
    for text in overrides:
        if match := re.match(r"--?(?:no)?config\.([^=]*)", text):
            yield match[1]
