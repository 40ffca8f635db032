"""Walking rows through a sequence of generalized Householder reflections.

A row r that meets token s is multiplied by `I - beta_s w_s w_s^T`. Done one token at a
time that is a long chain of small steps; within a chunk, the amounts a_s by which the
row moves along each w_s solve one triangular system, and all else is matrix products.
"""

import jax
import jax.numpy as jnp

from ropejax.typing import Array, Bool, Float

CHUNK = 32
"""Most tokens whose reflections are solved for together; a power of two."""


def reflect_along(
    rows: Float[Array, "B N T H"],
    k: Float[Array, "B N S H"],
    w: Float[Array, "B N S H"],
    beta: Float[Array, "B N S"],
    passed: Bool[Array, "#B T S"],
) -> tuple[Float[Array, "B N T H"], Float[Array, "B N T S"]]:
    """Returns rows after all tokens, and their products with each key on the way.

    From the last token to the first: `out[t, s] = r_t . k_s`, then
    `r_t <- r_t - beta_s (r_t . w_s) w_s` if row t passes token s.

    Args:
        rows: what walks, float32.
        k: keys, in order along the sequence.
        w: directions of the reflections.
        beta: their strengths; 0 leaves a row as it is.
        passed: which tokens a row passes: for each row, all up to some token.

    Returns:
        The rows, and the products `[B, N, T, S]`.
    """
    length = k.shape[2]
    size = min(CHUNK, 1 << (length - 1).bit_length())
    pad = -length % size
    if pad:
        k, w = (jnp.pad(x, [(0, 0), (0, 0), (0, pad), (0, 0)]) for x in (k, w))
        beta = jnp.pad(beta, [(0, 0), (0, 0), (0, pad)])
        passed = jnp.pad(passed, [(0, 0), (0, 0), (0, pad)])
    chunks = (
        _chunks(k, 2, size),
        _chunks(w, 2, size),
        _chunks(beta, 2, size),
        _chunks(passed, 2, size),
    )
    rows, products = jax.lax.scan(_chunk, rows, chunks, reverse=True)
    products = jnp.moveaxis(products, 0, 3)
    return rows, products.reshape(*products.shape[:3], -1)[..., :length]


def _chunks(x: Array, axis: int, size: int) -> Array:
    """Returns x cut along an axis into chunks, which become axis 0."""
    shape = (*x.shape[:axis], x.shape[axis] // size, size, *x.shape[axis + 1 :])
    return jnp.moveaxis(x.reshape(shape), axis, 0)


def _chunk(rows, chunk):
    """Walks rows through one chunk.

    `a_s = beta_s (r . w_s - sum of a_t (w_t . w_s) over t > s)` where the row passes s.
    A row passes tokens up to some s only, and a is 0 from there on, so zeros on the
    right side of the triangular system are enough.
    """
    k, w, beta, passed = chunk
    size = k.shape[2]
    later = jnp.tril(jnp.ones((size, size), bool), -1)[None, None]
    between = jnp.where(later, _dot("bnth,bnsh->bnts", w, w), 0.0)
    wanted = jnp.where(passed[:, None], _dot("bnth,bnsh->bnts", rows, w), 0.0)
    inverse = unit_lower_inverse(between * beta[:, :, None, :])
    moved = _dot("bntu,bnus->bnts", wanted * beta[:, :, None, :], inverse)
    seen = jnp.where(later, _dot("bnth,bnsh->bnts", w, k), 0.0)
    products = _dot("bnth,bnsh->bnts", rows, k) - _dot("bntu,bnus->bnts", moved, seen)
    return rows - _dot("bnts,bnsh->bnth", moved, w), products


def unit_lower_inverse(x: Float[Array, "*B n n"]) -> Float[Array, "*B n n"]:
    """Returns `(I + x)^-1` for strictly lower triangular x, n a power of two.

    By halves: with blocks A, 0, C, D, the inverse has -D^-1 C A^-1 below the diagonal.
    That is matrix products only, so it is fast for many small systems on any device,
    and as stable as substitution.
    """
    *batch, size, _ = x.shape
    inverse = jnp.ones((*batch, size, 1, 1), x.dtype)
    half = 1
    while half < size:
        pairs = size // (2 * half)
        parts = x.reshape(*batch, pairs, 2, half, pairs, 2, half)
        below = parts[..., 1, :, :, 0, :]
        diagonal = jnp.eye(pairs, dtype=below.dtype)
        below = jnp.einsum("...isjt,ij->...ist", below, diagonal)
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        corner = -_dot("...st,...tu->...su", second, below)
        corner = _dot("...st,...tu->...su", corner, first)
        above = jnp.concatenate([first, jnp.zeros_like(first)], axis=-1)
        under = jnp.concatenate([corner, second], axis=-1)
        inverse = jnp.concatenate([above, under], axis=-2)
        half *= 2
    return inverse[..., 0, :, :]


def _dot(spec: str, a: Array, b: Array) -> Array:
    return jnp.einsum(spec, a, b, precision="highest")
