"""Settings written as text, `window=512, distance=Rectified(512)`, as objects.

Text is read as the arguments of a call: numbers, strings, tuples, True, False and None
are themselves, a bare name is a string, and a call makes an object of a known class, or
calls a constructor of it, as in `Window.sliding(8)`. Masks combine with `&`, `|` and
`~`. Nothing else is evaluated.
"""

import ast
import dataclasses
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from configs import base
from experiments.building.fields import all_fields
from experiments.building.fitting import Classes, fitted
from experiments.building.imported import imported, is_path
from experiments.building.nearest import nearest as nearest
from ropejax.masks import Mask
from ropejax.settings import Settings

_BETWEEN = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_}


def parse(
    text: str,
    where: str,
    classes: Classes | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the arguments that `text` gives, by name.

    Args:
        text: `name=value, name=value`, or nothing.
        where: what the text belongs to, for messages.
        classes: dataclasses that may be called, by name.
        defaults: of settings that the text does not give to a class that has them.

    Raises:
        ValueError: if the text cannot be read, or a call fails.
    """
    return {
        keyword.arg: _value(keyword.value, where, classes or {}, defaults or {})
        for keyword in _keywords(text, where)
    }


def parse_object(
    text: str,
    where: str,
    kind: type,
    classes: Classes,
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Returns the object that `text` makes, as in `Window.sliding(8) | Global(2)`.

    Args:
        text: a call of a class, or such calls combined.
        where: what the text belongs to, for messages.
        kind: what it must be an object of.
        classes: dataclasses that may be called, by name.
        defaults: as `parse` has them.

    Raises:
        ValueError: if the text cannot be read, a call fails, or makes something else.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise _no_value(text, where) from None
    made = _value(node, where, classes, defaults or {})
    return fitted(made, kind, where, classes)


def split_settings(text: str, where: str) -> dict[str, str]:
    """Returns the text of each setting, by name.

    Args:
        text: `name=value, name=value`, or nothing.
        where: what the text belongs to, for messages.

    Raises:
        ValueError: if the text cannot be read.
    """
    return {one.arg: ast.unparse(one.value) for one in _keywords(text, where)}


def _keywords(text: str, where: str) -> list[ast.keyword]:
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
    return call.keywords


def split(text: str, where: str) -> tuple[str, str]:
    """Returns name and settings of a text such as `randomized(max_position=512)`.

    Raises:
        ValueError: if it is neither a name nor a name with settings in parentheses.
    """
    match = re.fullmatch(r"\s*([\w.]+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise ValueError(
            f"{where}: cannot read {text!r}; write a name, or a name with settings in "
            "parentheses, as in randomized(max_position=512)."
        )
    return match[1], match[2] or ""


def with_options(name: str, text: str) -> str:
    """Returns `name`, and behind it in parentheses what is not its default."""
    text = " ".join(text.split())
    return f"{name}({text})" if text else name


def construct(
    cls: type,
    options: Mapping[str, Any],
    where: str,
    also: Iterable[str] = (),
    classes: Classes | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Returns `cls(**options)`, and refuses what is no setting of it.

    Args:
        cls: a dataclass of settings.
        options: settings by name.
        where: what the options belong to, for messages.
        also: names that are set elsewhere, and where: shown if one is given here.
        classes: classes that text may call, for messages that say what would fit.
        defaults: of settings that are not among the options, if `cls` has them.

    Raises:
        ValueError: for an unknown name, a value of another type, or one out of range.
    """
    given = _checked(cls, options, where, also, classes)
    return _called(cls, _own(cls, defaults or {}) | given, where)


def change(settings: Any, options: Mapping[str, Any], where: str) -> Any:
    """Returns a copy of a dataclass with some settings changed, checked like a new one.

    Raises:
        ValueError: as `construct`.
    """
    cls = type(settings)
    own = {f.name: getattr(settings, f.name) for f in dataclasses.fields(cls) if f.init}
    return _called(cls, own | _checked(cls, options, where), where)


def look_up(
    name: str,
    catalogue: Mapping[str, Any],
    where: str,
    kind: type | None = None,
    own: str = "",
) -> Any:
    """Returns `catalogue[name]`, or the user's own class that `name` is the path of.

    Args:
        name: a name in the catalogue or, if `kind` is given, `my_module.MyClass`.
        catalogue: what there is.
        where: which setting has the name, for messages.
        kind: what classes of the user's own must derive from; None if there are none.
        own: what else may be the user's own, for the message.

    Raises:
        ValueError: for an unknown name, with the nearest ones.
    """
    if name in catalogue:
        return catalogue[name]
    head = name.partition("(")[0].strip() if isinstance(name, str) else name
    if kind is not None and head == name and is_path(name):
        return imported(name, kind, where)
    if head != name and (
        head in catalogue or ((kind is not None or own) and is_path(head))
    ):
        raise ValueError(
            f"{where}={name!r}: this field has the name alone, {head}; "
            f"{_settings_go(where, name)}"
        )
    meant = _by_summary(name, catalogue) or nearest(name, catalogue)
    raise ValueError(
        f"{where}={name!r} is unknown.{meant} "
        f"Known: {', '.join(catalogue) or 'none'}{_or_own(kind, own)}."
    )


def _by_summary(name: str, catalogue: Mapping[str, Any]) -> str:
    """Suggests those whose line in lists tells of it: `swiglu`, `adamw`."""
    words = {
        known: f"{getattr(entry, 'title', '')}: {getattr(entry, 'summary', '')}"
        for known, entry in catalogue.items()
    }
    sought = rf"\b{re.escape(str(name))}\b"
    told = [
        f"{known!r} ({line.removeprefix(': ')})"
        for known, line in words.items()
        if re.search(sought, line, re.IGNORECASE)
    ]
    return f" Did you mean {' or '.join(told)}?" if 1 <= len(told) <= 2 else ""


def _or_own(kind: type | None, own: str) -> str:
    if kind is not None:
        own = f"a {kind.__name__}, by its import: my_module.MyClass"
    return f"; or one of your own, {own}" if own else ""


def _settings_go(where: str, name: str) -> str:
    """Says where the settings of a name are given, if it has any."""
    group, _, field = where.partition(".")
    beside = (
        f"{group}.options" if field in ("name", "positions") else f"{where}_options"
    )
    if beside not in all_fields(base.get_config()):
        return "it has no settings here."
    text = name.partition("(")[2].rstrip().removesuffix(")")
    return f"give its settings as {beside}={text!r}."


def _checked(
    cls: type,
    options: Mapping[str, Any],
    where: str,
    also: Iterable[str] = (),
    classes: Classes | None = None,
) -> dict[str, Any]:
    """Returns settings as `cls` holds them; refuses unknown names and other types."""
    known = {f.name: f.type for f in dataclasses.fields(cls) if f.init}
    for name in also:
        known.pop(name, None)
    return _fitting(cls.__name__, known, options, where, f"{where}: ", classes)


def _fitting(
    called: str,
    known: Mapping[str, Any],
    options: Mapping[str, Any],
    where: str,
    prefix: str,
    classes: Classes | None,
) -> dict[str, Any]:
    """Returns settings as the types in `known` have them; refuses unknown names."""
    values = {}
    for name, value in options.items():
        if name not in known:
            hint, listed = nearest(name, known), ", ".join(known) or "none"
            raise ValueError(
                f"{where}: {called} has no setting {name!r}.{hint} "
                f"Its settings: {listed}."
            )
        values[name] = fitted(value, known[name], prefix + name, classes)
    return values


def _value(
    node: ast.expr, where: str, classes: Classes, defaults: Mapping[str, Any]
) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(item, where, classes, defaults) for item in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        return _object(node, where, classes, defaults)
    if isinstance(node, ast.BinOp) and type(node.op) in _BETWEEN:
        parts = (node.left, node.right)
        masks = [_mask(part, where, classes, defaults) for part in parts]
        return _BETWEEN[type(node.op)](*masks)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return ~_mask(node.operand, where, classes, defaults)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise _no_value(ast.unparse(node), where) from None


def _mask(
    node: ast.expr, where: str, classes: Classes, defaults: Mapping[str, Any]
) -> Mask:
    what = f"{where}: what stands beside &, | or ~"
    return fitted(_value(node, where, classes, defaults), Mask, what, classes)


def _object(
    node: ast.Call, where: str, classes: Classes, defaults: Mapping[str, Any]
) -> Any:
    """Returns what a call of a class, or of a constructor of it, makes."""
    make = _maker(ast.unparse(node.func), classes, where)
    known = {
        name: Any if parameter.annotation is parameter.empty else parameter.annotation
        for name, parameter in inspect.signature(make).parameters.items()
    }
    given = _settings(node, make, where, classes, defaults)
    prefix = f"{where}: {make.__qualname__}."
    checked = _fitting(make.__qualname__, known, given, where, prefix, classes)
    own = {name: value for name, value in defaults.items() if name in known}
    return _called(make, own | checked, where)


def _maker(name: str, classes: Classes, where: str) -> Callable:
    """Returns the class, or the constructor of a class, that a call names."""
    head, _, last = name.rpartition(".")
    what = f"{where}: class"
    if head in classes:
        cls = classes[head]
    else:
        try:
            return look_up(name, classes, what, Settings)
        except ValueError as unknown:
            try:  # my_module.MyMask.my_constructor
                cls = look_up(head, classes, what, Settings)
            except ValueError:
                raise unknown from None
    known = constructors(cls)
    if last not in known:
        listed = f" It has {', '.join(known)}." if known else ""
        raise ValueError(
            f"{where}: {cls.__name__} has no constructor {last!r}."
            f"{nearest(last, known)}{listed}"
        )
    return known[last]


def constructors(cls: type) -> dict[str, Callable]:
    """Returns the class methods of a class, by which text may make its objects."""
    return {
        name: getattr(cls, name)
        for name, member in inspect.getmembers_static(cls)
        if isinstance(member, classmethod) and not name.startswith("_")
    }


def _settings(
    node: ast.Call,
    make: Callable,
    where: str,
    classes: Classes,
    defaults: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the arguments of a call by name; those without one come in order."""
    known = inspect.signature(make).parameters
    in_order = [name for name, one in known.items() if one.kind != one.KEYWORD_ONLY]
    if len(node.args) > len(in_order):
        raise ValueError(
            f"{where}: {ast.unparse(node)} gives {len(node.args)} values without a "
            f"name, {make.__qualname__} takes at most {len(in_order)}; write "
            f"name=value. Its settings: {', '.join(known) or 'none'}."
        )
    pairs = list(zip(in_order, node.args, strict=False))
    pairs += [(keyword.arg, keyword.value) for keyword in node.keywords]
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name is None:
            raise _unreadable(ast.unparse(node), where)
        if name in given:
            raise ValueError(
                f"{where}: {ast.unparse(node)} gives {name} twice; give it once."
            )
        given[name] = _value(value, where, classes, defaults)
    return given


def _own(cls: type, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those defaults that a class of settings has."""
    names = {f.name for f in dataclasses.fields(cls) if f.init}
    return {name: value for name, value in defaults.items() if name in names}


def _called(make: Callable, named: Mapping[str, Any], where: str) -> Any:
    lacking = [
        name
        for name, parameter in inspect.signature(make).parameters.items()
        if parameter.default is parameter.empty and name not in named
    ]
    if lacking:
        raise ValueError(
            f"{where}: {make.__qualname__} needs a value of {' and '.join(lacking)}."
        )
    try:
        return make(**named)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _unreadable(text: str, where: str) -> ValueError:
    return ValueError(
        f"{where}: cannot read {text!r}; write name=value, name=value, as in "
        "max_wavelength=5e5, layout=interleaved."
    )


def _no_value(text: str, where: str) -> ValueError:
    return ValueError(
        f"{where}: cannot read {text!r}; a value is a number, a name, several in "
        "parentheses, or an object such as Window(8); masks combine with &, | and ~."
    )
