"""Prints a page on encodings, masks, engines, positions or tasks, off the library.

    python -m experiments.catalogue > docs/encodings.md
    python -m experiments.catalogue --page=masks > docs/masks.md
    python -m experiments.catalogue --page=engines > docs/engines.md
    python -m experiments.catalogue --page=positions > docs/positions.md
    python -m experiments.catalogue --page=tasks > docs/tasks.md

Nothing on a page is written by hand: names and settings are those of
`ropejax.encodings`, formulas those of the docstrings, shapes and engines are asked for,
and what a method was checked against is what `tests/golden` says of its numbers.
"""

import dataclasses
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import NamedTuple

from experiments import command
from experiments.catalogue import engines as catalogue_engines
from experiments.catalogue import markdown
from experiments.catalogue import masks as catalogue_masks
from experiments.catalogue import positions as catalogue_positions
from experiments.catalogue import tasks as catalogue_tasks
from experiments.catalogue.docstrings import described, formula
from experiments.catalogue.evidence import evidence
from experiments.catalogue.shapes import parameter_shapes
from ropejax import masks
from ropejax.attention.capabilities import ENGINES, obstacle
from ropejax.attention.requests import Request
from ropejax.encodings import ENCODINGS, Encoding
from ropejax.encodings.rotary_base import Rotation

HOOKS = (
    *("prepare", "embed", "query_features", "key_features", "queries", "keys"),
    *("values", "outputs", "product", "bias", "carry", "logits", "mix"),
)
"""What an encoding may do, in the order in which it is called."""

PROMISES = MappingProxyType(
    {
        "causal only": ("causal only", "both directions"),
        "shift invariant": ("shift invariant", "changes with a shift"),
        "length dependent": ("depends on the length", "whatever the length"),
        "by distance": ("by distance", "by positions"),
    }
)
"""What to say of a method that has a property, and of one that has not."""

_NO_FORMULA = "Every hook is at rest: `logits = scale * (q . k)`."

_HEAD = """\
# Position encodings

<!-- Made by `python -m experiments.catalogue > docs/encodings.md`; do not edit. -->

All position encodings of `ropejax.encodings`, by the name that configs use
(`encoding.name`). Each is a frozen dataclass of settings; the hooks that it overrides
say where it acts, `ropejax.encodings.base` says what every hook does, and
`logits = fold(carry(scale * product + bias))` is how they go together.

Letters: `N` query heads, `K` key heads, `H` width of a head, `D` width of the model;
`i` and `j`, or `m` and `n`, are the positions of query and key.

- **causal only**: refused by models that look ahead.
- **shift invariant**: shifting all positions by one constant changes nothing.
- **length dependent**: a result may change when later tokens are appended.
- **by distance**: a table of distances may stand in for positions.

In a config, `train_length` is that of the run's own training unless it is given.

`ropejax.testing.check_encoding` holds every encoding to these promises. Numbers of
other implementations that results are compared with lie in `tests/golden`, with their
sources. `python -m experiments.gallery --out=gallery` draws every method.

Engines are those that serve a causal mask, "fused" and "pallas" on an NVIDIA GPU in
bfloat16; [engines.md](engines.md) has the whole of it.
"""


class Entry(NamedTuple):
    """What the page says of one encoding, all of it text.

    Attributes:
        name: in configs.
        title: the method's usual name.
        summary: one line.
        formula: a paragraph or two.
        options: default and meaning of each setting.
        hooks: what is overridden.
        parameters: shapes of what is learned, or that nothing is.
        promises: each flag, and whether it holds.
        paper: where the method is from.
        checked: sources of golden numbers, or that there are none.
        engines: which engines serve it, or why one does not.
    """

    name: str
    title: str
    summary: str
    formula: str
    options: dict[str, tuple[str, str]]
    hooks: tuple[str, ...]
    parameters: str
    promises: dict[str, bool]
    paper: str
    checked: str
    engines: dict[str, str]


def describe(name: str, sources: dict[str, int]) -> Entry:
    """Returns what the page says of an encoding.

    Args:
        name: in the catalogue.
        sources: number of golden cases by their source.
    """
    encoding = ENCODINGS[name]()
    return Entry(
        name=name,
        title=encoding.title,
        summary=encoding.summary,
        formula=formula(encoding) if hooks_of(encoding) else _NO_FORMULA,
        options=described(encoding),
        hooks=hooks_of(encoding),
        parameters=_parameters(encoding),
        promises={name: getattr(encoding, name.replace(" ", "_")) for name in PROMISES},
        paper=encoding.reference or "none: it is what other methods are compared with",
        checked="; ".join(
            f"{source} ({count} case{'s' * (count > 1)})"
            for source, count in sorted(sources.items())
        )
        or "no golden numbers; identities, and the promises above",
        engines=engines_of(encoding),
    )


def hooks_of(encoding: Encoding) -> tuple[str, ...]:
    """Returns the hooks that an encoding overrides and uses under its settings."""
    return tuple(
        hook
        for hook in HOOKS
        if getattr(type(encoding), hook) is not getattr(Encoding, hook)
        and getattr(encoding, f"has_{hook}", True)
    )


def engines_of(encoding: Encoding) -> dict[str, str]:
    """Returns what stands in the way of each engine, nothing where it serves.

    Asked for a GPU, bfloat16 and a causal mask, where every engine has a chance.
    """
    request = Request(encoding, masks.Causal(), **catalogue_engines.FAST)
    return {engine: obstacle(engine, request) for engine in ENGINES}


def _parameters(encoding: Encoding) -> str:
    owners = {"shared": "shared by all layers", "layer": "a layer's own"}
    parts = []
    for owner, shapes in parameter_shapes(encoding).items():
        if shapes:
            each = ", ".join(f"`{name} {shape}`" for name, shape in shapes.items())
            parts.append(f"{owners[owner]}: {each}")
    return "; ".join(parts) or "none"


def page() -> str:
    """Returns the page, in Markdown."""
    sources = evidence()
    entries = [describe(name, sources.get(name, {})) for name in ENCODINGS]
    return "\n".join([_HEAD, *_overview(entries), *map(_section, entries)])


def _overview(entries: Sequence[Entry]) -> list[str]:
    columns = ("name", "method", "acts in", *entries[0].promises, "engines")
    rows = [columns, ["---"] * len(columns)]
    for entry in entries:
        served = [engine for engine, why in entry.engines.items() if not why]
        rows.append(
            [
                f"[`{entry.name}`](#{entry.name})",
                entry.title,
                ", ".join(hook for hook in entry.hooks if hook != "prepare")
                or "nothing",
                *("yes" if holds else "no" for holds in entry.promises.values()),
                ", ".join(served),
            ]
        )
    return [*(f"| {' | '.join(row)} |" for row in rows), ""]


def _section(entry: Entry) -> str:
    hooks = ", ".join(f"`{hook}`" for hook in entry.hooks) or "none"
    promises = ", ".join(
        PROMISES[name][0 if holds else 1] for name, holds in entry.promises.items()
    )
    engines = "; ".join(
        f"not {name}: {why}" if why else name for name, why in entry.engines.items()
    )
    facts = {
        "Hooks": hooks,
        "Parameters": entry.parameters,
        "Promises": promises,
        "Paper": entry.paper,
        "Checked against": entry.checked,
        "Engines": engines,
    }
    lines = [f"## {entry.name}", "", f"{entry.title}: {entry.summary}.", ""]
    lines += [markdown.wrapped(part) + "\n" for part in entry.formula.split("\n\n")]
    lines += [
        markdown.wrapped(f"- **{name}**: {fact}", "  ") for name, fact in facts.items()
    ]
    return "\n".join([*lines, *_options(entry), ""])


def _options(entry: Entry) -> list[str]:
    """A table, without the settings that all rotations have, which RoPE's shows."""
    common = []
    if entry.name != "rope" and issubclass(ENCODINGS[entry.name], Rotation):
        common = [field.name for field in dataclasses.fields(Rotation) if field.init]
    own = {name: row for name, row in entry.options.items() if name not in common}
    rows = markdown.options_table(own)
    if common:
        named = ", ".join(f"`{name}`" for name in common)
        rows += [
            "",
            markdown.wrapped(f"Further options, as for [`rope`](#rope): {named}."),
        ]
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    pages = {
        "encodings": page,
        "masks": catalogue_masks.page,
        "engines": catalogue_engines.page,
        "positions": catalogue_positions.page,
        "tasks": catalogue_tasks.page,
    }
    parser = command.parser(__doc__)
    parser.add_argument("--page", choices=pages, default="encodings", help="which one")
    given = command.options(parser, argv)
    command.prepare_jax(given.compile_cache)
    sys.stdout.write(pages[given.page]())
    return 0


if __name__ == "__main__":
    command.run(main)
