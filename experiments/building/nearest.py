"""What was perhaps meant by a name that is not known."""

import difflib
import re
from collections.abc import Iterable

ALIKE, AS_A_WHOLE, ELSEWHERE = 0.78, 0.84, 0.9
"""How alike the last part of a field's name must be, all of it, or the last part in
another group than the one given: `typ` is not meant to be `dtype`."""


def plain(name: object) -> str:
    """Returns a name as people remember it: without case, underscores and hyphens."""
    return re.sub(r"[-_\s]", "", str(name)).casefold()


def close(name: object, known: Iterable[str], cutoff: float = 0.5) -> list[str]:
    """Returns up to three known names, the nearest first.

    Names that differ in case, underscores and hyphens alone are the same; if there are
    any, there is no other.

    Args:
        name: what was given.
        known: the names that there are.
        cutoff: how alike they must be, from 0 to 1.
    """
    by_plain: dict[str, list[str]] = {}
    for one in known:
        by_plain.setdefault(plain(one), []).append(one)
    given = plain(name)
    if given in by_plain:
        return by_plain[given][:3]
    found = difflib.get_close_matches(given, list(by_plain), n=3, cutoff=cutoff)
    return [one for near in found for one in by_plain[near]][:3]


def nearest(name: object, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Returns ` Did you mean ...?` with the nearest of the known names, or nothing."""
    return meant([repr(one) for one in close(name, known, cutoff)])


def meant(names: Iterable[str]) -> str:
    """Returns ` Did you mean ...?`, or nothing if there are no names."""
    names = list(names)
    return f" Did you mean {' or '.join(names)}?" if names else ""


def close_fields(path: str, fields: Iterable[str]) -> list[str]:
    """Returns up to three fields of a config, the nearest first.

    Args:
        path: a dotted name that is no field.
        fields: the dotted names of all fields.
    """
    leaf = _leaf(path)
    same = [field for field in fields if plain(_leaf(field)) == plain(leaf)]
    if same:
        return same
    group = path.rpartition(".")[0]
    known = any(field.startswith(f"{group}.") for field in fields)
    scores = {}
    for field in fields:
        leaves, whole = _alike(leaf, _leaf(field)), _alike(path, field)
        here = not known or field.startswith(f"{group}.")
        # That only the group is the same is no likeness.
        if leaves >= (ALIKE if here else ELSEWHERE) or (
            whole >= AS_A_WHOLE and leaves >= 0.5
        ):
            scores[field] = max(leaves, whole), whole
    return sorted(scores, key=scores.__getitem__, reverse=True)[:3]


def _leaf(path: str) -> str:
    return path.split(".")[-1]


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, plain(one), plain(other)).ratio()
