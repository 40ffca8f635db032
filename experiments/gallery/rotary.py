"""Numbers of rotary encodings for the gallery: frequencies, distances, products."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from experiments.gallery.numbers import DIMS, REACH, prepared
from ropejax.encodings import Encoding
from ropejax.encodings.rotary import RotaryAttention
from ropejax.encodings.rotary_base import Rotation
from ropejax.tokens import tokens


def pair_frequencies(
    encoding: Rotation, length: int | None = None
) -> Float[np.ndarray, " R"]:
    """Returns the frequency of each pair, radians a token, at a current length."""
    where = tokens(length or 1)
    params = prepared(encoding, where, where)
    return np.asarray(encoding.frequencies_of_pairs(params, DIMS.head_dim)).reshape(-1)


def plain_frequencies(encoding: Rotation) -> Float[np.ndarray, " R"]:
    """Returns the frequency of each pair as RoPE has it, without the extension."""
    plan = encoding.pairs(DIMS.head_dim)
    return plan.spectrum[plan.entry]


def rotation_factor(encoding: Rotation, length: int) -> float:
    """Returns the factor on rotated queries, and on keys, at a current length."""
    if not encoding.length_dependent:
        return float(encoding.frequencies.factor())
    return float(np.ravel(encoding.frequencies.factor(jnp.array([length])))[0])


def decay_bound(
    frequencies: Float[np.ndarray, " R"],
    distances: Float[np.ndarray, " n"],
    factor: float = 1.0,
) -> Float[np.ndarray, " n"]:
    """Returns RoFormer's bound on rotary products, relative to its constant.

    `(2 / d) sum_j |S_j|`, `S_j = sum of exp(i r f_t) over the first j pairs`, and r the
    distance: Su et al. (2021), arXiv:2104.09864, section 3.4.3. At distance 0 it is
    `(R + 1) / 2` for R = d / 2 pairs.

    Args:
        frequencies: radians a token, in the order of pairs.
        distances: in tokens.
        factor: on rotated queries and, again, on keys.
    """
    turned = np.exp(1j * np.outer(distances, frequencies))
    return factor**2 * np.abs(np.cumsum(turned, axis=1)).mean(axis=1)


def bound_by_distance(
    encoding: RotaryAttention, reach: int = REACH
) -> Float[np.ndarray, " n"]:
    """Returns the bound at distances 0 .. reach, from the last of reach + 1 queries."""
    factor = rotation_factor(encoding, reach + 1)
    distances = distance_matrix(encoding, reach + 1)[-1, ::-1]
    return decay_bound(pair_frequencies(encoding, reach + 1), distances, factor)


def distance_matrix(encoding: RotaryAttention, length: int) -> np.ndarray:
    """Returns the distance that the encoding sees from query i to key j, `[L, L]`."""
    where = tokens(length)
    return -np.asarray(encoding.distance.relative(where, where)[0])


def product_by_distance(
    encoding: Encoding, reach: int = REACH, channels: slice | None = None
) -> Float[np.ndarray, " n"]:
    """Returns the product of equal content at distances 0 .. reach over `q . k`.

    Args:
        encoding: the encoding.
        reach: longest distance, in tokens.
        channels: where queries and keys are 1; elsewhere they are 0.
    """
    key = tokens(reach + 1)
    query = key.block(reach, 1)
    content = jnp.zeros(DIMS.head_dim).at[channels or slice(None)].set(1.0)
    q, k = (jnp.broadcast_to(content, (1, n, 1, DIMS.head_dim)) for n in (1, reach + 1))
    params = prepared(encoding, query, key)
    q, k = (jnp.repeat(x, DIMS.num_heads, axis=2) for x in (q, k))
    views = encoding.queries(params, q, query), encoding.keys(params, k, key)
    product = encoding.product(params, *views, query, key)[0, 0, 0]
    return np.asarray(product)[::-1] / float(content.sum())


def product_on_grid(encoding: Encoding, side: int) -> Float[np.ndarray, "n n"]:
    """Returns the product of equal content by offset on the last two axes.

    Offsets run from -side to side, in tokens; other axes have offset 0.
    """
    row, column = np.indices((2 * side + 1, 2 * side + 1)).reshape(2, -1)
    positions = np.zeros((1, row.size, encoding.num_axes), np.int32)
    positions[0, :, -2], positions[0, :, -1] = row, column
    return _product_at(encoding, positions, row.size // 2).reshape(2 * side + 1, -1)


def product_along_axis(
    encoding: Encoding, axis: int, reach: int
) -> Float[np.ndarray, " n"]:
    """Returns the product of equal content at distances 0 .. reach on one axis."""
    positions = np.zeros((1, reach + 1, encoding.num_axes), np.int32)
    positions[0, :, axis] = np.arange(reach + 1)
    return _product_at(encoding, positions, 0)


def _product_at(encoding, positions, at: int):
    key = tokens(positions.shape[1], positions=jnp.asarray(positions))
    query = key.block(at, 1)
    shape = (DIMS.num_heads, DIMS.head_dim)
    q, k = (jnp.ones((1, side.length, *shape)) for side in (query, key))
    params = prepared(encoding, query, key)
    views = encoding.queries(params, q, query), encoding.keys(params, k, key)
    product = encoding.product(params, *views, query, key)[0, 0, 0]
    return np.asarray(product) / DIMS.head_dim
