"""Settings written as text, `window=512, distance=Rectified(512)`, as objects.

Text is read as the arguments of a call: numbers, strings, tuples, True, False and None
are themselves, a bare name is a string, and a call makes an object of a known class.
Nothing else is evaluated.
"""

import ast
import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Classes = Mapping[str, Callable[..., Any]]


def parse(text: str, where: str, classes: Classes | None = None) -> dict[str, Any]:
    """Returns the arguments that `text` gives, by name.

    Args:
        text: `name=value, name=value`, or nothing.
        where: what the text belongs to, for messages.
        classes: names that may be called, and what they make.

    Raises:
        ValueError: if the text cannot be read, or a call fails.
    """
    try:
        call = ast.parse(f"settings({text})", mode="eval").body
    except SyntaxError:
        raise _unreadable(text, where) from None
    if (
        not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name))
        or call.args
    ):
        raise _unreadable(text, where)
    names = [keyword.arg for keyword in call.keywords]
    if None in names or len(set(names)) < len(names):
        raise _unreadable(text, where)
    return {
        keyword.arg: _value(keyword.value, where, classes or {})
        for keyword in call.keywords
    }


def split(text: str, where: str) -> tuple[str, str]:
    """Returns name and settings of a text such as `randomized(max_position=512)`.

    Raises:
        ValueError: if it is neither a name nor a name with settings in parentheses.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise ValueError(
            f"{where}: cannot read {text!r}; write a name, or a name with settings in "
            "parentheses, as in randomized(max_position=512)."
        )
    return match[1], match[2] or ""


def construct(
    cls: type, options: Mapping[str, Any], where: str, also: Iterable[str] = ()
) -> Any:
    """Returns `cls(**options)`, and refuses what is no setting of it.

    Args:
        cls: a dataclass of settings.
        options: settings by name.
        where: what the options belong to, for messages.
        also: names that are set elsewhere, and where: shown if one is given here.

    Raises:
        ValueError: for an unknown name, a value of another type, or one out of range.
    """
    known = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in also]
    for name in options:
        if name not in known:
            hint, listed = nearest(name, known), ", ".join(known) or "none"
            raise ValueError(
                f"{where}: {cls.__name__} has no setting {name!r}.{hint} "
                f"Its settings: {listed}."
            )
    return _called(cls, (), _coerced(cls, options, where), where)


def change(settings: Any, options: Mapping[str, Any], where: str) -> Any:
    """Returns a copy of a dataclass with some settings changed, checked like a new one.

    Raises:
        ValueError: as `construct`.
    """
    own = {
        f.name: getattr(settings, f.name)
        for f in dataclasses.fields(settings)
        if f.init
    }
    return construct(type(settings), own | dict(options), where)


def look_up(name: str, catalogue: Mapping[str, Any], where: str) -> Any:
    """Returns `catalogue[name]`.

    Raises:
        ValueError: for an unknown name, with the nearest ones.
    """
    if name in catalogue:
        return catalogue[name]
    raise ValueError(
        f"{where}={name!r} is unknown.{nearest(name, catalogue)} "
        f"Known: {', '.join(catalogue)}."
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ` Did you mean ...?` with the nearest of the known names, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def _coerced(cls: type, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Whole floats become integers where a setting is an integer; text is refused."""
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    values = {}
    for name, value in options.items():
        default = defaults[name]
        values[name] = value
        if isinstance(default, bool) != isinstance(value, bool) and isinstance(
            default, bool
        ):
            raise ValueError(f"{where}: {name} must be True or False, got {value!r}.")
        if isinstance(default, int | float) and isinstance(value, str):
            raise ValueError(f"{where}: {name} must be a number, got {value!r}.")
        if isinstance(default, str) and not isinstance(value, str):
            raise ValueError(f"{where}: {name} must be a name, got {value!r}.")
        if dataclasses.is_dataclass(default) and not dataclasses.is_dataclass(value):
            raise ValueError(
                f"{where}: {name} must be an object such as {default!r}, got {value!r}."
            )
        if type(default) is int and isinstance(value, float):
            if not value.is_integer():
                raise ValueError(f"{where}: {name} must be an integer, got {value}.")
            values[name] = int(value)
    return values


def _value(node: ast.expr, where: str, classes: Classes) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(item, where, classes) for item in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        cls = look_up(node.func.id, classes, f"{where}: class")
        given = tuple(_value(item, where, classes) for item in node.args)
        named = {k.arg: _value(k.value, where, classes) for k in node.keywords if k.arg}
        return _called(cls, given, named, where)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _unreadable(ast.unparse(node), where) from None


def _called(cls: Callable, given: tuple, named: Mapping[str, Any], where: str) -> Any:
    try:
        return cls(*given, **named)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _unreadable(text: str, where: str) -> ValueError:
    return ValueError(
        f"{where}: cannot read {text!r}; write name=value, name=value, as in "
        "max_wavelength=5e5, layout=interleaved."
    )
