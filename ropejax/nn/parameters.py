"""Encodings' parameters inside Flax modules, and the initializer of projections."""

import jax
from flax import nnx

from ropejax.typing import Params

projection_init = nnx.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
"""Truncated normal of variance 1 / fan-in, for every projection."""


def as_parameters(tree: Params) -> Params:
    """Wraps each array of a pytree into an `nnx.Param`, so that a module may own it."""
    return nnx.data(jax.tree.map(nnx.Param, tree))


def as_arrays(tree: Params) -> Params:
    """Returns the arrays of what `as_parameters` wrapped."""
    return jax.tree.map(
        lambda leaf: leaf[...], tree, is_leaf=lambda leaf: isinstance(leaf, nnx.Param)
    )
