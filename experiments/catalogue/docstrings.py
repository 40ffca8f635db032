"""What encodings say of themselves in docstrings: formulas, and meanings of settings.

Docstrings are in Google's style. A rotary encoding that is RoPE with a map of
frequencies or distances leaves the explaining to the map, so it is looked up there too.
"""

import dataclasses
import inspect
import re
import textwrap
from typing import Any

from ropejax.encodings.distance import Distance
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.settings import Settings

_SECTION = re.compile(r"^(\w[\w ]*):\n((?:    .*\n|\n)+)", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_MATHS = re.compile(r"[-+*/^(\[|<>]|\b \. \b")
_MAPS = ("frequencies", "distance")


def sections(cls: type) -> tuple[list[str], dict[str, str]]:
    """Returns the paragraphs of a class's own docstring, and its sections by name."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "") + "\n"
    named = {m[1]: textwrap.dedent(m[2]) for m in _SECTION.finditer(text)}
    paragraphs = re.split(r"\n\s*\n", _SECTION.sub("", text).strip())
    return [" ".join(p.split()) for p in paragraphs], named


def formula(settings: Any) -> str:
    """Returns the paragraphs that hold the formula of a dataclass instance.

    That is the first paragraph with code that calculates, of the class itself or of the
    maps that it applies and their bases. If none has any, it is how the most telling of
    them is described in words.
    """
    kind, maps = type(settings), _maps(settings)
    for sources in ([kind], maps):
        found = [p for source in sources if (p := _calculation(source))]
        if found:
            return "\n\n".join(found)
    described, _ = sections(maps[0] if maps else kind)
    return "\n\n".join(described[:2])


def _calculation(cls: type) -> str:
    for paragraph in sections(cls)[0]:
        if any(_MATHS.search(code) for code in _CODE.findall(paragraph)):
            return paragraph
    return ""


def meanings(settings: Any) -> dict[str, str]:
    """Returns what each setting of a dataclass, or of an instance, means, by name.

    Base classes and maps are asked where the class itself is silent.
    """
    found: dict[str, str] = {}
    kind = settings if isinstance(settings, type) else type(settings)
    for source in (*kind.__mro__, *(_maps(settings) if settings is not kind else ())):
        text = sections(source)[1].get("Attributes", "")
        for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE):
            name, colon, meaning = entry.partition(":")
            if colon:
                found.setdefault(name.strip(), " ".join(meaning.split()))
    return found


def _maps(settings: Any) -> list[type]:
    """The classes of the maps that change anything, with their bases, each once."""
    maps = [getattr(settings, name) for name in _MAPS if hasattr(settings, name)]
    kinds = [kind for each in maps for kind in type(each).__mro__[:-1]]
    bases = FrequencyMap, Distance, Settings
    return [kind for kind in dict.fromkeys(kinds) if kind not in bases]


def options(settings: Any) -> dict[str, Any]:
    """Returns the settings that a caller may give, and their values."""
    return {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.init
    }


def described(settings: Any) -> dict[str, tuple[str, str]]:
    """Returns value and meaning of the settings that a caller may give, by name."""
    means = meanings(settings)
    return {
        name: (f"`{value!r}`", means.get(name, ""))
        for name, value in options(settings).items()
    }
