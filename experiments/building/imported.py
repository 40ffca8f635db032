"""Methods of the user's own, named by the path of an import: `my_module.MyEncoding`."""

import importlib
import types
from collections.abc import Callable

from experiments.building.nearest import nearest


def is_path(name: object) -> bool:
    """Returns True if a name is a path of modules, and not one of a catalogue."""
    return isinstance(name, str) and "." in name


def imported(path: str, kind: type, where: str) -> type:
    """Returns the class at a path, such as `my_package.encodings.LogDistance`.

    Modules are found as Python finds them: in the folder where the command is run, and
    among what is installed.

    Args:
        path: modules and the class, with dots between them.
        kind: what the class must derive from.
        where: which setting names it, for messages.

    Raises:
        ValueError: if there is no such module or class, or it derives from another.
    """
    module, name = _module_of(path, where, "my_module.MyClass")
    fitting = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, kind) and value is not kind
    ]
    if name not in fitting:
        what = "is no class" if hasattr(module, name) else "is not there"
        raise ValueError(
            f"{where}={path!r}: in {module.__file__}, {name} {what} that derives from "
            f"{kind.__module__}.{kind.__name__}.{nearest(name, fitting)}"
        )
    return getattr(module, name)


def imported_function(path: str, where: str) -> Callable:
    """Returns the function at a path, such as `my_package.my_optimizer`.

    Args:
        path: modules and the function, with dots between them.
        where: which setting names it, for messages.

    Raises:
        ValueError: if there is no such module or function.
    """
    module, name = _module_of(path, where, "my_module.my_function")
    found = getattr(module, name, None)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value)]
        what = "is no function" if hasattr(module, name) else "is not there"
        raise ValueError(
            f"{where}={path!r}: in {module.__file__}, {name} {what}."
            f"{nearest(name, known)}"
        )
    return found


def _module_of(path: str, where: str, example: str) -> tuple[types.ModuleType, str]:
    """Returns the module of a path, and the name in it that the path ends with."""
    module_name, _, name = path.rpartition(".")
    try:
        return importlib.import_module(module_name), name
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise ValueError(
            f"{where}={path!r}: there is no module {error.name!r}, neither in the "
            "folder where the command is run nor installed; write the path of an "
            f"import, as in {example}."
        ) from None
    except (TypeError, ValueError):  # such as ".MyClass"
        raise ValueError(
            f"{where}={path!r} is no path of an import, as {example} is."
        ) from None


def path_of(cls: type) -> str:
    """Returns the path by which a class is imported."""
    return f"{cls.__module__}.{cls.__qualname__}"
