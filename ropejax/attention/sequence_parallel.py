"""Attention whose sequence is spread over a mesh axis: ring, all-gather, all-to-all.

Inside `jax.shard_map`, each device passes its part of queries, keys and values, and the
Tokens of that part. Three forms give the same numbers:

    ring        keys and values go from neighbour to neighbour; memory of one part
    all_gather  keys and values are gathered on every device
    ulysses     every device gets whole sequences of some of the heads, and gives them
                back; heads must divide by the devices

Parts may be any tokens of the sequence, not only consecutive ones: `zigzag` balances
the work of a causal mask. Under `jax.jit`, outside `shard_map`, `attend` cuts whole
arrays itself (`ropejax.attention.spread`).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh
from jaxtyping import Array

from ropejax.attention import axes
from ropejax.attention.blockwise import blockwise
from ropejax.attention.choice import (
    FORMS,
    IMPLEMENTATIONS,
    block_sizes,
    check_name,
)
from ropejax.attention.dense import dense
from ropejax.attention.gather import gathered, gathered_tokens
from ropejax.attention.keys import ordered_for
from ropejax.attention.visibility import asked
from ropejax.settings import Settings
from ropejax.tokens import Tokens


@dataclasses.dataclass(frozen=True)
class SequenceParallel(Settings):
    """An engine for `attend(..., implementation=...)`: the sequence over a mesh axis.

    All but form and axis are for whole arrays, outside `jax.shard_map`, where `attend`
    cuts them.

    Attributes:
        form: "ring", "all_gather" or "ulysses".
        axis: mesh axis over which the sequence is spread; None if it is not, and only
            rows and heads are.
        batch_axes: mesh axes over which rows are spread.
        head_axis: mesh axis over which heads are spread, or None. Methods that mix
            heads, and masks that differ from head to head, leave it to the compiler.
        engine: which engine attends where sequences are whole (`axis=None`).
        mesh: the mesh to cut over; the one that is set (`jax.set_mesh`) if None.

    Raises:
        ValueError: if the form or the engine is unknown, a mesh axis has two uses, or
            the mesh is none.

    References:
        ring: Liu et al. 2023, arXiv 2310.01889; all-to-all: Jacobs et al. 2023,
        "DeepSpeed Ulysses", arXiv 2309.14509; zigzag: Zhu 2024, ring-flash-attention;
        all-gather: Llama Team 2024, arXiv 2407.21783, section 3.3.2.
    """

    form: str = "ring"
    axis: str | None = "sequence"
    batch_axes: tuple[str, ...] = ()
    head_axis: str | None = None
    engine: str = "auto"
    mesh: Mesh | AbstractMesh | None = None

    def __post_init__(self):
        check_name("form", self.form, FORMS)
        check_name("engine", self.engine, IMPLEMENTATIONS)
        if not isinstance(self.batch_axes, tuple):
            raise ValueError(
                f"batch_axes must be a tuple of names, got {self.batch_axes!r}."
            )
        used = (*self.batch_axes, self.axis, self.head_axis)
        for axis in used:
            if axis is not None and used.count(axis) > 1:
                raise ValueError(
                    "axis, head_axis and batch_axes must be different axes of the "
                    f"mesh, got {axis!r} twice."
                )
        if not isinstance(self.mesh, Mesh | AbstractMesh | None):
            raise ValueError(
                "mesh must be a jax.sharding.Mesh or AbstractMesh, or None for the one "
                f"that is set, got {self.mesh!r}."
            )


def attend_in_parts(
    how: SequenceParallel,
    q: Array,
    k: Array,
    v: Array,
    *,
    first: tuple[int | Array, int | Array] = (0, 0),
    in_order: bool = False,
    block_q: int | None = None,
    block_k: int | None = None,
    **common: Any,
):
    """Attends from this device's queries to the keys of all devices of the axis.

    Args:
        how: form and axis; the axis is manual here.
        q: this device's queries.
        k: this device's keys.
        v: this device's values.
        first: row and head of the whole batch with which these start: dropout.
        in_order: devices hold consecutive parts of the sequence.
        block_q: most queries in a block.
        block_k: most keys in a block.
        **common: as `dense` takes them.

    Raises:
        ValueError: if a method cannot be spread in this form, heads do not divide, or a
            table of distances is too short.
    """
    size = 1 if how.axis is None else jax.lax.axis_size(how.axis)
    num_rows = q.shape[0] * q.shape[2] // (size if how.form == "ulysses" else 1)
    sizes = block_sizes(common["mask"], block_q, block_k, max(num_rows, 1), q.shape[1])
    blocks = {"block_q": sizes[0], "block_k": sizes[1]}
    if how.axis is None:
        return _here(q, k, v, common, blocks, first)
    check_methods(how, common["encoding"], common["normalizer"])
    table, total = common["key"].distances, size * k.shape[1]
    if table is not None and table.shape[1] < total:
        raise ValueError(
            f"a table of {table.shape[1]} distances is too short for {total} tokens on "
            f"{size} devices; draw at least that many."
        )
    if common["params"] is None:
        query, key = (
            gathered_tokens(side.replace(features=None), how.axis)
            for side in _sides(common)
        )
        dims = axes.dims_of(q, k)
        common["params"] = common["encoding"].prepare({}, {}, query, key, dims)
    if how.form == "ring":
        return blockwise(q, k, v, **common, **blocks, first=first, around=how.axis)
    if how.form == "all_gather":
        k, v = gathered((k, v), how.axis)
        common["key"] = gathered_tokens(common["key"], how.axis, in_order=in_order)
        return _here(q, k, v, common, blocks, first)
    return _by_heads(how.axis, q, k, v, common, blocks, first, in_order)


def check_methods(how: SequenceParallel, encoding, normalizer) -> None:
    """Raises ValueError if the methods cannot be computed in this form."""
    methods = (
        (encoding, encoding.title),
        (normalizer, type(normalizer).__name__),
    )
    for method, name in methods:
        if how.form == "ring" and method.has_carry:
            raise ValueError(
                f"{name} carries a state from near keys to far ones, which cannot go "
                'around a ring; use SequenceParallel("all_gather").'
            )
    whole = needs_whole_rows(encoding, normalizer)
    mixing = [name for method, name in methods if method.mixes_heads]
    if whole and mixing:
        raise ValueError(
            f"{mixing[0]} needs whole rows of logits of all heads at once; use no "
            "sequence parallelism."
        )
    if whole and how.form != "ulysses":
        raise ValueError(
            f"{encoding.title} with {type(normalizer).__name__} needs whole rows of "
            f'logits, which {how.form!r} does not have; use SequenceParallel("ulysses")'
            " or no sequence parallelism."
        )
    if how.form == "ulysses" and mixing:
        raise ValueError(
            f"{mixing[0]} mixes heads, which 'ulysses' has on different devices; "
            'use SequenceParallel("ring").'
        )


def needs_whole_rows(encoding, normalizer) -> bool:
    """Returns True if no block of keys can be computed without the others."""
    return encoding.needs_whole_rows or not normalizer.blockwise


def _sides(common: dict[str, Any]) -> tuple[Tokens, Tokens]:
    return common["query"], common["key"]


def _here(q, k, v, common, blocks, first):
    """Attends with all keys on this device."""
    methods = (common["encoding"], common["normalizer"])
    k, v, key = ordered_for(methods, k, v, common["key"])
    common = common | {"key": key}
    if needs_whole_rows(common["encoding"], common["normalizer"]):
        return dense(q, k, v, **common, first=first)
    return blockwise(q, k, v, **common, **blocks, first=first)


def _by_heads(axis, q, k, v, common, blocks, first, in_order):
    """Whole sequences of some heads, and back."""
    size, mine = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    heads, kv_heads = q.shape[2], k.shape[2]
    for name, number in (("query", heads), ("key", kv_heads)):
        if number % size:
            raise ValueError(
                f"'ulysses' spreads heads over the {size} devices of the mesh axis "
                f"{axis!r}, which do not divide {number} {name} heads; use a multiple "
                f'of {size} heads, or SequenceParallel("ring").'
            )
    dims = axes.dims_of(q, k)
    query, key = _sides(common)
    whole = tuple(
        gathered_tokens(side.replace(features=None), axis, in_order=in_order)
        for side in (query, key)
    )
    _check_alike(common["mask"], *whole)

    def cut(x, at):
        if at == axes.NONE:
            return x
        part = x.shape[at] // size
        return jax.lax.dynamic_slice_in_dim(x, mine * part, part, axis=at)

    def exchanged(x, at):
        """From tokens apart to heads apart."""
        if at == axes.NONE:
            return gathered(x, axis)
        return jax.lax.all_to_all(x, axis, split_axis=at, concat_axis=1, tiled=True)

    encoding, params = common["encoding"], common["params"]
    at = axes.head_axes(encoding, params, *whole, dims)
    common["params"] = jax.tree.map(cut, params, at)
    at = axes.feature_head_axes(encoding, query, key, dims)
    features = tuple(
        jax.tree.map(exchanged, side.features, a)
        for side, a in zip((query, key), at, strict=True)
    )
    common["query"], common["key"] = (
        side.replace(features=f) for side, f in zip(whole, features, strict=True)
    )
    sinks = common["normalizer_params"]
    common["normalizer_params"] = jax.tree.map(lambda x: cut(x, 0), sinks)
    if jnp.ndim(common["scale"]) and common["scale"].shape[1] > 1:
        common["scale"] = cut(common["scale"], 1)
    if common["row_scale"] is not None:
        common["row_scale"] = _row_scale(common["row_scale"], axis, cut)
    q, k, v = (exchanged(x, 2) for x in (q, k, v))
    first = first[0], first[1] + mine * q.shape[2]
    got = _here(q, k, v, common, blocks, first)
    out, lse = got if common["return_lse"] else (got, None)
    back = {"axis_name": axis, "tiled": True}
    out = jax.lax.all_to_all(out, split_axis=1, concat_axis=2, **back)
    if lse is None:
        return out
    return out, jax.lax.all_to_all(lse, split_axis=2, concat_axis=1, **back)


def _row_scale(factor, axis, cut):
    if factor.shape[1] > 1:
        factor = gathered(factor, axis)
    return cut(factor, 2) if factor.shape[2] > 1 else factor


def differs_by_head(mask, query: Tokens, key: Tokens) -> bool:
    """Returns True if a mask is not the same for all heads."""
    if mask is None:
        return False
    shown = functools.partial(asked, mask)
    return jax.eval_shape(shown, *axes.shapes_of((query, key))).shape[1] > 1


def _check_alike(mask, query: Tokens, key: Tokens) -> None:
    if differs_by_head(mask, query, key):
        raise ValueError(
            f"the mask {mask} differs from head to head, which 'ulysses' has on "
            'different devices; use SequenceParallel("ring").'
        )
