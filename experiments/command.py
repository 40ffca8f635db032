"""What the commands share: help, one-line errors, the cache of compiled programs."""

import argparse
import inspect
import os
import pathlib
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from experiments.building.nearest import close, close_fields, meant, plain
from experiments.running import leaving, memory, preemption, storage
from experiments.running.interrupt import (
    STOPPED,
    STOPPED_BY_HAND,
    DivergedError,
    StoppedError,
)

_OURS = [
    pathlib.Path(__file__).parents[1] / part
    for part in ("configs", "experiments", "ropejax")
]


class UsageError(ValueError):
    """The command line cannot be."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser(doc: str) -> argparse.ArgumentParser:
    """Returns a parser whose help begins with a module's docstring."""
    made = _Parser(
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage=argparse.SUPPRESS,
        add_help=False,
    )
    made.add_argument("--help", "-h", action="store_true", help="print this, and stop")
    made.add_argument(
        "--compile_cache",
        metavar="DIR",
        default=os.environ.get("JAX_COMPILATION_CACHE_DIR", default_cache()),
        help="where compiled programs are kept for the next run; empty for nowhere "
        "(default: %(default)s)",
    )
    return made


def whole_number(text: str) -> int:
    """Returns the whole number of an option, also when written as 2e4, as in fields.

    Raises:
        ArgumentTypeError: for what is no whole number.
    """
    from experiments.building.overrides import WholeNumber

    try:
        return WholeNumber().convert(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def default_cache() -> str:
    """Returns the user's own cache folder for compiled programs."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return str(pathlib.Path(base).expanduser() / "ropejax" / "compiled")


def parse(
    made: argparse.ArgumentParser, argv: Sequence[str] | None
) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and what is left: overrides of the config's fields.

    Raises:
        UsageError: for an unknown option, with the nearest ones.
    """
    given, rest = made.parse_known_args(argv)
    if given.help:
        print(made.format_help())
        if any(action.dest == "config" for action in made._actions):
            print(config_help())
            print_catalogues()
        sys.exit(0)
    names = [name for action in made._actions for name in action.option_strings]
    for text in rest:
        name = text.split("=")[0]
        if text.startswith("-") and not re.match(r"--?(no)?config\.", text):
            raise UsageError(
                f"there is no option {name!r}.{_option_meant(name, names)}"
            )
    return given, rest


def options(
    made: argparse.ArgumentParser, argv: Sequence[str] | None
) -> argparse.Namespace:
    """Returns the options of a command that takes nothing else.

    Raises:
        UsageError: for anything else.
    """
    given, rest = parse(made, argv)
    if rest:
        raise UsageError(f"{rest[0]!r} is no argument of this command.")
    return given


def _option_meant(name: str, options: Sequence[str]) -> str:
    """Says which option or field of the config was perhaps meant, if any."""
    given = name.lstrip("-")
    fields: list[str] = []
    if "--config" in options:
        from configs import base
        from experiments.building.fields import all_fields

        fields = close_fields(given, list(all_fields(base.get_config())))
    written = meant(f"--config.{field}" for field in fields)
    exact = [field for field in fields if plain(field).endswith(plain(f".{given}"))]
    if "." in given or exact:
        return written
    known = {option.lstrip("-"): option for option in options}
    return meant(repr(known[one]) for one in close(given, known)) or written


def config_help() -> str:
    """Returns the config's fields with their comments, from the file itself."""
    from configs import base

    lines = ["fields of a config (--config.group.field=value), and their defaults:"]
    prefixes = {"config": "", "evaluation": "eval."}
    for line in inspect.getsource(base.get_config).splitlines():
        if match := re.match(r"\s+(\w+)\.(\w+) = (.*?)  # (.*)", line):
            group, field, value, comment = match.groups()
            value = "not given" if value.startswith("placeholder") else value
            name = prefixes.get(group, f"{group}.") + field
            lines.append(f"  {name:<26} {value:<18} {comment}")
    return "\n".join(lines) + "\n"


def print_catalogues() -> int:
    """Prints tasks, encodings, position schemes and curricula, one line each."""
    from experiments.building.blocks import BLOCKS
    from ropejax.encodings import ENCODINGS
    from ropejax.masks import MASKS
    from ropejax.nn import (
        MLPS,
        NORMALIZERS,
        NORMS,
        OUTPUT_GATES,
        QK_NORMS,
        READOUTS,
        ROW_SCALES,
        TOKEN_SHIFTS,
    )
    from ropejax.nn.patterns import PATTERNS
    from ropejax.nn.recurrent import RECURRENT
    from ropejax.positions import POSITIONS
    from ropejax.tasks import MORE_TASKS, TASKS, TEXT_TASKS
    from ropejax.training import CURRICULA, OPTIMIZERS

    for title, catalogue in {
        "tasks (task.name): the Chomsky hierarchy": TASKS,
        "more tasks (task.name)": MORE_TASKS,
        "tasks on text (task.name)": TEXT_TASKS,
        "encodings (encoding.name)": ENCODINGS,
        "position schemes (positions.name, eval.positions)": POSITIONS,
        "layer patterns (model.pattern)": PATTERNS,
        "masks of all layers (model.mask), such as Lambda(4, 60) | Global(2)": MASKS,
        "layers (model.kind_options, block=GAU())": BLOCKS,
        "norms of hidden states (model.norm)": NORMS,
        "forms of the MLP (model.mlp)": MLPS,
        "how logits are read out (model.readout)": READOUTS,
        "what replaces the softmax (model.normalizer)": NORMALIZERS,
        "normalized queries and keys (model.qk_norm)": QK_NORMS,
        "learned factors on logits (model.row_scale)": ROW_SCALES,
        "projections that take in tokens before (model.token_shift)": TOKEN_SHIFTS,
        "gates on heads' outputs (model.output_gate)": OUTPUT_GATES,
        "recurrent models (model.kind, model.kind_options)": RECURRENT,
        "curricula (train.curriculum)": CURRICULA,
        "optimizers (optim.name)": OPTIMIZERS,
    }.items():
        print(f"{title}:")
        for name, cls in catalogue.items():
            print(f"  {name:<28} {cls.summary}")
            if settings := settings_of(cls):
                print(f"  {'':<28}   {settings}")
        print()
    return 0


def settings_of(cls: type) -> str:
    """Returns `name=default, ...` of a class of settings, as configs have them.

    A setting without a default is its name alone. Other ways in which text may make an
    object of it come behind: `Window.sliding(width)`.
    """
    from experiments.building.options import constructors
    from ropejax.training import Curriculum

    parameters = dict(inspect.signature(cls).parameters)
    if issubclass(cls, Curriculum):
        del parameters["max_length"]  # that is train.max_length
    ways = [
        f"{cls.__name__}.{name}({', '.join(inspect.signature(make).parameters)})"
        for name, make in constructors(cls).items()
    ]
    return "; ".join([", ".join(map(_setting, parameters.values())), *ways])


def _setting(parameter: inspect.Parameter) -> str:
    from experiments.building import trained_length

    name, value = parameter.name, parameter.default
    if value is parameter.empty:
        return name
    if name == trained_length.SETTING:
        value = "the run's"
    return f"{name}={value}"


def prepare_jax(compile_cache: str) -> None:
    """Sets where compiled programs are kept; call before anything is compiled."""
    import jax

    if not compile_cache:
        return
    jax.config.update("jax_compilation_cache_dir", compile_cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def run(main: Callable[[], int]) -> NoReturn:
    """Runs a command: what a person can mend becomes one message, and exit code 2.

    SIGTERM ends the process with the exit code 75.

    A ValueError that was not raised by this project's own checks keeps its traceback.
    """
    preemption.heed_sigterm()
    import absl.logging

    # What orbax logs as errors, it raises too; we say it in one line.
    absl.logging.set_verbosity(absl.logging.FATAL)
    warnings.showwarning = _show_warning
    try:
        _run(main)
    except SystemExit as ended:
        leaving.before_exit(ended.code if isinstance(ended.code, int) else 1)
        raise
    except Exception as error:
        lost = error if isinstance(error, leaving.LostError) else leaving.lost(error)
        if lost is not None:
            print(f"error: {lost}", file=sys.stderr)
            leaving.end_alone()
        leaving.before_exit(1)
        if short := memory.told(error):
            print(f"error: {short}", file=sys.stderr)
            sys.exit(1)
        raise


def _run(main: Callable[[], int]) -> NoReturn:
    try:
        sys.exit(main())
    except ValueError as error:
        if not _raised_here(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except storage.StorageError as full:
        print(f"error: {full}", file=sys.stderr)
        sys.exit(storage.CODE)
    except DivergedError as diverged:
        print(f"error: {diverged}", file=sys.stderr)
        sys.exit(1)
    except StoppedError as stopped:
        print(stopped, file=sys.stderr)
        sys.exit(stopped.code)
    except BrokenPipeError:  # as of `... --list | head`
        sys.stdout = None
        sys.exit(0)
    except KeyboardInterrupt:
        print(STOPPED_BY_HAND, file=sys.stderr)
        sys.exit(STOPPED)


def _raised_here(error: ValueError) -> bool:
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    file = pathlib.Path(frame.f_code.co_filename)
    return any(file.is_relative_to(folder) for folder in _OURS)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)
