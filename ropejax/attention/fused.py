"""The platform's own fused attention, under every encoding that is one dot product.

cuDNN's on NVIDIA GPUs (through `jax.nn.dot_product_attention`), splash attention on
TPUs. Neither knows of positions; but once queries and keys are rotated, what is left of
RoPE, and of every method like it, is plain attention. A bias that factors rides in
appended dimensions: `q . k + f . g = (q, f) . (k, g)` (FlashBias, Wu et al. 2025, arXiv
2505.12044). Factors are float32 and the arrays are not, so each is cut into three parts
that are exact in the arrays' dtype, and the six products that matter take a dimension
each. Padding rides in one more.

Which requests it serves, `ropejax.attention.capabilities` says. Checked without such a
platform: the translation through `implementation="xla"`, the cuDNN call by lowering it,
splash attention in interpret mode. Speed and rounding on hardware are not.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ropejax.attention.reverse_only import reverse_only
from ropejax.attention.windows import Reach, as_window
from ropejax.encodings.base import Encoding
from ropejax.encodings.hook_shapes import outputs_of
from ropejax.tokens import Tokens
from ropejax.typing import Params

_HIDDEN = -(2.0**15)
"""What is added to the logits of padding: their weights are exactly zero."""

_HALF_HIDDEN = 2.0**8

_SPLASH_BLOCKS = (512, 256, 128)
"""Tokens in a block, the most that divide both lengths; larger ones are said to pay."""

_SPLASH_SIZES = (
    *("block_q", "block_kv", "block_kv_compute"),
    *("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"),
    *("block_q_dq", "block_kv_dq"),
)


class Call(NamedTuple):
    """Plain attention that equals attention under an encoding.

    Attributes:
        q: queries, with appended dimensions, `[B, T, N, W]`.
        k: keys, likewise, `[B, S, K, W]`.
        v: values, filled up with zeros, `[B, S, K, W]`.
        scale: factor on queries times keys.
        window: which keys a query sees, by array index.
        segments: of queries and keys, `[B or 1, T or S]`, or None.
        seen: False for queries that see padding only, `[B or 1, T]`; None if none do.
        width: channels of the outputs, the others are filling.
    """

    q: Float[Array, "B T N W"]
    k: Float[Array, "B S K W"]
    v: Float[Array, "B S K W"]
    scale: float
    window: Reach
    segments: tuple[Int[Array, "#B T"], Int[Array, "#B S"]] | None
    seen: Bool[Array, "#B T"] | None
    width: int


def fused(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    *,
    encoding: Encoding,
    params: Params,
    query: Tokens,
    key: Tokens,
    mask=None,
    scale: float,
    platform: str,
) -> Float[Array, "B T N H"]:
    """Attends as `dense` does, in the platform's own kernel.

    Arguments are those of `dense`, of which the mask is a window or None, the scale a
    number, and others are not served; `platform` is "gpu" or "tpu".

    Returns:
        Outputs `[B, T, N, Hv]` in q's dtype.
    """
    call = translated(
        q,
        k,
        v,
        encoding=encoding,
        params=params,
        query=query,
        key=key,
        mask=mask,
        scale=scale,
    )
    out = splash(call) if platform == "tpu" else by_jax_nn(call, "cudnn")
    return outputs_of(encoding, params, finished(call, out), query).astype(q.dtype)


def translated(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    *,
    encoding: Encoding,
    params: Params,
    query: Tokens,
    key: Tokens,
    mask=None,
    scale: float,
) -> Call:
    """Returns the plain attention that is this one; see `fused` for the arguments."""
    dtype, reach = q.dtype, as_window(mask)
    q_parts = [encoding.queries(params, q, query)[0].astype(dtype)]
    k_parts = [encoding.keys(params, k, key)[0].astype(dtype)]
    if encoding.has_bias:
        factors = encoding.factored_bias(params, query, key)
        for f in range(factors.query.shape[-1]):
            one = slice(f, f + 1)
            high_low = _products(
                factors.query[..., one] / scale, factors.key[..., one], dtype
            )
            q_parts.append(high_low[0])
            k_parts.append(high_low[1])
    seen = None
    if key.valid is not None:
        q_parts.append(jnp.full((1, 1, 1, 1), _HALF_HIDDEN, dtype))
        hidden = jnp.where(key.valid, 0.0, _HIDDEN / _HALF_HIDDEN / scale)
        k_parts.append(hidden.astype(dtype)[:, :, None, None])
        seen = _sees_some(key.valid, reach, query.length)
    segments = None
    if query.segments is not None and key.segments is not None:
        segments = query.segments, key.segments
    v = encoding.values(params, v, key).astype(dtype)
    width = max(sum(x.shape[-1] for x in q_parts), v.shape[-1])
    width += -width % 8
    q, k, filled = (_side_by_side(x, width) for x in (q_parts, k_parts, [v]))
    q, k, filled = map(reverse_only, (q, k, filled))
    return Call(q, k, filled, scale, reach, segments, seen, v.shape[-1])


def finished(call: Call, out: Float[Array, "B T N W"]) -> Float[Array, "B T N H"]:
    """Returns outputs without filling, zero for queries that see nothing."""
    out = out[..., : call.width]
    if call.seen is None:
        return out
    return jnp.where(call.seen[:, :, None, None], out, 0)


def by_jax_nn(call: Call, implementation: str) -> Float[Array, "B T N W"]:
    """Returns `jax.nn.dot_product_attention` of a call.

    Args:
        call: plain attention, without segments.
        implementation: "cudnn", or "xla", which runs everywhere.
    """
    before, after = call.window
    return jax.nn.dot_product_attention(
        call.q,
        call.k,
        call.v,
        scale=call.scale,
        is_causal=after == 0,
        local_window_size=None if before is None else (before, after),
        implementation=implementation,
    )


def splash(call: Call, *, interpret: bool = False) -> Float[Array, "B T N W"]:
    """Returns JAX's splash attention (for TPUs) of a call.

    Args:
        call: plain attention, lengths multiples of 128.
        interpret: run it step by step, wherever JAX runs.
    """
    # Here, because it takes seconds, and no other platform needs it.
    from jax.experimental.pallas.ops.tpu import splash_attention as library

    shape = (call.q.shape[1], call.k.shape[1])
    mask = library.FullMask(shape)
    if call.window != Reach():
        mask = library.LocalMask(shape, tuple(call.window), 0)
    size = next(b for b in _SPLASH_BLOCKS if not any(n % b for n in shape))
    kernel = library.make_splash_mha(
        library.MultiHeadMask([mask] * call.q.shape[2]),
        block_sizes=library.BlockSizes(**dict.fromkeys(_SPLASH_SIZES, size)),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
    q = (call.q * jnp.asarray(call.scale, jnp.float32)).astype(call.q.dtype)
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, call.k, call.v))
    segments, axis = None, None
    if call.segments is not None:
        segments = library.SegmentIds(
            *(jnp.broadcast_to(s, (q.shape[0], s.shape[1])) for s in call.segments)
        )
        axis = 0
    out = jax.vmap(kernel, in_axes=(0, 0, 0, axis))(q, k, v, segments)
    return jnp.swapaxes(out, 1, 2)


def _products(a: Array, b: Array, dtype) -> tuple[Array, Array]:
    """Returns six columns each, whose products sum to a b up to 2^-24 of it."""
    high, middle, low = zip(_cut(a, dtype), _cut(b, dtype), strict=True)
    pairs = (
        (high[0], high[1]),
        (high[0], middle[1]),
        (middle[0], high[1]),
        (middle[0], middle[1]),
        (high[0], low[1]),
        (low[0], high[1]),
    )
    return tuple(jnp.concatenate(side, axis=-1) for side in zip(*pairs, strict=True))


def _cut(x: Array, dtype) -> list[Array]:
    """Returns three numbers of a dtype that sum to a float32 number."""
    parts, rest = [], x.astype(jnp.float32)
    for _ in range(3):
        part = jax.lax.reduce_precision(rest, *_bits(dtype))
        parts.append(part.astype(dtype))
        rest = rest - part
    return parts


def _bits(dtype) -> tuple[int, int]:
    info = jnp.finfo(dtype)
    return info.nexp, info.nmant


def _side_by_side(parts: list, width: int) -> Array:
    """Returns arrays `[B or 1, L or 1, N or 1, some]` beside each other, and zeros."""
    *whole, _ = parts[0].shape
    parts = [jnp.broadcast_to(x, (*whole, x.shape[-1])) for x in parts]
    x = jnp.concatenate(parts, axis=-1)
    return jnp.pad(x, [(0, 0)] * 3 + [(0, width - x.shape[-1])])


def _sees_some(valid: Bool[Array, "#B S"], reach: Reach, num_queries: int):
    """Returns which queries see a valid key in their window, `[B or 1, T]`."""
    size = valid.shape[1]
    total = jnp.cumsum(jnp.pad(valid, ((0, 0), (1, 0))), axis=1)
    place = jnp.arange(num_queries)
    first = jnp.zeros_like(place) if reach.before is None else place - reach.before
    last = jnp.full_like(place, size) if reach.after is None else place + reach.after
    begin, end = jnp.clip(first, 0, size), jnp.clip(last + 1, 0, size)
    return total[:, end] > total[:, begin]
