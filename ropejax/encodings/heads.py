"""Products of queries, keys and values head by head, and numbers that meet logits."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from ropejax.typing import Logits


def dot_product(q: Float[Array, "B T N H"], k: Float[Array, "B S K H"]) -> Logits:
    """Returns `q . k` for every pair, in float32, grouped heads expanded.

    Args:
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`; query head n reads key head `n // (N // K)`.

    Returns:
        Logits `[B, N, T, S]`, unscaled.
    """
    batch, length, heads, width = q.shape
    groups = k.shape[2]
    if groups == heads:
        return jnp.einsum("btnh,bsnh->bnts", q, k, preferred_element_type=jnp.float32)
    q = q.reshape(batch, length, groups, heads // groups, width)
    logits = jnp.einsum("btkgh,bskh->bkgts", q, k, preferred_element_type=jnp.float32)
    return logits.reshape(batch, heads, length, k.shape[1])


def weighted_sum(
    weights: Float[Array, "B N T S"], v: Float[Array, "B S K H"]
) -> Float[Array, "B T N H"]:
    """Returns `sum_s weights[.., s] v[s]` in float32, grouped heads expanded.

    Args:
        weights: attention weights, `[B, N, T, S]`.
        v: values, `[B, S, K, H]`.

    Returns:
        Outputs `[B, T, N, H]`.
    """
    batch, heads, length, _ = weights.shape
    groups = v.shape[2]
    if v.dtype != jnp.float32:
        weights = weights.astype(v.dtype)
    if groups == heads:
        return jnp.einsum(
            "bnts,bsnh->btnh", weights, v, preferred_element_type=jnp.float32
        )
    weights = weights.reshape(batch, groups, heads // groups, length, -1)
    out = jnp.einsum(
        "bkgts,bskh->btkgh", weights, v, preferred_element_type=jnp.float32
    )
    return out.reshape(batch, length, heads, v.shape[-1])


def per_head(values: Float[Array, " N"]) -> Float[Array, "1 N 1 1"]:
    """Returns per-head numbers shaped to meet logits `[B, N, T, S]`."""
    return values[None, :, None, None]


def per_query(values: Shaped[Array, "B T"]) -> Shaped[Array, "B 1 T 1"]:
    """Returns per-query numbers `[B, T]` shaped to meet logits `[B, N, T, S]`."""
    return values[:, None, :, None]
