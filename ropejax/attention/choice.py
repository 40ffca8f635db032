"""Which engine computes an attention, and why."""

import difflib
import warnings
from typing import NamedTuple

from ropejax.attention.normalizers import Normalizer
from ropejax.encodings.base import Encoding
from ropejax.masks import Mask

IMPLEMENTATIONS = ("auto", "dense", "blockwise")

SHORT = 1024
"""Below its square of pairs the whole matrix of logits is small, and the faster way."""

_BLOCK_Q, _BLOCK_K = 256, 128
_NEAR = 1024  # a window up to which smaller blocks of queries pay


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
    pairs = f"{num_queries} queries x {num_keys} keys"
    if num_queries * num_keys < SHORT**2:
        return Choice("dense", f"{pairs} are fewer than {SHORT} x {SHORT}")
    if obstacle:
        warnings.warn(
            f"{obstacle}, so {num_queries} queries and {num_keys} keys are attended "
            "densely, with the whole matrix of logits in memory; "
            'implementation="dense" says that this is meant.',
            stacklevel=3,
        )
        return Choice("dense", obstacle)
    return Choice("blockwise", f"{pairs} are at least {SHORT} x {SHORT}")


def block_sizes(mask, block_q: int | None, block_k: int | None) -> tuple[int, int]:
    """Returns the most queries and keys in a block, where they are not given.

    Blocks of 256 queries and 128 keys were fastest on a CPU; half as many queries if
    the mask's window is so narrow that the blocks' edges would be most of the work.

    Args:
        mask: a mask or None.
        block_q: queries in a block, if given.
        block_k: keys in a block, if given.
    """
    if block_q is None:
        reach = mask.reach if isinstance(mask, Mask) else None
        near = reach is not None and reach < _NEAR
        block_q = _BLOCK_Q // 2 if near else _BLOCK_Q
    return block_q, (_BLOCK_K if block_k is None else block_k)


def _needs_whole_rows(encoding: Encoding, normalizer: Normalizer) -> str:
    if not normalizer.blockwise:
        return f"{type(normalizer).__name__} needs whole rows of logits"
    if encoding.needs_whole_rows:
        return f"{encoding.title} needs whole rows of logits"
    return ""
