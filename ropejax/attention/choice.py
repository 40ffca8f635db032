"""Which engine computes an attention, and why."""

import difflib
import warnings
from typing import NamedTuple

from ropejax.attention.normalizers import Normalizer
from ropejax.encodings.base import Encoding

IMPLEMENTATIONS = ("auto", "dense", "blockwise")

SHORT = 1024
"""Below this many queries and keys, the whole matrix of logits is the faster way."""


class Choice(NamedTuple):
    """An engine and the reason for it.

    Attributes:
        implementation: "dense" or "blockwise".
        why: one sentence.
    """

    implementation: str
    why: str


def choose(
    implementation: str,
    *,
    num_queries: int,
    num_keys: int,
    encoding: Encoding,
    normalizer: Normalizer,
) -> Choice:
    """Returns the engine that `attend` uses for these sizes and methods.

    Args:
        implementation: "auto" or the name of an engine.
        num_queries: T.
        num_keys: S.
        encoding: settings of the position encoding.
        normalizer: what turns logits into weights.

    Raises:
        ValueError: if the name is unknown, or that engine cannot serve the methods.
    """
    if implementation not in IMPLEMENTATIONS:
        close = difflib.get_close_matches(str(implementation), IMPLEMENTATIONS)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, got "
            f"{implementation!r}{hint}"
        )
    obstacle = _needs_whole_rows(encoding, normalizer)
    if implementation == "blockwise" and obstacle:
        raise ValueError(f'{obstacle}; use implementation="dense".')
    if implementation != "auto":
        return Choice(implementation, "asked for by name")
    longest = max(num_queries, num_keys)
    if longest < SHORT:
        return Choice("dense", f"{longest} tokens are fewer than {SHORT}")
    if obstacle:
        warnings.warn(
            f"{obstacle}, so {num_queries} queries and {num_keys} keys are attended "
            "densely, with the whole matrix of logits in memory; "
            'implementation="dense" says that this is meant.',
            stacklevel=3,
        )
        return Choice("dense", obstacle)
    return Choice("blockwise", f"{longest} tokens are at least {SHORT}")


def _needs_whole_rows(encoding: Encoding, normalizer: Normalizer) -> str:
    if not normalizer.blockwise:
        return f"{type(normalizer).__name__} needs whole rows of logits"
    if getattr(encoding, "needs_whole_rows", False):
        return f"{encoding.title} needs whole rows of logits"
    return ""
