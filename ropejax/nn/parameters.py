"""Parameters: those of encodings inside Flax modules, initializers, and their names."""

import jax
import numpy as np
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


def check_fit(
    params: Params,
    wanted: Params,
    what: str = "the parameters",
    *,
    allow_new: bool = False,
) -> None:
    """Raises ValueError unless names, shapes and dtypes are alike, saying which not.

    Args:
        params: arrays, or their shapes and dtypes.
        wanted: likewise.
        what: what the message calls the first ones.
        allow_new: whether some that are wanted may be absent.
    """
    there, here = (
        {name: _described(leaf) for name, leaf in named(tree).items()}
        for tree in (params, wanted)
    )
    lines = [
        f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} here"
        for name in sorted(there.keys() | (set() if allow_new else here.keys()))
        if there.get(name) != here.get(name)
    ]
    if lines:
        more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
        remedy = "Sizes, layers, alphabets, whatever has parameters, must be the same."
        if hasattr(params, "params"):
            remedy = "A whole state was given; give its params."
        raise ValueError(
            f"{what} are not those of this model: {'; '.join(lines[:5])}{more}. "
            f"{remedy}"
        )


def named(params: Params) -> dict[str, jax.Array]:
    """Returns the arrays of a tree by their path, such as `readout/kernel`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(params)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
    return {name(path): leaf for path, leaf in paths}


def _described(leaf) -> str:
    leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    dtype = leaf.dtype
    if not jax.dtypes.issubdtype(dtype, jax.dtypes.extended):  # as keys are
        dtype = jax.dtypes.canonicalize_dtype(dtype)  # of numpy's 64 bits, JAX's own
    return f"{dtype}{list(leaf.shape)}"
