"""The argument of a config, `name=value,name=value`: a dict, and its numbers."""

import difflib


def parse(arg: str, **defaults: str) -> dict[str, str]:
    """Returns `defaults` with what `arg` changes.

    Args:
        arg: `name=value` pairs with commas between them, or nothing.
        **defaults: the names that are known, each with its default.

    Raises:
        ValueError: for text that is no pair, an unknown name, or one given twice.
    """
    values: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in arg.split(","))):
        name, equals, value = (text.strip() for text in part.partition("="))
        if not (name and equals and value):
            raise ValueError(
                f"{part!r} in the config's argument {arg!r} is not name=value; "
                f"names: {', '.join(defaults)}."
            )
        if name not in defaults:
            meant = name.lower().replace("-", "_")
            near = difflib.get_close_matches(meant, defaults, n=2, cutoff=0.4)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(
                f"the config takes no argument {name!r}; it takes "
                f"{', '.join(defaults)}.{hint}"
            )
        if name in values:
            raise ValueError(f"the config's argument {arg!r} gives {name} twice.")
        values[name] = value
    return defaults | values


def whole(name: str, text: str) -> int:
    """Returns the value of an argument that counts something.

    Args:
        name: of the argument.
        text: its value.

    Raises:
        ValueError: if it is no whole number of 1 or more.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a whole number from 1 up, got {text!r}.")
    return number
