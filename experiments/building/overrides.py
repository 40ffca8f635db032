"""Configs from the command line: `--config=FILE:argument --config.train.steps=2e4`.

The work is done by `ml_collections.config_flags`. Around it, names are checked against
the file first, so that a slip is answered with the nearest names and not a traceback.
"""

import importlib.util
import pathlib
import re
import types
from collections.abc import Iterator, Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from experiments.building.fields import all_fields, check_name
from experiments.building.fitting import nearest


class _WholeNumber(flags.IntegerParser):
    """Reads integers, also when written as 1e4."""

    def convert(self, argument):
        try:
            return super().convert(argument)
        except ValueError:
            number = float(argument)
            if not number.is_integer():
                raise ValueError(f"{argument} is no whole number") from None
            return int(number)


config_flags.register_flag_parser_for_type(int, _WholeNumber())


def load(config_file: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the config of a file with the given fields replaced.

    Args:
        config_file: path of a Python file with `get_config`, and behind a colon its
            argument, if any: `configs/che.py:task=even_pairs`.
        overrides: `--config.group.field=value`, or `--config.group.field` and `value`.

    Raises:
        ValueError: if the file, a field or a value is not as it should be.
    """
    config = _get_config(*_split(config_file))
    fields = list(all_fields(config))
    for path in paths(overrides):
        check_name(path, fields, "--config.")
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
    return holder.value


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
    return module.get_config(argument)


def paths(overrides: Sequence[str]) -> Iterator[str]:
    """Yields the dotted names of the fields that a command line sets."""
    for text in overrides:
        if match := re.match(r"--?(?:no)?config\.([^=]*)", text):
            yield match[1]
