"""What the gallery draws, as numbers: each function probes an encoding by its hooks.

Parameters are those of a start with seed 0. Where a method has nothing to show before
it is trained, `moved` draws the parameters that start at zero from N(0, 0.3) instead.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ropejax import testing
from ropejax.attention.visibility import visible_pairs
from ropejax.encodings import Dims, Encoding
from ropejax.masks import Causal
from ropejax.tokens import Tokens, tokens
from ropejax.typing import Params

DIMS = Dims(
    num_heads=8, num_kv_heads=8, head_dim=64, embed_dim=128, num_layers=1, causal=True
)
REACH = 256
"""Longest distance of curves, in tokens."""

_SCALE = DIMS.head_dim**-0.5


def dims_of(encoding: Encoding) -> Dims:
    """Returns the sizes to probe an encoding in: both directions where it can."""
    return DIMS._replace(causal=encoding.causal_only)


def start(encoding: Encoding) -> Params:
    """Returns shared and own parameters of a layer at the start, seed 0."""
    shared, layer = _both(encoding)
    return {**shared, **layer}


def prepared(
    encoding: Encoding, query: Tokens, key: Tokens, *, moved: bool = False
) -> Params:
    """Returns what `prepare` makes of the parameters of a start, perhaps moved."""
    both = _both(encoding)
    if moved:
        rng = np.random.default_rng(0)
        draw = lambda leaf: jnp.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype)
        both = jax.tree.map(lambda leaf: leaf if leaf.any() else draw(leaf), both)
    return encoding.prepare(*both, query, key, dims_of(encoding))


def _both(encoding: Encoding) -> tuple[Params, Params]:
    dims = dims_of(encoding)
    rng_shared, rng_layer = jax.random.split(jax.random.key(0))
    return encoding.init_shared(rng_shared, dims), encoding.init_layer(rng_layer, dims)


def position_vectors(encoding: Encoding, length: int) -> Float[np.ndarray, "L D"]:
    """Returns what positions 0 .. length - 1 change in embeddings of ones."""
    ones = jnp.ones((1, length, DIMS.embed_dim))
    return np.asarray(encoding.embed(start(encoding), ones, tokens(length))[0] - 1.0)


def similarity(vectors: Float[np.ndarray, "L D"]) -> Float[np.ndarray, "L L"]:
    """Returns the cosine of the angle between any two vectors."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def value_by_distance(encoding: Encoding, reach: int = REACH) -> np.ndarray:
    """Returns a value as the output sees it against itself, at distances 0 .. reach."""
    key = tokens(reach + 1)
    params = prepared(encoding, key, key)
    ones = jnp.ones((1, reach + 1, 1, DIMS.head_dim))
    turned = encoding.values(params, ones, key)
    last = jnp.full((1, reach + 1), reach)
    seen = encoding.outputs(params, turned, key.replace(positions=last))
    return np.asarray(seen.mean(axis=-1)[0, ::-1, 0])


def query_factor(encoding: Encoding, length: int) -> Float[np.ndarray, " L"]:
    """Returns the factor on the query at each index."""
    where = tokens(length)
    params = prepared(encoding, where, where)
    q = jnp.ones((1, length, DIMS.num_heads, DIMS.head_dim))
    return np.asarray(encoding.queries(params, q, where)[0][0, :, 0, 0])


class Curves(NamedTuple):
    """A curve a head.

    Attributes:
        offsets: key minus query position, in tokens.
        values: `[N, n]`, in nats.
    """

    offsets: Int[np.ndarray, " n"]
    values: Float[np.ndarray, "N n"]


def no_content(encoding: Encoding, reach: int) -> Curves:
    """Returns logits of queries and keys of zeros, by offset: what is position alone.

    Offsets run from -reach to 0, or to reach where the method has a meaning there.
    """
    last = reach if encoding.causal_only else 2 * reach
    where = tokens(last + 1)
    values = _logits_of_zeros(encoding, where.block(reach, 1), where)
    return Curves(np.arange(last + 1) - reach, values[:, 0])


def no_content_matrix(encoding: Encoding, length: int) -> Float[np.ndarray, "N L L"]:
    """Returns logits of queries and keys of zeros for all pairs."""
    where = tokens(length)
    return _logits_of_zeros(encoding, where, where)


def _logits_of_zeros(encoding, query, key):
    params = prepared(encoding, query, key, moved=True)
    shapes = [(1, side.length) for side in (query, key)]
    x = [jnp.zeros((*shape, DIMS.embed_dim)) for shape in shapes]
    q, k = (jnp.zeros((*shape, DIMS.num_heads, DIMS.head_dim)) for shape in shapes)
    key_features, _ = encoding.key_features(params, x[1], k, key)
    query_features = encoding.query_features(params, x[0], q, query)
    query, key = (
        query.replace(features=query_features),
        key.replace(features=key_features),
    )
    return _logits(encoding, params, q, k, query, key)


def response(encoding: Encoding, reach: int) -> Curves:
    """Returns by how much a logit of 1 ends higher than one of 0, by offset."""
    last = reach if encoding.causal_only else 2 * reach
    key = tokens(last + 1)
    query = key.block(reach, 1)
    params = prepared(encoding, query, key, moved=True)
    shape = (1, DIMS.num_heads, 1, last + 1)
    low, high = (
        encoding.logits(params, jnp.full(shape, value), query, key)
        for value in (0.0, 1.0)
    )
    return Curves(np.arange(last + 1) - reach, np.asarray(high - low)[0, :, 0])


def weight_factors(encoding: Encoding, reach: int) -> Curves:
    """Returns what a value of one comes to under a weight of one, by offset."""
    last = reach if encoding.causal_only else 2 * reach
    key = tokens(last + 1)
    query = key.block(reach, 1)
    params = prepared(encoding, query, key)
    count, heads = last + 1, DIMS.num_heads
    each = jnp.broadcast_to(jnp.eye(count)[:, None, None], (count, heads, 1, count))
    ones = jnp.ones((count, count, heads, 1))
    seen = encoding.mix(params, each, ones, query, key)
    return Curves(np.arange(count) - reach, np.asarray(seen)[:, 0, :, 0].T)


class Example(NamedTuple):
    """Logits of random content, NaN where a causal-only method has none, `[L, L]`.

    Attributes:
        logits: of the first head, in nats.
        by_position: these minus `q . k` over the square root of H.
    """

    logits: Float[np.ndarray, "L L"]
    by_position: Float[np.ndarray, "L L"]


def example_logits(encoding: Encoding, length: int) -> Example:
    """Returns logits of random content under parameters moved as by training."""
    where, dims = tokens(length), dims_of(encoding)
    inputs = testing.example(encoding, dims=dims, length=length, batch=1)
    x = encoding.embed(inputs["shared"], inputs["x"], where)
    q, k = (
        inputs[name] + jnp.einsum("bld,dnh->blnh", x, inputs["w" + name])
        for name in "qk"
    )
    params = encoding.prepare(inputs["shared"], inputs["layer"], where, where, dims)
    key_features, _ = encoding.key_features(params, x, k, where)
    query = where.replace(features=encoding.query_features(params, x, q, where))
    key = where.replace(features=key_features)
    logits = _logits(encoding, params, q, k, query, key)[0]
    plain = _logits(Encoding(), {}, q, k, where, where)[0]
    if encoding.causal_only:
        logits = np.where(np.tri(length, dtype=bool), logits, np.nan)
    return Example(logits, logits - plain)


def _logits(encoding, params, q: Array, k: Array, query: Tokens, key: Tokens):
    """Logits `[N, T, S]`, the hooks called as engines call them."""
    mask = Causal() if encoding.causal_only else None
    visible = visible_pairs(query, key, mask)
    views = encoding.queries(params, q, query), encoding.keys(params, k, key)
    state = encoding.init_carry(params, views[0], query)
    _, logits = encoding.score(params, state, *views, query, key, visible, scale=_SCALE)
    return np.asarray(logits, np.float32)[0]
