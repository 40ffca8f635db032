"""Shapes of an encoding's parameters in the letters of the library, never in numbers.

Shapes are worked out for two models of different sizes. An axis that is equal in both
is a number; any other must be one of a few products of the sizes.
"""

from typing import Any

import jax
import numpy as np

from ropejax.encodings import Dims, Encoding, FoPE

_MODELS = (
    Dims(num_heads=10, num_kv_heads=5, head_dim=44, embed_dim=106, causal=True),
    Dims(num_heads=14, num_kv_heads=7, head_dim=52, embed_dim=134, causal=True),
)
_AXES = {
    "N": lambda dims: dims.num_heads,
    "K": lambda dims: dims.num_kv_heads,
    "H": lambda dims: dims.head_dim,
    "D": lambda dims: dims.embed_dim,
    "H / 2": lambda dims: dims.head_dim // 2,
    "D + 1": lambda dims: dims.embed_dim + 1,
    "D / 8": lambda dims: dims.embed_dim // 8,
    "2 N": lambda dims: 2 * dims.num_heads,
    "N H": lambda dims: dims.num_heads * dims.head_dim,
    "K H": lambda dims: dims.num_kv_heads * dims.head_dim,
    "waves": lambda dims: len(FoPE().waves(dims.head_dim)),
}


def parameter_shapes(encoding: Encoding) -> dict[str, dict[str, str]]:
    """Returns "shared" and "layer", the shapes of parameters by their path.

    Raises:
        ValueError: if an axis is no product of sizes that is known here.
    """
    makers = {"shared": encoding.init_shared, "layer": encoding.init_layer}
    return {owner: _shapes(make) for owner, make in makers.items()}


def _shapes(make: Any) -> dict[str, str]:
    trees = [
        jax.eval_shape(lambda dims=dims: make(jax.random.key(0), dims))
        for dims in _MODELS
    ]
    leaves = [jax.tree_util.tree_leaves_with_path(tree) for tree in trees]
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (
            f"[{', '.join(map(_axis, one.shape, other.shape))}]"
        )
        for (path, one), (_, other) in zip(*leaves, strict=True)
    }


def _axis(*sizes: int) -> str:
    if len(set(sizes)) == 1:
        return str(sizes[0])
    for letters, size_of in _AXES.items():
        if np.array_equal(sizes, [size_of(dims) for dims in _MODELS]):
            return letters
    raise ValueError(
        f"an axis is {sizes[0]} for {_MODELS[0]} and {sizes[1]} for {_MODELS[1]}; add "
        "what it is to _AXES in experiments/catalogue/shapes.py."
    )
