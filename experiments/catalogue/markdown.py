"""Markdown for pages made from docstrings."""

import re
import textwrap
from collections.abc import Mapping


def wrapped(text: str, indent: str = "") -> str:
    """Returns text in lines of 88 columns, code never broken; later ones indented."""
    glued = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), text)
    return textwrap.fill(
        glued,
        88,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\0", " ")


def sentence(title: str, summary: str) -> str:
    """Returns what something is called and what it is, as a sentence."""
    return f"{title}: {summary}" + ("" if summary.endswith((".", "?")) else ".")


def facts(said: Mapping[str, str]) -> list[str]:
    """Returns the lines of a list of facts by name."""
    return [
        wrapped(f"- **{name}**: {' '.join(fact.split())}", "  ")
        for name, fact in said.items()
    ]


def options_table(options: Mapping[str, tuple[str, str]]) -> list[str]:
    """Returns the lines of a table of defaults and meanings; none without options.

    Args:
        options: default and meaning by name.
    """
    rows = [
        f"| `{name}` | {_cell(default)} | {_cell(meaning)} |"
        for name, (default, meaning) in options.items()
    ]
    if not rows:
        return []
    return ["", "| option | default | meaning |", "| --- | --- | --- |", *rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
