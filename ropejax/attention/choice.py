"""Which engine computes an attention, and why."""

import difflib
import warnings
from typing import NamedTuple

from ropejax.attention.capabilities import ENGINES, obstacle
from ropejax.attention.normalizers import Normalizer
from ropejax.attention.requests import Request, check_request
from ropejax.encodings.base import Encoding
from ropejax.masks import Mask

IMPLEMENTATIONS = ("auto", *ENGINES)
FORMS = ("ring", "all_gather", "ulysses")
"""Those of `ropejax.attention.sequence_parallel.SequenceParallel`."""

SHORT = 1024
"""Below its square of pairs the whole matrix of logits is small, and the faster way."""

_BLOCK_Q, _BLOCK_K = 256, 128
_NEAR = 1024  # a window up to which smaller blocks of queries pay


class Choice(NamedTuple):
    """An engine and the reason for it.

    Attributes:
        implementation: "dense", "blockwise", "fused" or "pallas".
        why: one sentence.
    """

    implementation: str
    why: str


def decide(implementation: str, request: Request) -> Choice:
    """Returns the engine that `attend` uses for a request.

    "auto" takes the platform's fused attention where it serves, dense for few pairs of
    queries and keys, and blockwise else; it warns where a GPU or TPU has to do without
    its own kernel, and where the whole matrix of logits is the only way.

    Args:
        implementation: "auto" or the name of an engine.
        request: what is asked.

    Raises:
        ValueError: if the name is unknown, or that engine cannot serve the request.
    """
    check_name("implementation", implementation, IMPLEMENTATIONS)
    if implementation == "auto":
        return _automatic(request)
    why = obstacle(implementation, request)
    if why:
        remedy = "dense" if obstacle("blockwise", request) else "blockwise"
        raise ValueError(f'{why}; use implementation="{remedy}".')
    return Choice(implementation, "asked for by name")


def check_name(argument: str, given, allowed: tuple[str, ...]) -> None:
    """Raises ValueError, with what was perhaps meant, unless a name is known.

    Args:
        argument: what messages call it.
        given: the name.
        allowed: the names that there are.
    """
    if isinstance(given, str) and given in allowed:
        return
    close = difflib.get_close_matches(str(given), (*allowed, *FORMS), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    if close and close[0] not in allowed:
        hint = f"; over a mesh axis, that is SequenceParallel({close[0]!r})."
    raise ValueError(
        f"{argument} must be one of {', '.join(allowed)}, got {given!r}{hint}"
    )


def choose(
    implementation: str,
    *,
    num_queries: int,
    num_keys: int,
    encoding: Encoding,
    normalizer: Normalizer,
    mask=None,
    platform: str = "cpu",
    dtype: str = "float32",
) -> Choice:
    """Returns the engine that `attend` uses for these sizes and methods.

    As `decide`, for tokens in order without padding or segments.

    Args:
        implementation: "auto" or the name of an engine.
        num_queries: T.
        num_keys: S.
        encoding: settings of the position encoding.
        normalizer: what turns logits into weights.
        mask: a mask or None.
        platform: "cpu", "gpu", "rocm" or "tpu".
        dtype: of queries, keys and values, by name.

    Raises:
        ValueError: if a name is unknown, an argument is something else than it must be,
            or that engine cannot serve the methods.
    """
    request = Request(
        encoding=encoding,
        mask=mask,
        normalizer=normalizer,
        platform=platform,
        dtype=dtype,
        num_queries=num_queries,
        num_keys=num_keys,
        aligned=num_queries == num_keys,
    )
    check_request(request)
    return decide(implementation, request)


def _automatic(request: Request) -> Choice:
    unfused = obstacle("fused", request)
    if not unfused:
        return Choice("fused", f"{request.platform} has a kernel for it")
    queries, keys = request.num_queries, request.num_keys
    pairs = f"{queries} queries x {keys} keys"
    if queries * keys < SHORT**2:
        return Choice("dense", f"{pairs} are fewer than {SHORT} x {SHORT}")
    whole = obstacle("blockwise", request)
    if whole:
        warnings.warn(
            f"{whole}, so {queries} queries and {keys} keys are attended densely, with "
            'the whole matrix of logits in memory; implementation="dense" says that '
            "this is meant.",
            stacklevel=4,
        )
        return Choice("dense", whole)
    why = f"{pairs} are at least {SHORT} x {SHORT}"
    if request.platform in {"gpu", "tpu"}:
        warnings.warn(
            f"{unfused}, so attention is computed blockwise, not by the kernel of the "
            f'{request.platform}; implementation="blockwise" says that this is meant.',
            stacklevel=4,
        )
        why = f"{why}, and {unfused}"
    return Choice("blockwise", why)


def explain(request: Request) -> str:
    """Returns, in lines of text, what "auto" does and what every engine says.

    Args:
        request: what is asked; made for given sizes, platform and methods.

    Raises:
        ValueError: if its platform or dtype is none.
    """
    check_request(request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        choice = _automatic(request)
    lines = [f"auto: {choice.implementation}, because {choice.why}"]
    for engine in ENGINES:
        why = obstacle(engine, request)
        lines.append(f"{engine}: no, {why}" if why else f"{engine}: yes")
    return "\n".join(lines)


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
