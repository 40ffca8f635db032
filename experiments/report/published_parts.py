"""Which published encoding a composition stands beside, and what it has besides.

Scaling queries by log n tells a model nothing of where tokens are. So a composition of
one encoding and such scales is put beside the figures of that encoding, and what it has
besides is said.
"""

import ast
import functools
from typing import NamedTuple

from experiments.report.levels import base_name

_SCALES = frozenset({"log_scale"})
_AS_PUBLISHED = frozenset({"alibi(tie_break=True)"})


class Part(NamedTuple):
    """An encoding of the papers in one of ours.

    Attributes:
        name: its catalogue name; empty if ours is made of several, or of none.
        own: what ours has that the papers' has not, for people; empty if nothing.
    """

    name: str
    own: str


@functools.cache
def published_part(encoding: str) -> Part:
    """Returns what of an encoding papers may have figures of.

    Args:
        encoding: its name in results: `rope`, or `compose(a=Rotary(), b=LogScale())`.
    """
    if base_name(encoding) != "compose":
        plain = encoding in {base_name(encoding), *_AS_PUBLISHED}
        return Part(base_name(encoding), "" if plain else encoding)
    named = [(_catalogue_name(call), call) for call in _calls(encoding)]
    carriers = [(name, call) for name, call in named if name not in _SCALES]
    if len(carriers) != 1:
        return Part("", encoding)
    name, call = carriers[0]
    own = [ast.unparse(call)] if call.args or call.keywords else []
    scales = [ast.unparse(scale) for n, scale in named if n in _SCALES]
    own += [f"{name} with {' and '.join(scales)}"] if scales else []
    return Part(name, ", ".join(own))


def _calls(encoding: str) -> list[ast.Call]:
    """Returns the parts of a composition; none if it cannot be read."""
    try:
        made = ast.parse(encoding, mode="eval").body
    except SyntaxError:
        return []
    parts = [part.value for part in getattr(made, "keywords", ())]
    known = [p for p in parts if isinstance(p, ast.Call) and hasattr(p.func, "id")]
    return known if len(known) == len(parts) else []


def _catalogue_name(call: ast.Call) -> str:
    from ropejax.encodings import ENCODINGS  # imports jax, for seconds

    names = {cls.__name__: name for name, cls in reversed(ENCODINGS.items())}
    return names.get(call.func.id, call.func.id)
