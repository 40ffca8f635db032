"""Linear attention with rotary positions: no softmax, cost linear in the length.

A feature map makes logits `phi(q) . phi(k)` positive; then keys and values can be
summed before a query meets them. RoFormer rotates the features in the numerator only,
so that the denominator stays positive: weights are then no probabilities, but their sum
without rotation is 1.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.encodings.base import Encoding
from ropejax.tokens import Tokens
from ropejax.typing import Params

FeatureMap = Callable[[Array], Array]


def elu_plus_one(x: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Returns `elu(x) + 1`, positive, as Katharopoulos et al. (2020) use it."""
    return jax.nn.elu(x) + 1


def linear_attention(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K V"],
    *,
    encoding: Encoding,
    params: Params = None,
    query: Tokens,
    key: Tokens,
    feature_map: FeatureMap = elu_plus_one,
) -> Float[Array, "B T N V"]:
    """Attends to all valid keys at a cost linear in their number.

    `o_m = sum_n (R_m phi(q_m)) . (R_n phi(k_n)) v_n / sum_n phi(q_m) . phi(k_n)`.

    Args:
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`, N a multiple of K.
        v: values, `[B, S, K, V]`.
        encoding: one that acts by one view of queries and of keys (`Rotary`).
        params: what its `prepare` returned; `{}` if None.
        query: where the queries are.
        key: where the keys are.
        feature_map: phi, applied to queries and keys; not negative.

    Returns:
        Outputs `[B, T, N, V]` in q's dtype; zeros where there is no valid key.

    Raises:
        ValueError: if the encoding needs several views, or tokens come in segments.

    References:
        Su et al. (2021), RoFormer, arXiv:2104.09864, equation 19; Katharopoulos et al.
        (2020), arXiv:2006.16236.
    """
    sides = _features(q, k, v, encoding, params, query, key, feature_map)
    q_turned, q_plain, k_turned, k_plain, v = sides
    state = jnp.einsum("bskh,bskv->bkhv", k_turned, v)
    total = k_plain.sum(1)
    above = jnp.einsum("btkgh,bkhv->btkgv", q_turned, state)
    below = jnp.einsum("btkgh,bkh->btkg", q_plain, total)
    return _divide(above, below, q)


def causal_linear_attention(
    q: Float[Array, "B L N H"],
    k: Float[Array, "B L K H"],
    v: Float[Array, "B L K V"],
    *,
    encoding: Encoding,
    params: Params = None,
    where: Tokens,
    feature_map: FeatureMap = elu_plus_one,
    chunk: int = 64,
) -> Float[Array, "B L N V"]:
    """Attends to keys up to each query, by a scan over chunks that carries their sums.

    As `linear_attention`, with sums over n up to m. Tokens must be stored in order.

    Args:
        q: queries, `[B, L, N, H]`.
        k: keys, `[B, L, K, H]`, N a multiple of K.
        v: values, `[B, L, K, V]`.
        encoding: one that acts by one view of queries and of keys (`Rotary`).
        params: what its `prepare` returned; `{}` if None.
        where: where the tokens are.
        feature_map: phi, applied to queries and keys; not negative.
        chunk: tokens that are handled at once; speed only.

    Returns:
        Outputs `[B, L, N, V]` in q's dtype.

    Raises:
        ValueError: as `linear_attention`.

    References:
        As `linear_attention`.
    """
    sides = _features(q, k, v, encoding, params, where, where, feature_map)
    batch, length, groups = v.shape[:3]
    sides = jax.tree.map(lambda x: _chunked(x, chunk), sides)
    seen = jnp.tril(jnp.ones((chunk, chunk), jnp.float32))

    def step(carry, inputs):
        state, total = carry
        q_turned, q_plain, k_turned, k_plain, v = inputs
        near = jnp.einsum("btkgh,bskh,ts->btkgs", q_turned, k_turned, seen)
        above = jnp.einsum("btkgs,bskv->btkgv", near, v)
        above = above + jnp.einsum("btkgh,bkhv->btkgv", q_turned, state)
        totals = total[:, None] + jnp.cumsum(k_plain, axis=1)
        below = jnp.einsum("btkgh,btkh->btkg", q_plain, totals)
        state = state + jnp.einsum("bskh,bskv->bkhv", k_turned, v)
        return (state, totals[:, -1]), (above, below)

    width = k.shape[-1]
    state = jnp.zeros((batch, groups, width, v.shape[-1]), jnp.float32)
    total = jnp.zeros((batch, groups, width), jnp.float32)
    _, (above, below) = jax.lax.scan(step, (state, total), sides)
    above, below = (
        jnp.moveaxis(x, 0, 1).reshape(batch, -1, *x.shape[3:])[:, :length]
        for x in (above, below)
    )
    return _divide(above, below, q)


def _features(q, k, v, encoding, params, query, key, feature_map):
    """Turned and plain features in float32, query heads grouped by key head."""
    if query.segments is not None or key.segments is not None:
        raise ValueError("linear attention has no segments; attend to each by itself.")
    params = {} if params is None else params
    phi_q = feature_map(q.astype(jnp.float32))
    phi_k = feature_map(k.astype(jnp.float32))
    if key.valid is not None:
        phi_k = jnp.where(key.valid[..., None, None], phi_k, 0.0)
    q_views = encoding.queries(params, phi_q, query)
    k_views = encoding.keys(params, phi_k, key)
    if len(q_views) > 1 or len(k_views) > 1:
        raise ValueError(
            f"{encoding.title} needs several views, linear attention has one; use an "
            "encoding that is one rotation."
        )
    groups = k.shape[2]
    grouped = lambda x: x.reshape(*x.shape[:2], groups, -1, x.shape[-1])
    v = v.astype(jnp.float32)
    return grouped(q_views[0]), grouped(phi_q), k_views[0], phi_k, v


def _chunked(x: Array, chunk: int) -> Array:
    """Splits axis 1 into chunks, zeros behind the end, chunks first."""
    pad = [(0, 0)] * x.ndim
    pad[1] = (0, -x.shape[1] % chunk)
    x = jnp.pad(x, pad)
    return jnp.moveaxis(x.reshape(x.shape[0], -1, chunk, *x.shape[2:]), 1, 0)


def _divide(above: Array, below: Array, q: Array) -> Array:
    some = below > 0
    below = jnp.where(some, below, 1.0)[..., None]
    out = jnp.where(some[..., None], above, 0.0) / below
    return out.reshape(*q.shape[:3], -1).astype(q.dtype)
