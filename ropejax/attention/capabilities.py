"""Which engine can serve what, and what stands in the way where it cannot.

Each engine has one function that names the first obstacle, or returns an empty string.
Everything else follows from it: refusals by name, the choice of "auto", and the tables
of `docs/engines.md`.
"""

from types import MappingProxyType

import jax.numpy as jnp

from ropejax.attention.requests import Request
from ropejax.attention.windows import Reach, as_window

FACTOR_ERROR = 2.0**-22
"""Error of a logit with a factored bias, as a part of the bias: float32 sums."""

_SPLASH_BLOCK = 128


def obstacle(engine: str, request: Request) -> str:
    """Returns what keeps an engine from serving a request; "" if nothing does.

    Args:
        engine: one of `ENGINES`.
        request: what is asked.
    """
    return ENGINES[engine](request)


def _dense(request: Request) -> str:
    return ""


def _blockwise(request: Request) -> str:
    normalizer = request.normalizer
    if not (normalizer.blockwise or normalizer.has_threshold):
        return f"{type(normalizer).__name__} needs whole rows of logits"
    if request.encoding.needs_whole_rows:
        return f"{request.encoding.title} needs whole rows of logits"
    return ""


def _fused(request: Request) -> str:
    if request.platform not in _FUSED_DTYPES:
        return f"fused needs a GPU with cuDNN or a TPU, not {request.platform}"
    return (
        _one_product(request)
        or _unfactored(request)
        or _unknown_mask(request)
        or _unfit_arrays(request)
        or _extras("fused", request)
    )


def _pallas(request: Request) -> str:
    if request.platform != "gpu":
        return f"pallas needs a GPU of NVIDIA's, not {request.platform}"
    encoding = request.encoding
    blocked = _one_product(request)
    if blocked:
        return blocked
    if encoding.has_bias and not encoding.has_narrow_bias:
        return f"{encoding.title} has a bias that is no function of head and offset"
    if as_window(request.mask) is None:
        return f"pallas knows windows of indices only, not {_named(request.mask)}"
    if encoding.has_bias and not request.plain_positions:
        return "pallas takes integer positions on one axis, and no table of distances"
    if request.dtype not in {"float32", "bfloat16", "float16"}:
        return f"pallas serves float32, bfloat16 and float16, got {request.dtype}"
    return _extras("pallas", request)


def _one_product(request: Request) -> str:
    """The obstacle if logits are not one dot product plus a bias, softmax, values."""
    encoding, title = request.encoding, request.encoding.title
    if not request.normalizer.is_softmax:
        return f"{type(request.normalizer).__name__} is not a plain softmax"
    if encoding.has_product:
        return f"{title} is more than one dot product"
    if encoding.has_carry:
        return f"{title} depends on the tokens between query and key"
    if encoding.has_logits or encoding.needs_whole_rows:
        return f"{title} changes the logits after the bias"
    if encoding.has_mix:
        return f"{title} mixes more than values"
    return ""


def _unfactored(request: Request) -> str:
    """The obstacle if there is a bias that appended dimensions cannot carry."""
    encoding, reach = request.encoding, as_window(request.mask)
    if not encoding.has_bias:
        return ""
    size = encoding.factored_size(request.num_keys)
    if size is None:
        return f"{encoding.title} has a bias that does not factor with a known bound"
    if reach is None or reach.after != 0:
        return f"{encoding.title} factors for keys up to the query only: mask the later"
    known = (
        request.consecutive_positions and request.aligned and request.plain_positions
    )
    if not known:
        return f"{encoding.title} factors at consecutive positions in order only"
    if request.dtype not in {"bfloat16", "float16"}:
        return f"a factored bias is less exact than {request.dtype}"
    allowed = float(jnp.finfo(request.dtype).eps) / 2
    if size * FACTOR_ERROR > allowed:
        return (
            f"over {request.num_keys} keys, logits with the factored bias of "
            f"{encoding.title} may be off by {size * FACTOR_ERROR:.2g}, more than "
            f"{request.dtype} rounds a weight by ({allowed:.2g})"
        )
    return ""


def _unknown_mask(request: Request) -> str:
    reach = as_window(request.mask)
    if reach is None:
        return f"fused knows windows of indices only, not {_named(request.mask)}"
    if request.platform == "gpu" and reach != Reach() and reach.after != 0:
        return f"cuDNN has no keys after the query in {_named(request.mask)}"
    if request.segments and request.platform == "gpu":
        return "cuDNN's fused attention has no segments"
    if request.segments and request.padding:
        return "fused takes segments or padding, not both"
    masked = reach != Reach() or request.segments
    if masked and not request.aligned:
        return (
            "fused masks by array index: queries and keys are not known to be the same "
            "tokens in order; give both sides the same Tokens"
        )
    return ""


def _unfit_arrays(request: Request) -> str:
    if not request.widest:
        return "cuDNN's fused attention needs a GPU of the Ampere generation or later"
    dtypes = _FUSED_DTYPES[request.platform]
    if request.dtype not in dtypes:
        return f"fused serves {' and '.join(dtypes)} here, got {request.dtype}"
    width = max(request.view_width + appended(request), request.value_width)
    if width > request.widest:
        return f"{width} channels a head are more than {request.widest}"
    if request.platform == "tpu":
        if not request.one_device:
            return (
                "the compiler does not cut splash attention over devices; attend "
                "inside jax.shard_map(..., check_vma=False), over all axes of the mesh"
            )
        for length in (request.num_queries, request.num_keys):
            if length % _SPLASH_BLOCK:
                return f"splash attention wants multiples of 128 tokens, got {length}"
    return ""


def _extras(engine: str, request: Request) -> str:
    return f"{engine} does not do {request.extras[0]}" if request.extras else ""


def _named(mask) -> str:
    return type(mask).__name__


def appended(request: Request) -> int:
    """Returns how many dimensions a factored bias and padding append."""
    return PARTS * request.encoding.has_bias + request.padding


PARTS = 6
"""Products of two numbers cut into three parts each, those that matter."""

_FUSED_DTYPES = MappingProxyType({"gpu": ("bfloat16", "float16"), "tpu": ("bfloat16",)})

ENGINES = MappingProxyType(
    {"dense": _dense, "blockwise": _blockwise, "fused": _fused, "pallas": _pallas}
)
"""Engine -> function that names the first obstacle to a request."""
