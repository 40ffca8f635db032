"""What the optimizer's update computes, and what devices send each other for it.

Most optimizers look at numbers one by one, each on the device that holds it. Muon
multiplies whole matrices: a Newton-Schulz iteration of a momentum X `[m, n]`, m <= n,
makes `A = X X^T`, `A A` and `(b A + c A A) X`, which are `4 m^2 n + 2 m^3` operations.
Where rows of X are cut over devices, X is gathered for the first and the last of these
products, and A for the second; where columns are, parts of A are added up. Devices that
hold the same part all compute the same.
"""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import optax
from optax.contrib import MuonState

from experiments.plan.axes import gathered_shares, ring
from ropejax.operations import Operations, count_operations
from ropejax.sharding import Sharding
from ropejax.training import Recipe
from ropejax.training.muon import matrix_axes


class Matrices(NamedTuple):
    """A parameter that is one matrix a layer.

    Attributes:
        count: layers.
        rows: the shorter side, m.
        columns: the longer side, n.
        itemsize: bytes of a number.
        row_axes: mesh axes that cut the rows.
        column_axes: mesh axes that cut the columns.
    """

    count: int
    rows: int
    columns: int
    itemsize: int
    row_axes: tuple[str, ...] = ()
    column_axes: tuple[str, ...] = ()

    def products(self, row_parts: int = 1, column_parts: int = 1) -> float:
        """Operations of one iteration, of all layers, on one device.

        Where columns alone are cut, each device squares A in whole.
        """
        whole = 4 * self.rows**2 * self.columns / column_parts + 2 * self.rows**3
        return self.count * whole / row_parts


def update_operations(recipe: Recipe, sharding: Sharding | None) -> Operations:
    """Returns the operations of an update, of all devices together.

    Args:
        recipe: what is trained, and how.
        sharding: how it is spread over a mesh; None for one device.
    """
    counted = _counted(recipe.model, recipe.optimizer)
    if sharding is None:
        return counted
    params = _params(recipe.model)
    placed = sharding.parameters(recipe.model, params)
    whole = sum(x.size for x in jax.tree.leaves(params))
    held = sum(
        math.prod(where.shard_shape(leaf.shape))
        for leaf, where in zip(
            jax.tree.leaves(params), jax.tree.leaves(placed), strict=True
        )
    )
    products = counted.products
    if steps := _iterations(recipe):
        products = steps * sum(
            one.products(*_parts(one, sharding)) for one in _matrices(recipe, sharding)
        )
    devices = sharding.mesh.size
    return Operations(
        devices * products,
        devices * counted.elementwise * held / whole,
        counted.unbounded_loops,
    )


def update_sent(recipe: Recipe, sharding: Sharding) -> Iterator[tuple[str, float]]:
    """Yields mesh axes, each with bytes that a device sends over it for an update.

    Norms, a number each, are left out, and so is what an optimizer of one's own sends.

    Args:
        recipe: what is trained, and how.
        sharding: how it is spread over a mesh.
    """
    steps, sizes = _iterations(recipe), sharding.sizes
    for one in _matrices(recipe, sharding) if steps else ():
        times = steps * one.count * one.itemsize
        row_parts, column_parts = _parts(one, sharding)
        gathered = 2 * one.rows * one.columns / column_parts + one.rows**2
        for axis, share in gathered_shares(one.row_axes, sizes):
            yield axis, times * share * gathered / row_parts
        for axis in one.column_axes:
            yield axis, times * 2 * ring(sizes[axis]) * one.rows**2 / row_parts


def _iterations(recipe: Recipe) -> int:
    """Newton-Schulz iterations of an update; 0 unless the optimizer is our Muon."""
    optimizer = recipe.optimizer
    state = jax.eval_shape(optimizer.init, _params(recipe.model))
    is_muon = lambda node: isinstance(node, MuonState)
    if not any(map(is_muon, jax.tree.leaves(state, is_leaf=is_muon))):
        return 0
    once = sum(one.products() for one in _matrices(recipe, None))
    steps = _counted(recipe.model, optimizer).products / once if once else 0
    return int(steps) if steps == int(steps) else 0


@functools.lru_cache(maxsize=8)  # once for all buckets
def _counted(model, optimizer: optax.GradientTransformation) -> Operations:
    params = _params(model)
    state = jax.eval_shape(optimizer.init, params)
    update = optax.with_extra_args_support(optimizer).update
    return count_operations(
        lambda grads, state, params: update(grads, state, params, value=0.0),
        *(params, state, params),
    )


def _params(model):
    return jax.eval_shape(model.init, jax.random.key(0))


def _matrices(recipe: Recipe, sharding: Sharding | None) -> list[Matrices]:
    """What Muon makes orthogonal."""
    params = _params(recipe.model)
    flat = jax.tree_util.tree_leaves_with_path(params)
    specs = [()] * len(flat)
    if sharding is not None:
        placed = jax.tree.leaves(sharding.parameters(recipe.model, params))
        specs = [tuple(where.spec) for where in placed]
    found = []
    for (path, leaf), spec in zip(flat, specs, strict=True):
        if axes := matrix_axes(path, leaf):
            found.append(_matrix(leaf, axes, spec + (None,) * (leaf.ndim - len(spec))))
    return found


def _matrix(leaf, axes, spec) -> Matrices:
    sides = []
    for side in axes:
        named = [spec[axis] for axis in side if spec[axis] is not None]
        cut = [axis for one in named for axis in ([one] if type(one) is str else one)]
        sides.append((math.prod(leaf.shape[axis] for axis in side), tuple(cut)))
    (rows, row_axes), (columns, column_axes) = sorted(sides, key=lambda side: side[0])
    return Matrices(
        leaf.size // (rows * columns),
        *(rows, columns, leaf.dtype.itemsize),
        *(row_axes, column_axes),
    )


def _parts(one: Matrices, sharding: Sharding) -> list[int]:
    """Into how many parts rows and columns are cut."""
    return [
        math.prod(sharding.sizes[axis] for axis in axes)
        for axes in (one.row_axes, one.column_axes)
    ]
