"""Whether `attend` is given what the encoding's own hooks return.

A method is asked, once for given shapes, what it would make of parameters of its own;
only shapes are computed. Heads' and the tokens' sizes must then agree; the width of the
model, which queries and keys do not tell, may be any.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.attention.axes import dims_of, features_of, shapes_of
from ropejax.encodings.base import Dims, Encoding
from ropejax.tokens import Tokens
from ropejax.typing import Params

_MAKERS = ("init_shared", "init_layer", "prepare")

_ANY = -1
"""Stands for an axis that grows with the model's width."""


def plain_params(params: Params) -> Params:
    """Returns parameters as hooks take them, whatever they were kept in.

    Mappings of other kinds (Flax's FrozenDict, nnx.State) become dicts, and NumPy's
    arrays, which traced indices cannot read, JAX's.
    """
    if hasattr(params, "get_value"):  # a variable of flax.nnx
        params = params.get_value()
    if isinstance(params, Mapping) and not isinstance(params, dict):
        params = dict(params)
    if isinstance(params, dict):
        return {name: plain_params(part) for name, part in params.items()}
    is_numpy = lambda leaf: isinstance(leaf, np.ndarray | np.generic)
    return jax.tree.map(lambda x: jnp.asarray(x) if is_numpy(x) else x, params)


def check_params(
    encoding: Encoding, params: Params, q, k, query: Tokens, key: Tokens
) -> None:
    """Raises ValueError for parameters that `prepare` does not return for these tokens.

    Inside `jax.shard_map` a device has parts of tokens, and perhaps of heads; there
    only missing parameters are refused.

    Args:
        encoding: settings of the position encoding.
        params: what was given.
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`.
        query: where the queries are.
        key: where the keys are.
    """
    kind = type(encoding)
    if all(getattr(kind, hook) is getattr(Encoding, hook) for hook in _MAKERS):
        return  # it says nothing of parameters, so they are its caller's own
    wanted = _wanted(encoding, dims_of(q, k), *_signature((query, key)))
    if wanted is None:
        return
    if jax.sharding.get_abstract_mesh().manual_axes:
        wrong = jax.tree.leaves(wanted) and not jax.tree.leaves(params)
    else:
        wrong = not _agree(params, wanted)
    if not wrong:
        return
    raise ValueError(
        f"params are not what prepare of {encoding.title} returns for these tokens: "
        f"expected {_described(wanted)}, got {_described(params)}{_hint(encoding)}; "
        "give params=encoding.prepare(encoding.init_shared(rng, dims), "
        "encoding.init_layer(rng, dims), query, key, dims)."
    )


def check_features(encoding: Encoding, q, k, query: Tokens, key: Tokens) -> None:
    """Raises ValueError unless Tokens hold what the features hooks return, if anything.

    Args:
        encoding: settings of the position encoding.
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`.
        query: where the queries are, with their features.
        key: where the keys are, with their features.
    """
    if not encoding.has_features:
        return
    wanted = _wanted_features(encoding, dims_of(q, k), *_signature((query, key)))
    if wanted is None:
        return
    hooks = {
        "query": "query_features(params, x, q, query)",
        "key": "key_features(params, x, k, key)[0]",
    }
    for (name, hook), side, structure in zip(
        hooks.items(), (query, key), wanted, strict=True
    ):
        if jax.tree.structure(side.features) != structure:
            raise ValueError(
                f"{encoding.title} computes features from hidden states x, which "
                f"{name} lacks or has of another encoding; give "
                f"{name}={name}.replace(features=encoding.{hook})."
            )


def _hint(encoding: Encoding) -> str:
    if type(encoding).prepare is Encoding.prepare:
        return ""
    return " (what init_layer returns is what prepare takes)"


def _agree(given: Any, wanted: Any) -> bool:
    leaves, structure = jax.tree.flatten(given)
    shapes = jax.tree.leaves(wanted)
    if structure != jax.tree.structure(wanted):
        return False
    return all(
        _fits(jnp.shape(leaf), shape.sizes)
        for leaf, shape in zip(leaves, shapes, strict=True)
    )


def _fits(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Axes agree; a leading one may be 1 on one side, where rows agree."""
    if len(given) != len(wanted):
        return False
    return all(
        b in {a, _ANY} or (axis == 0 and 1 in {a, b})
        for axis, (a, b) in enumerate(zip(given, wanted, strict=True))
    )


class _Shape:
    """Sizes of an array, `_ANY` for one that does not matter; a leaf of a pytree."""

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes = sizes

    def __repr__(self) -> str:
        return f"[{', '.join('D' if n == _ANY else str(n) for n in self.sizes)}]"


def _described(params: Any) -> str:
    one = lambda x: x if isinstance(x, _Shape) else _Shape(jnp.shape(x))
    return str(jax.tree.map(one, params))


def _signature(sides: tuple[Tokens, Tokens]) -> tuple[Any, tuple]:
    """What `prepare` can see of tokens without values, hashable."""
    bare = tuple(side.replace(features=None) for side in sides)
    leaves, structure = jax.tree.flatten(shapes_of(bare))
    return structure, tuple((x.shape, x.dtype) for x in leaves)


@functools.lru_cache(maxsize=512)
def _wanted(encoding: Encoding, dims: Dims, structure, leaves) -> Any:
    """What `prepare` returns, as a pytree of `_Shape`; None if that cannot be told.

    It cannot where parameters are meant to come from elsewhere too (DeBERTa's shared
    projections), or where a method looks at values of its tokens.
    """
    sides = _sides(structure, leaves)

    def prepared(dims: Dims):
        def prepare(rng, query, key):
            shared = encoding.init_shared(rng, dims)
            layer = encoding.init_layer(rng, dims)
            return encoding.prepare(shared, layer, query, key, dims)

        return jax.eval_shape(prepare, jax.random.key(0), *sides)

    try:
        made = prepared(dims)
        wider = prepared(dims._replace(embed_dim=2 * dims.embed_dim))
    except Exception:  # of a method's own code, which may want anything
        return None

    def shape(a, b):
        same = zip(a.shape, b.shape, strict=True)
        return _Shape(tuple(n if n == m else _ANY for n, m in same))

    return jax.tree.map(shape, made, wider)


@functools.lru_cache(maxsize=512)
def _wanted_features(encoding: Encoding, dims: Dims, structure, leaves) -> Any:
    """Structures of queries' and keys' features; None if they cannot be told."""
    try:
        made = features_of(encoding, *_sides(structure, leaves), dims)
    except Exception:  # as above
        return None
    return tuple(jax.tree.structure(features) for features in made)


def _sides(structure, leaves) -> tuple[Tokens, Tokens]:
    shapes = [jax.ShapeDtypeStruct(*x) for x in leaves]
    return jax.tree.unflatten(structure, shapes)
