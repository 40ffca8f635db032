"""The delta rule: a linear memory that corrects what it holds under a key.

The state is a matrix that maps keys to values. Each token lets it fade, if it is gated,
takes away what stands under its key, and puts its value there. On the way the state is
multiplied by `I - beta k k^T`, which is what tracks state: with beta up to 2 that
matrix may reflect, and reflections, one after the other, make up all rotations.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.encodings.reflections import unit_lower_inverse
from ropejax.nn.recurrent.chunks import CHUNK, over_chunks

_S, _T, _I = np.ogrid[:CHUNK, :CHUNK, :CHUNK]
_BETWEEN = np.float32((_S > _I) & (_S <= _T))
"""1 at `[s, t, i]` if `i < s <= t`: the tokens of a chunk between two of them."""

WIDE = 16
"""Width of a key from which tokens of a chunk are worked out together."""


def delta_rule(
    q: Float[Array, "B L N H"],
    k: Float[Array, "B L N H"],
    v: Float[Array, "B L N V"],
    beta: Float[Array, "B L N"],
    log_decay: Float[Array, "B L N"] | None = None,
    *,
    together: bool | None = None,
) -> Float[Array, "B L N V"]:
    """Returns what the memory gives for the query of each token.

    `S_t = a_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T`, out `S_t q_t`, from
    `S_0 = 0`; S is `[V, H]`, one a head and row.

    Either one token after the other, or all of a chunk together in matrix products, the
    chunkwise form. There, with g the decays multiplied up from the chunk's start,
    `S_t = g_t S_0 + sum_{i<=t} (g_t / g_i) u_i k_i^T`, and the corrections u solve
    `u_t + beta_t sum_{i<t} (g_t / g_i) (k_t . k_i) u_i = beta_t (v_t - g_t S_0 k_t)`, a
    unit lower triangular system.

    Args:
        q: queries.
        k: keys, unit vectors: then `1 - beta` is the eigenvalue along k.
        v: values.
        beta: how much of what stands under a key is replaced, in [0, 2].
        log_decay: log a, finite and at most 0; a = 1 if None.
        together: whether the tokens of a chunk are worked out together; if None, they
            are where keys are at least 16 wide. On a CPU, forward and backward of 64
            rows of 40 and 500 tokens then take 0.2 to 0.8 of the time of one by one;
            with keys 8 wide they would take three to four times as long.

    Returns:
        Outputs `[B, L, N, V]`, float32, as is all of the computation.

    References:
        Schlag et al. 2021, arXiv 2102.11174; chunkwise: Yang et al. 2024, arXiv
        2406.06484, and fla-org/flash-linear-attention@52f9c7b,
        `fla/ops/delta_rule/README.md`; with a decay: Yang et al. 2024, arXiv
        2412.06464.

    Departures:
        The WY factors of the reflections' product are not written out: u is solved for
        with the state at hand, half of the products.
    """
    if together is None:
        together = k.shape[-1] >= WIDE
    if log_decay is None:
        log_decay = jnp.zeros_like(beta)
    parts = tuple(x.astype(jnp.float32) for x in (q, k, v, beta, log_decay))
    batch, _, heads, width = k.shape
    state = jnp.zeros((batch, heads, v.shape[-1], width), jnp.float32)
    return over_chunks(_together if together else _one_by_one, state, parts)


def _one_by_one(state, chunk):
    """Takes the state through a chunk by the recurrence itself."""

    def step(state, token):
        q, k, v, beta, log_decay = token
        state = jnp.exp(log_decay)[..., None, None] * state
        there = _dot("bnvh,bnh->bnv", state, k)
        change = beta[..., None] * (v - there)
        state = state + change[..., :, None] * k[..., None, :]
        return state, _dot("bnvh,bnh->bnv", state, q)

    return jax.lax.scan(step, state, chunk)


def _together(state, chunk):
    """Takes the state through a chunk by matrix products."""
    q, k, v, beta, log_decay = (jnp.moveaxis(x, 0, 2) for x in chunk)
    since_start = jnp.exp(jnp.cumsum(log_decay, axis=-1))[..., None]
    # Summed up anew for each pair: sums from the start would lose, in their difference,
    # what comes after a token that lets go of nearly all.
    between = jnp.tensordot(log_decay, _BETWEEN, axes=1, precision="highest")
    between = jnp.tril(jnp.exp(between))
    earlier = jnp.tril(_dot("bnth,bnih->bnti", k, k) * between, -1)
    inverse = unit_lower_inverse(beta[..., None] * earlier)
    there = since_start * _dot("bnvh,bnth->bntv", state, k)
    moved = _dot("bnti,bniv->bntv", inverse, beta[..., None] * (v - there))
    out = since_start * _dot("bnvh,bnth->bntv", state, q)
    seen = _dot("bnth,bnih->bnti", q, k) * between
    out = out + _dot("bnti,bniv->bntv", seen, moved)
    left = between[..., -1, :, None]  # of each token, at the chunk's end
    state = since_start[..., -1:, :] * state
    state = state + _dot("bntv,bnth->bnvh", left * moved, k)
    return state, jnp.moveaxis(out, 2, 0)


def _dot(spec: str, a: Array, b: Array) -> Array:
    return jnp.einsum(spec, a, b, precision="highest")
