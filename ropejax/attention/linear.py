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

from ropejax.attention.axes import dims_of
from ropejax.attention.checks import (
    check_arrays,
    check_kinds,
    check_no_parameters,
    check_tokens,
)
from ropejax.attention.keys import finite_at_padding, without_padding
from ropejax.attention.parameter_checks import (
    check_features,
    check_params,
    plain_params,
)
from ropejax.attention.rotations import check_is_rotation
from ropejax.attention.visibility import check_size
from ropejax.encodings.base import Encoding
from ropejax.encodings.sequence_order import in_sequence, in_storage
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
        encoding: one that rotates queries and keys (`Rotary`); it may rotate values
            and outputs too (`VORotary`).
        params: what its `prepare` returned; None for an encoding without parameters of
            its own.
        query: where the queries are.
        key: where the keys are.
        feature_map: phi, applied to queries and keys; not negative. It may change their
            width.

    Returns:
        Outputs `[B, T, N, V]` in q's dtype; zeros where there is no valid key.

    Raises:
        ValueError: if the encoding does more than that (a bias, a scale, several views:
            it would be left out), or embeds; if tokens come in segments; and for shapes
            and parameters, as `attend`.

    References:
        Su et al. (2021), RoFormer, arXiv:2104.09864, equation 19; Katharopoulos et al.
        (2020), arXiv:2006.16236.
    """
    _check(q, k, v, encoding, query, key)
    params, sides = _features(q, k, v, encoding, params, query, key, feature_map)
    if encoding.causal_only and query.length > 1:
        raise ValueError(
            f"{encoding.title} is undefined for keys after the query; use "
            "causal_linear_attention."
        )
    q_turned, q_plain, k_turned, k_plain, v = sides
    state = jnp.einsum("bskh,bskv->bkhv", k_turned, v)
    total = k_plain.sum(1)
    above = jnp.einsum("btkgh,bkhv->btkgv", q_turned, state)
    below = jnp.einsum("btkgh,bkh->btkg", q_plain, total)
    out = encoding.outputs(params, _divide(above, below, q), query)
    return out.astype(q.dtype)


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

    As `linear_attention`, with sums over n up to m: by index, in whatever order tokens
    are stored.

    Args:
        q: queries, `[B, L, N, H]`.
        k: keys, `[B, L, K, H]`, N a multiple of K.
        v: values, `[B, L, K, V]`.
        encoding: one that rotates queries and keys (`Rotary`); it may rotate values
            and outputs too (`VORotary`).
        params: what its `prepare` returned; None for an encoding without parameters of
            its own.
        where: where the tokens are.
        feature_map: phi, applied to queries and keys; not negative. It may change their
            width.
        chunk: tokens that are handled at once; speed only.

    Returns:
        Outputs `[B, L, N, V]` in q's dtype.

    Raises:
        ValueError: as `linear_attention`, and if chunk is no positive integer.

    References:
        As `linear_attention`.
    """
    check_size("chunk", chunk)
    _check(q, k, v, encoding, where, where)
    params, sides = _features(q, k, v, encoding, params, where, where, feature_map)
    batch, length, groups = v.shape[:3]
    width, value_width = sides[2].shape[-1], sides[4].shape[-1]
    sides = jax.tree.map(lambda x: _chunked(in_sequence(x, where, 1), chunk), sides)
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

    state = jnp.zeros((batch, groups, width, value_width), jnp.float32)
    total = jnp.zeros((batch, groups, width), jnp.float32)
    _, (above, below) = jax.lax.scan(step, (state, total), sides)
    above, below = (
        jnp.moveaxis(x, 0, 1).reshape(batch, -1, *x.shape[3:])[:, :length]
        for x in (above, below)
    )
    out = in_storage(_divide(above, below, q), where, 1)
    return encoding.outputs(params, out, where).astype(q.dtype)


def _check(q, k, v, encoding: Encoding, query: Tokens, key: Tokens) -> None:
    check_kinds(encoding, query, key, None)
    check_arrays(q, k, v)
    check_tokens(q, k, encoding, query, key)
    if query.segments is not None or key.segments is not None:
        raise ValueError("linear attention has no segments; attend to each by itself.")


def _features(q, k, v, encoding, params, query, key, feature_map):
    """Prepared params; turned and plain features and values in float32.

    Query heads are grouped by key head.
    """
    q = finite_at_padding(q, query)
    k, v = without_padding(k, v, key)
    phi_q, phi_k = (_mapped(feature_map, name, x) for name, x in (("q", q), ("k", k)))
    if phi_q.shape[3] != phi_k.shape[3]:
        raise ValueError(
            "feature_map must give queries and keys one width, got "
            f"{phi_q.shape[3]} and {phi_k.shape[3]}."
        )
    dims = dims_of(phi_q, phi_k)
    check_is_rotation(encoding, dims, query, key)
    if params is None:
        check_no_parameters(encoding, dims)
        params = encoding.prepare({}, {}, query, key, dims)
    else:
        params = plain_params(params)
        check_params(encoding, params, phi_q, phi_k, query, key)
    check_features(encoding, phi_q, phi_k, query, key)
    if key.valid is not None:
        phi_k = jnp.where(key.valid[..., None, None], phi_k, 0.0)
    (q_turned,) = encoding.queries(params, phi_q, query)
    (k_turned,) = encoding.keys(params, phi_k, key)
    groups = k.shape[2]
    grouped = lambda x: x.reshape(*x.shape[:2], groups, -1, x.shape[-1])
    v = encoding.values(params, v.astype(jnp.float32), key)
    return params, (grouped(q_turned), grouped(phi_q), k_turned, phi_k, v)


def _mapped(feature_map: FeatureMap, name: str, x: Array) -> Array:
    """Features of queries or keys, in float32."""
    if not callable(feature_map):
        raise ValueError(
            f"feature_map must be a function of arrays, such as elu_plus_one, got "
            f"{feature_map!r}."
        )
    made = feature_map(x.astype(jnp.float32))
    if jnp.ndim(made) != 4 or made.shape[:3] != x.shape[:3]:
        raise ValueError(
            f"feature_map must return {list(x.shape[:3])} and a width for {name}, got "
            f"shape {jnp.shape(made)}."
        )
    return made.astype(jnp.float32)


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
    return out.reshape(*q.shape[:3], -1)
