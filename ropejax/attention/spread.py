"""Attention from whole arrays on a mesh: under `jax.jit`, cut by hand.

Left to the compiler, rows and heads that are spread over devices would make it add up
gradients of an encoding's parameters in every block; and it cannot cut a kernel. So
rows, heads and tokens are cut here, each device computes its own part by an engine for
one device, or by a form of sequence parallelism, and sums over devices are taken once.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from ropejax.attention import axes
from ropejax.attention.sequence_parallel import (
    SequenceParallel,
    attend_in_parts,
    check_methods,
    differs_by_head,
)
from ropejax.tokens import Tokens


def attend_spread(
    attend: Callable,
    how: SequenceParallel,
    q: Array,
    k: Array,
    v: Array,
    *,
    first_row: int | Array = 0,
    **common: Any,
):
    """Attends on a mesh, whether arrays are a device's parts or whole.

    Args:
        attend: what attends on one device, `ropejax.attention.attend`.
        how: form and axes.
        q: queries, `[B, T, N, H]`: this device's, inside `jax.shard_map` over the axis,
            otherwise all of them.
        k: keys.
        v: values.
        first_row: row of the whole batch with which q starts: dropout.
        **common: further arguments of `dense`, and the sizes of blocks.

    Raises:
        ValueError: if there is no such mesh axis, or sizes do not divide over it.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if how.axis in mesh.manual_axes:
        return attend_in_parts(how, q, k, v, first=(first_row, 0), **common)
    mesh = mesh if how.mesh is None else how.mesh
    if how.axis is not None:
        check_methods(how, common["encoding"], common["normalizer"])
    _check_mesh(how, mesh, q.shape, k.shape)
    if common["params"] is None:
        prepare, dims = common["encoding"].prepare, axes.dims_of(q, k)
        common["params"] = prepare({}, {}, common["query"], common["key"], dims)
    return _cut(attend, how, q, k, v, **common, first_row=first_row)


class _Cuts(NamedTuple):
    """Mesh axes over which rows, tokens and heads are cut, or None."""

    rows: tuple[str, ...] | None
    length: str | None
    heads: str | None

    def of(self, x: Array, *, tokens: bool = True, heads: int = axes.NONE) -> P:
        """Cuts an array `[B or 1, L or 1, ...]`, perhaps with an axis of heads."""
        cut: list = [None] * x.ndim
        if x.shape[0] > 1:
            cut[0] = self.rows
        if tokens and x.shape[1] > 1:
            cut[1] = self.length
        if heads != axes.NONE and x.shape[heads] > 1:
            cut[heads] = self.heads
        return P(*cut)

    @property
    def manual(self) -> set[str]:
        return {*(self.rows or ()), self.length, self.heads} - {None}


def _cut(attend, how, q, k, v, *, query: Tokens, key: Tokens, params, **common):
    encoding, mask = common["encoding"], common["mask"]
    mixing = encoding.mixes_heads or common["normalizer"].mixes_heads
    apart = not (mixing or differs_by_head(mask, query, key))
    cuts = _Cuts(how.batch_axes or None, how.axis, how.head_axis if apart else None)
    arrays = {
        name: common.pop(name)
        for name in ("scale", "row_scale", "normalizer_params", "seed", "first_row")
        if common[name] is not None and not isinstance(common[name], float | int)
    }
    of_arrays = jax.tree.map(lambda _: P(), arrays)
    if jax.numpy.ndim(arrays.get("scale", 0)):
        of_arrays["scale"] = cuts.of(arrays["scale"], tokens=False, heads=1)
    if "row_scale" in arrays:
        of_arrays["row_scale"] = cuts.of(arrays["row_scale"], heads=2)
    if "normalizer_params" in arrays:
        one = lambda _: P(cuts.heads)
        of_arrays["normalizer_params"] = jax.tree.map(one, arrays["normalizer_params"])

    def parts(q, k, v, query, key, params, arrays):
        row, head = _first(how.batch_axes), 0
        if cuts.heads is not None:
            head = jax.lax.axis_index(cuts.heads) * q.shape[2]
        whole = common | arrays | {"query": query, "key": key, "params": params}
        first = {"first": (row * q.shape[0] + whole.pop("first_row"), head)}
        if how.axis is None:
            return _on_one_device(attend, how, q, k, v, whole, first)
        return attend_in_parts(how, q, k, v, **whole, **first, in_order=True)

    if not cuts.manual:
        return parts(q, k, v, query, key, params, arrays)
    of_q = P(*cuts)
    of_tokens = _token_specs(cuts, encoding, query, key, axes.dims_of(q, k))
    of_params = _parameter_specs(cuts, encoding, params, query, key, q, k)
    of_lse = P(cuts.rows, cuts.heads, cuts.length)
    return jax.shard_map(
        parts,
        mesh=how.mesh,
        in_specs=(of_q, of_q, of_q, *of_tokens, of_params, of_arrays),
        out_specs=(of_q, of_lse) if common["return_lse"] else of_q,
        axis_names=cuts.manual,
    )(q, k, v, query, key, params, arrays)


def _on_one_device(attend, how, q, k, v, whole, first):
    """Rows and heads of whole sequences: any engine, which drops no weights."""
    if whole["seed"] is not None:
        return attend_in_parts(how, q, k, v, **whole, **first)
    rest = {n: x for n, x in whole.items() if n not in {"seed", "dropout_rate"}}
    return attend(q, k, v, **rest, implementation=how.engine)


def _token_specs(cuts: _Cuts, encoding, query: Tokens, key: Tokens, dims):
    """How the Tokens of both sides are cut, features included."""
    sides = (query, key)
    features = tuple(jax.tree.map(lambda _: axes.NONE, s.features) for s in sides)
    if cuts.heads is not None and jax.tree.leaves((query.features, key.features)):
        features = axes.feature_head_axes(encoding, query, key, dims)
    made = []
    for side, at in zip(sides, features, strict=True):
        specs = jax.tree.map(cuts.of, side.replace(features=None, distances=None))
        of_features = jax.tree.map(lambda x, a: cuts.of(x, heads=a), side.features, at)
        table = side.distances
        if table is not None:
            table = cuts.of(table, tokens=False)
        made.append(specs.replace(features=of_features, distances=table))
    return made


def _parameter_specs(cuts: _Cuts, encoding, params, query, key, q, k):
    """How prepared parameters are cut: some have rows, some have heads."""
    bare = query.replace(features=None), key.replace(features=None)
    nowhere = jax.tree.map(lambda _: axes.NONE, params)
    rows, heads, dims = nowhere, nowhere, axes.dims_of(q, k)
    if cuts.rows and any(x.shape[0] > 1 for x in jax.tree.leaves(bare)):
        rows = axes.row_axes(encoding, params, *bare, dims)
    if cuts.heads is not None:
        heads = axes.head_axes(encoding, params, *bare, dims)

    def spec(x, row, head):
        cut = [None] * x.ndim
        if row != axes.NONE:
            cut[row] = cuts.rows
        if head != axes.NONE:
            cut[head] = cuts.heads
        return P(*cut)

    return jax.tree.map(spec, params, rows, heads)


def _first(batch_axes: tuple[str, ...]):
    """Which part of the rows this device has."""
    part = 0
    for axis in batch_axes:
        part = part * jax.lax.axis_size(axis) + jax.lax.axis_index(axis)
    return part


def _check_mesh(how: SequenceParallel, mesh, q_shape, k_shape) -> None:
    sizes = dict(mesh.shape)
    own = (how.axis, how.head_axis)
    for axis in (*(axis for axis in own if axis is not None), *how.batch_axes):
        if axis not in sizes:
            there = f"has the axes {', '.join(sizes)}" if sizes else "is not set"
            raise ValueError(
                f"attention is to be spread over the mesh axis {axis!r}, but the mesh "
                f"{there}; call under jax.set_mesh(mesh) of a mesh that has it, or "
                "inside jax.shard_map over it."
            )
    rows = math.prod(sizes[axis] for axis in how.batch_axes)
    length, heads = (sizes.get(axis, 1) for axis in own)
    for what, number, parts in (
        ("rows", q_shape[0], rows),
        ("queries", q_shape[1], length),
        ("keys", k_shape[1], length),
        ("query heads", q_shape[2], heads),
        ("key heads", k_shape[2], heads),
    ):
        if number % parts:
            low = number // parts * parts
            near = f"{low} or {low + parts}" if low else f"{parts}"
            raise ValueError(
                f"{number} {what} do not divide over {parts} devices of the mesh; "
                f"the nearest sizes that do are {near}."
            )
