"""Which axes of an encoding's parameters and features are rows, and which are heads.

Nobody writes that down: a method is asked for the shapes that it would make for twice
as many rows, or heads, and the axes that have doubled are the ones.
"""

from typing import Any

import jax
from jaxtyping import Array, Float

from ropejax.encodings.base import Dims, Encoding
from ropejax.tokens import Tokens
from ropejax.typing import Params


def dims_of(q: Float[Array, "B T N H"], k: Float[Array, "B S K H"]) -> Dims:
    """Returns the sizes that queries and keys tell, the model's width as N times H."""
    heads, width = q.shape[2], q.shape[3]
    return Dims(heads, k.shape[2], width, heads * width)


NONE = -1
"""Stands for no axis, since None is no leaf of a pytree."""


def row_axes(
    encoding: Encoding, params: Params, query: Tokens, key: Tokens, dims: Dims
) -> Any:
    """Returns the axis of each prepared parameter that is the batch, or `NONE`.

    Args:
        encoding: settings of the position encoding.
        params: what its `prepare` returned.
        query: the queries, as `prepare` saw them.
        key: the keys.
        dims: sizes of the model; its width does not matter.

    Raises:
        ValueError: if `params` are not what `prepare` returns.
    """
    once = _prepared(encoding, query, key, dims)
    twice = _prepared(encoding, _twice(query), _twice(key), dims)
    return _doubled(encoding, params, once, twice)


def head_axes(
    encoding: Encoding, params: Params, query: Tokens, key: Tokens, dims: Dims
) -> Any:
    """Returns the axis of each prepared parameter that grows with heads, or `NONE`.

    Args and Raises: as `row_axes`.
    """
    once = _prepared(encoding, query, key, dims)
    twice = _prepared(encoding, query, key, _twice_the_heads(dims))
    return _doubled(encoding, params, once, twice)


def feature_head_axes(
    encoding: Encoding, query: Tokens, key: Tokens, dims: Dims
) -> tuple[Any, Any]:
    """Returns the axes that grow with heads of the queries' and the keys' features.

    Args:
        encoding: settings of the position encoding.
        query: the queries, with features.
        key: the keys, with features.
        dims: sizes of the model.

    Raises:
        ValueError: if the features are not what the encoding makes.
    """
    once = features_of(encoding, query, key, dims)
    twice = features_of(encoding, query, key, _twice_the_heads(dims))
    return tuple(
        _doubled(encoding, side.features, a, b)
        for side, a, b in zip((query, key), once, twice, strict=True)
    )


def _prepared(encoding, query, key, dims):
    def prepare(rng, query, key):
        shared, layer = encoding.init_shared(rng, dims), encoding.init_layer(rng, dims)
        return encoding.prepare(shared, layer, query, key, dims)

    bare = query.replace(features=None), key.replace(features=None)
    return jax.eval_shape(prepare, jax.random.key(0), *shapes_of(bare))


def features_of(
    encoding: Encoding, query: Tokens, key: Tokens, dims: Dims
) -> tuple[Any, Any]:
    """Returns shapes of the features that queries and keys get, as pytrees.

    Args:
        encoding: settings of the position encoding.
        query: the queries.
        key: the keys.
        dims: sizes of the model; its width does not matter.
    """

    def features(rng, query, key):
        shared, layer = encoding.init_shared(rng, dims), encoding.init_layer(rng, dims)
        params = encoding.prepare(shared, layer, query, key, dims)
        zeros = lambda length, *shape: jax.numpy.zeros((rows, length, *shape))
        width, heads = dims.head_dim, (dims.num_heads, dims.num_kv_heads)
        x, q = zeros(query.length, dims.embed_dim), zeros(query.length, heads[0], width)
        of_query = encoding.query_features(params, x, q, query)
        x, k = zeros(key.length, dims.embed_dim), zeros(key.length, heads[1], width)
        return of_query, encoding.key_features(params, x, k, key)[0]

    bare = query.replace(features=None), key.replace(features=None)
    rows = max(x.shape[0] for x in jax.tree.leaves(bare))
    return jax.eval_shape(features, jax.random.key(0), *shapes_of(bare))


def shapes_of(tree: Any) -> Any:
    """Returns shapes and dtypes, and no word of devices."""
    one = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.tree.map(one, tree)


def _twice(where: Tokens) -> Tokens:
    def one(x: Array) -> jax.ShapeDtypeStruct:
        rows = x.shape[0] * 2 if x.shape[0] > 1 else 1
        return jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype)

    return jax.tree.map(one, where.replace(features=None))


def _twice_the_heads(dims: Dims) -> Dims:
    return dims._replace(
        num_heads=2 * dims.num_heads, num_kv_heads=2 * dims.num_kv_heads
    )


def _doubled(encoding: Encoding, given: Any, once: Any, twice: Any) -> Any:
    structures = {jax.tree.structure(tree) for tree in (given, once, twice)}
    if len(structures) > 1:
        raise ValueError(
            f"cannot tell rows and heads among the parameters of {encoding.title}: "
            f"expected {jax.tree.structure(once)}, got {jax.tree.structure(given)}; "
            "pass what its prepare and features hooks return."
        )

    def axis(a, b):
        grown = [i for i, n in enumerate(a.shape) if b.shape[i] != n]
        return grown[0] if grown else NONE

    return jax.tree.map(axis, once, twice)
