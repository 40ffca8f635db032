"""The page on position schemes: where each puts tokens, with an example."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.catalogue import markdown
from experiments.catalogue.docstrings import described, sections
from ropejax.positions import POSITIONS, PositionScheme

_LENGTH = 8

_HEAD = """\
# Position schemes

<!-- Made by `python -m experiments.catalogue --page=positions > docs/positions.md`; do
not edit. -->

Where tokens are said to be, decided outside the model and passed in, so that any scheme
goes with any encoding: all schemes of `ropejax.positions`, by the name that configs use
(`positions.name`, and `eval.positions` at test). `ropejax.testing.check_positions`
tests one of your own; the README says how to write it.

Under a scheme stand the positions that it gives to a row of 8 tokens with key 0 and its
default settings. Those that read symbols get a row of digits and other symbols.
"""


def page() -> str:
    """Returns the page, in Markdown."""
    rows = [
        ("name", "scheme", "puts tokens"),
        ("---", "---", "---"),
        *(
            (f"[`{name}`](#{name})", scheme.title, scheme.summary)
            for name, scheme in POSITIONS.items()
        ),
    ]
    table = [f"| {' | '.join(row)} |" for row in rows]
    each = [_section(name, scheme()) for name, scheme in POSITIONS.items()]
    return "\n".join([_HEAD, *table, "", *each])


def _section(name: str, scheme: PositionScheme) -> str:
    paragraphs, named = sections(type(scheme))
    said = markdown.sentence(scheme.title, scheme.summary)
    lines = [f"## {name}", "", said, ""]
    lines += [markdown.wrapped(part) + "\n" for part in paragraphs]
    lines += ["```", *_example(scheme), "```"]
    told = {fact: named[fact] for fact in ("References", "Departures") if fact in named}
    lines += ["", *markdown.facts(told)] if told else []
    return "\n".join([*lines, *markdown.options_table(described(scheme)), ""])


def _example(scheme: PositionScheme) -> list[str]:
    """Positions and streams of one row, a line each."""
    symbols = jnp.array([[1, 2, 10, 3, 4, 11, 5, 6]])
    placement = scheme(
        jax.random.key(0), jnp.array([_LENGTH]), num_tokens=_LENGTH, tokens=symbols
    )
    positions = placement.positions
    if positions is None:
        positions = jnp.arange(_LENGTH)[None]
    named = {"positions": positions} | (placement.streams or {})
    return [f"{name:<9}  {_numbers(array[0])}" for name, array in named.items()]


def _numbers(row: jax.Array) -> str:
    """Numbers, or the numbers of each axis, of all tokens."""
    values = np.asarray(row)
    if values.ndim == 2:
        return "  ".join("(" + ", ".join(map(str, each)) + ")" for each in values)
    whole = np.issubdtype(values.dtype, np.integer)
    return "  ".join(str(value) if whole else f"{value:.1f}" for value in values)
