"""Passes through layers that are compiled once, where nobody compiled around them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

_ARRAY = object()


def compiled_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a module's method, once for all modules alike and shapes alike.

    A pass is a `lax.scan` over a function that is made in each call. JAX knows programs
    by their functions, so a model that is called without `jax.jit`, as in a notebook,
    would be compiled in every call. Where anything is traced, the method is called as
    it is: what compiles, maps or differentiates it comes from outside.

    Args:
        method: takes the module and pytrees in their order; what is no array in them is
            hashable, and a program of its own for each value.
    """

    @functools.wraps(method)
    def call(module: nnx.Module, *args: Any) -> Any:
        graph, params = nnx.split(module)
        leaves, structure = jax.tree.flatten((params, args))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return method(module, *args)
        arrays = [leaf for leaf in leaves if _is_array(leaf)]
        rest = tuple(_ARRAY if _is_array(leaf) else leaf for leaf in leaves)
        return _run(method, graph, structure, rest, arrays)

    return call


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run(method, graph, structure, rest, arrays):
    arrays = iter(arrays)
    leaves = [next(arrays) if leaf is _ARRAY else leaf for leaf in rest]
    params, args = jax.tree.unflatten(structure, leaves)
    return method(nnx.merge(graph, params), *args)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)
