"""What is asked of an attention engine, known before anything is computed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.attention.normalizers import Normalizer, Softmax
from ropejax.encodings.base import Encoding
from ropejax.settings import Settings
from ropejax.tokens import Tokens


@dataclasses.dataclass(frozen=True)
class Request(Settings):
    """All that decides which engines can serve, and which of them is best.

    Attributes:
        encoding: settings of the position encoding.
        mask: a mask or None.
        normalizer: what turns logits into weights.
        platform: "cpu", "gpu", "rocm" or "tpu"; see `current_platform`.
        dtype: of queries, keys and values, by name.
        num_queries: T.
        num_keys: S.
        num_rows: rows of the batch times query heads.
        view_width: channels of a query as the product sees it.
        value_width: channels of a value.
        widest: most channels that the platform's kernel takes; 0 if there is none.
        aligned: True if queries and keys are known to be the same tokens in order.
        consecutive_positions: True if they are known to be at consecutive positions.
        plain_positions: True if positions are integers on one axis, and no table of
            distances stands in for them.
        padding: True if some keys may be invalid.
        segments: True if tokens attend within segments only.
        one_device: True if arrays are known to lie on one device: there is no other, or
            this is inside `jax.shard_map` over all axes of the mesh.
        extras: further wishes in words: dropout, a log-sum-exp, a factor for each row.

    Raises:
        ValueError: if an argument is not of its type, or a size is not positive.
    """

    encoding: Encoding
    mask: Any = None
    normalizer: Normalizer = Softmax()
    platform: str = "cpu"
    dtype: str = "float32"
    num_queries: int = 2048
    num_keys: int = 2048
    num_rows: int = 8
    view_width: int = 64
    value_width: int = 64
    widest: int = 256
    aligned: bool = True
    consecutive_positions: bool = True
    plain_positions: bool = True
    padding: bool = False
    segments: bool = False
    one_device: bool = True
    extras: tuple[str, ...] = ()

    def __post_init__(self):
        is_none = self.mask is None
        if isinstance(self.mask, type) or not (is_none or callable(self.mask)):
            raise ValueError(
                "mask must be a mask of ropejax.masks, such as masks.Causal(), a "
                f"function of (query, key), or None, got {self.mask!r}."
            )
        for name in (
            *("num_queries", "num_keys", "num_rows"),
            *("view_width", "value_width"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")


LEAST_SCALE = 2.0**-14
"""What kernels append to queries and keys is divided by the scale; divided by a smaller
one it may leave float16."""

PLATFORMS = ("cpu", "gpu", "rocm", "tpu")


def check_request(request: Request) -> None:
    """Raises ValueError for what `attend` could not ask, though a person may.

    Args:
        request: what a person asks.
    """
    if not isinstance(request, Request):
        raise ValueError(f"request must be a Request, got {request!r}.")
    if request.platform not in PLATFORMS and request.platform != current_platform():
        raise ValueError(
            f"platform must be one of {', '.join(PLATFORMS)}, in lower case (an NVIDIA "
            f"GPU is 'gpu', AMD's 'rocm'), got {request.platform!r}."
        )
    if not _is_float(request.dtype):
        raise ValueError(
            "dtype must name a floating-point type, such as 'bfloat16', got "
            f"{request.dtype!r}."
        )


def _is_float(name: str) -> bool:
    try:
        return jnp.issubdtype(jnp.dtype(name), jnp.floating)
    except TypeError:
        return False


def request_of(
    q,
    k,
    v,
    *,
    encoding: Encoding,
    params,
    query: Tokens,
    key: Tokens,
    mask,
    normalizer: Normalizer,
    scale,
    row_scale,
    dropout: bool,
    return_lse: bool,
    platform: str,
) -> Request:
    """Returns what the arguments of `attend` ask for; only shapes count."""
    view_width = q.shape[-1]
    if platform != "cpu":
        views = jax.eval_shape(encoding.queries, params, q, query)
        view_width = max(x.shape[-1] for x in jax.tree.leaves(views))
    number = isinstance(scale, (int, float))
    wishes = {
        "dropout": dropout,
        "a log-sum-exp": return_lse,
        "a factor for each row": row_scale is not None,
        "a scale that is an array": not number,
        f"a scale as near zero as {scale}": number and abs(scale) < LEAST_SCALE,
    }
    return Request(
        encoding=encoding,
        mask=mask,
        normalizer=normalizer,
        platform=platform,
        dtype=str(q.dtype) if q.dtype == k.dtype == v.dtype else "mixed dtypes",
        num_queries=q.shape[1],
        num_keys=k.shape[1],
        num_rows=q.shape[0] * q.shape[2],
        view_width=view_width,
        value_width=v.shape[-1],
        widest=widest_head(),
        aligned=platform != "cpu" and _aligned(query, key),
        consecutive_positions=query.consecutive_positions and key.consecutive_positions,
        plain_positions=_plain(query.positions)
        and _plain(key.positions)
        and key.distances is None,
        padding=key.valid is not None,
        segments=query.segments is not None and key.segments is not None,
        one_device=_on_one_device(),
        extras=tuple(wish for wish, wanted in wishes.items() if wanted),
    )


def _plain(positions) -> bool:
    return positions.ndim == 2 and jnp.issubdtype(positions.dtype, jnp.integer)


def _aligned(query: Tokens, key: Tokens) -> bool:
    """Returns True if both sides are known to hold the same tokens in order.

    Inside a compiled function values are unknown, so the arrays must be the same ones.
    """
    if not (query.consecutive_index and key.consecutive_index):
        return False
    if query.length != key.length:
        return False
    if query.index is key.index:
        return True
    if any(isinstance(where.index, jax.core.Tracer) for where in (query, key)):
        return False
    firsts = [np.asarray(where.index)[:, 0] for where in (query, key)]
    return bool((firsts[0] == firsts[1]).all())


def _on_one_device() -> bool:
    if jax.device_count() == 1:
        return True
    mesh = jax.sharding.get_abstract_mesh()
    manual = jax.sharding.AxisType.Manual
    return not mesh.empty and all(kind == manual for kind in mesh.axis_types)


def current_platform() -> str:
    """Returns "cpu", "gpu" (NVIDIA's), "rocm" or "tpu": where JAX runs by default."""
    platform = jax.default_backend()
    if platform == "gpu" and "rocm" in jax.devices()[0].client.platform_version.lower():
        return "rocm"
    return platform


def widest_head() -> int:
    """Returns the most channels that the platform's fused attention takes a head.

    cuDNN takes 256 from Hopper on, 128 from Ampere on, and nothing before.
    """
    capability = getattr(jax.devices()[0], "compute_capability", None)
    if capability is None or float(capability) >= 9:
        return 256
    return 128 if float(capability) >= 8 else 0
