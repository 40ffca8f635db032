"""Which engine computes an attention, and why."""

import difflib
import math
import warnings
from typing import NamedTuple

from ropejax.attention.capabilities import ENGINES, obstacle
from ropejax.attention.normalizers import Normalizer
from ropejax.attention.requests import Request, check_request, current_platform
from ropejax.encodings.base import Encoding
from ropejax.masks import Mask

IMPLEMENTATIONS = ("auto", *ENGINES)
FORMS = ("ring", "all_gather", "ulysses")
"""Those of `ropejax.attention.sequence_parallel.SequenceParallel`."""

SHORT = 1024
"""Below its square of pairs the whole matrix of logits is small, and the faster way."""

_MOST_LOGITS = 2**21
"""Of all rows and heads: more than that, a CPU waits for memory. Blocks took 0.3 to 0.5
of the time at 256 tokens, 8 rows of 4 heads, and 0.3 at 500 tokens without gradients;
less where others used the memory too."""

_FEW = 128  # queries or keys with which there is little to cut

_MANY_KEYS = 2**13
"""Of all rows and heads, for few queries, as in decoding: XLA turns round whole arrays
of keys and values before it multiplies, and blocks that a cache has not filled yet are
skipped. A step took 0.3 of the time in a cache of 8,192 that held 100, 0.8 in a full
one of 2,048."""

_BLOCK_Q, _BLOCK_K = 256, 128
_LEAST = 64  # smaller products are slower than what they save
_BLOCK_LOGITS = 2**18  # of all rows and heads, those that stay in a core's cache
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
    queries and keys (on one CPU, few in all rows and heads), and blockwise else; it
    warns where a GPU or TPU has to do without its own kernel, and where the whole
    matrix of logits is the only way.

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
    num_rows: int = 8,
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
        num_rows: rows of the batch times query heads.
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
        num_rows=num_rows,
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
    whole = obstacle("blockwise", request)
    if queries * keys < SHORT**2:
        slow = _slow_whole(request)
        if slow and not whole:
            return Choice("blockwise", f"{pairs} {slow}")
        return Choice("dense", f"{pairs} are fewer than {SHORT} x {SHORT}")
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


def _slow_whole(request: Request) -> str:
    """Why whole matrices are slow though pairs are few: on one CPU; "" if not.

    On several, the compiler cuts rows and heads, which blocks are not made for.
    """
    if request.platform != "cpu" or not request.one_device:
        return ""
    queries, keys, rows = request.num_queries, request.num_keys, request.num_rows
    if min(queries, keys) >= _FEW and rows * queries * keys >= _MOST_LOGITS:
        return f"of {rows} rows and heads leave a CPU's caches"
    if queries < _FEW and keys >= SHORT and rows * keys >= _MANY_KEYS:
        return "read more keys than logits, of which blocks may be skipped"
    return ""


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


def block_sizes(
    mask,
    block_q: int | None,
    block_k: int | None,
    num_rows: int = 8,
    num_queries: int = 2048,
) -> tuple[int, int]:
    """Returns the most queries and keys in a block, where they are not given.

    On a CPU blocks of 256 queries and 128 keys were fastest for one row of 8 heads, and
    smaller ones for more, so that the logits of a block stay in a cache: 64 and 64 for
    8 rows took 0.6 to 0.8 of the time. At most 128 queries if the mask's window is so
    narrow that the blocks' edges would be most of the work.

    Args:
        mask: a mask or None.
        block_q: queries in a block, if given.
        block_k: keys in a block, if given.
        num_rows: rows of the batch times query heads.
        num_queries: T; few of them leave room for more keys.
    """
    sizes = _BLOCK_Q, _BLOCK_K
    if current_platform() == "cpu":
        area = max(_BLOCK_LOGITS // num_rows, 1)
        side = max(math.isqrt(area), area // num_queries)
        keys = min(max(_power_of_two(side), _LEAST), _BLOCK_K)
        sizes = min(max(_power_of_two(area // keys), _LEAST), _BLOCK_Q), keys
    reach = mask.reach if isinstance(mask, Mask) else None
    if reach is not None and reach < _NEAR:
        sizes = min(sizes[0], _BLOCK_Q // 2), sizes[1]
    return tuple(
        size if given is None else given
        for size, given in zip(sizes, (block_q, block_k), strict=True)
    )


def _power_of_two(size: int) -> int:
    """The largest power of two up to a size of at least 1."""
    return 1 << (max(size, 1).bit_length() - 1)
