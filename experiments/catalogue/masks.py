"""The page on masks: what each shows, its settings, and a corner of an example."""

import dataclasses
import inspect

from experiments.catalogue import markdown
from experiments.catalogue.docstrings import meanings, sections
from experiments.gallery.masks import MASKS, kinds_of, visible
from ropejax import masks
from ropejax.masks import Mask

_CORNER = 16

_HEAD = """\
# Masks

<!-- Made by `python -m experiments.catalogue --page=masks > docs/masks.md`; do not
edit. -->

A mask of `ropejax.masks` says, by the index `i` of a query and `j` of a key, whether
the query may attend to the key. Masks are values: they combine with `&`, `|` and `~`,
and engines ask them about whole blocks in order to skip what is not visible. Padding
and segments belong to the tokens, not to masks.

A run's layers have the masks of its layer pattern, and beside them that of
`model.mask`, written as here: `--config.model.mask="Window.sliding(16) | Global(2)"`.
It has no parameters, so `experiments.evaluate` takes it too. In Python, layers have
masks of their own (`ropejax.nn.LayerKind`), which `ropejax.nn.patterns.narrowed` and
`with_masks` change.

Pictures show the first 16 queries (downwards) and keys; `#` is visible.
`python -m experiments.gallery --out=gallery` draws them in full.
"""


def public() -> dict[str, type[Mask]]:
    """Returns the masks of the library by name, the base class aside."""
    found = {
        name: value
        for name, value in vars(masks).items()
        if inspect.isclass(value) and issubclass(value, Mask) and value is not Mask
    }
    return dict(sorted(found.items()))


def page() -> str:
    """Returns the page, in Markdown."""
    return "\n".join([_HEAD, *(_section(*item) for item in public().items())])


def _section(name: str, kind: type[Mask]) -> str:
    paragraphs, _ = sections(kind)
    mask = example(kind)
    lines = [f"## {name}", "", *(markdown.wrapped(p) + "\n" for p in paragraphs)]
    lines += [f"`{mask!r}`", "", "```", *_picture(mask), "```"]
    return "\n".join([*lines, *markdown.options_table(_options(kind)), ""])


def example(kind: type[Mask]) -> Mask:
    """Returns the first example of this kind, or the first that has a part of it."""
    fitting = [mask for mask in MASKS.values() if kind in kinds_of(mask)]
    return min(fitting, key=lambda mask: kinds_of(mask).index(kind))


def _picture(mask: Mask) -> list[str]:
    """Rows of the corner, heads side by side."""
    corner = visible(mask)[:, :_CORNER, :_CORNER]
    heads = [["".join(".#"[int(x)] for x in row) for row in head] for head in corner]
    return ["  ".join(rows) for rows in zip(*heads, strict=True)]


def _options(kind: type[Mask]) -> dict[str, tuple[str, str]]:
    means = meanings(kind)
    return {
        field.name: (
            "required"
            if field.default is dataclasses.MISSING
            else f"`{field.default!r}`",
            means[field.name],
        )
        for field in dataclasses.fields(kind)
        if field.name in means
    }
