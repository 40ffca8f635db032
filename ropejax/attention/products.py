"""Weights against values, and its backward pass, in the order that is fast on a CPU.

XLA multiplies matrices at a core's full speed if the axis summed over comes last in the
first one; else it copies the block of weights into that order or takes a slower path.
Left to `jnp.einsum` and its derivative, both happen. Here only the smaller arrays are
turned: values, and gradients of outputs.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def weighted_heads(
    weights: Float[Array, "B N T S"], v: Float[Array, "B S K H"]
) -> Float[Array, "B T N H"]:
    """Returns `sum_s weights[.., s] v[s]` in float32, grouped heads expanded.

    What `ropejax.encodings.heads.weighted_sum` returns; reverse mode only.

    Args:
        weights: attention weights, `[B, N, T, S]`.
        v: values, `[B, S, K, H]`; query head n reads key head `n // (N // K)`.
    """
    return _forward(weights, v)[0]


def _forward(weights, v):
    grouped = _grouped(weights, v).astype(v.dtype)
    out = jnp.einsum(
        "bkts,bksh->bkth",
        grouped,
        jnp.swapaxes(v, 1, 2),
        preferred_element_type=jnp.float32,
    )
    out = out.reshape(*weights.shape[:3], v.shape[-1])
    return jnp.swapaxes(out, 1, 2), (weights, v)


def _backward(saved, d_out):
    weights, v = saved
    d_out = _grouped(jnp.swapaxes(d_out, 1, 2), v).astype(v.dtype)
    d_weights = jnp.einsum(
        "bkth,bksh->bkts",
        d_out,
        jnp.swapaxes(v, 1, 2),
        preferred_element_type=jnp.float32,
    )
    if d_out.dtype == jnp.float32:
        # "tbkh", not "bkth": so XLA turns this operand, and leaves the weights alone.
        turned, equation = jnp.moveaxis(d_out, 2, 0), "tbkh,bkts->bkhs"
    else:
        # Small products of bfloat16 in that order are more than XLA's CPU backend can.
        turned, equation = d_out, "bkth,bkts->bkhs"
    d_v = jnp.einsum(
        equation,
        turned,
        _grouped(weights, v).astype(v.dtype),
        preferred_element_type=jnp.float32,
    )
    d_v = jnp.transpose(d_v, (0, 3, 1, 2)).astype(v.dtype)
    return d_weights.reshape(weights.shape), d_v


weighted_heads.defvjp(_forward, _backward)


def _grouped(x: Float[Array, "B N T X"], v) -> Float[Array, "B K G X"]:
    """Returns x with the queries of all heads that share a key head in one axis."""
    return x.reshape(x.shape[0], v.shape[2], -1, x.shape[-1])
