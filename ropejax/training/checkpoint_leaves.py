"""The arrays of a training state by name: how they are told apart, and checked."""

import pathlib
import zlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from ropejax.training.step import TrainState

_FIXED = ("rng", "length_rng")
"""Leaves that are the same in every step of a run."""


class OtherStateError(Exception):
    """The checkpoint is whole, but of another model or optimizer."""


def leaves_of(state: TrainState) -> dict[str, jax.Array]:
    """Returns the arrays of a state by their path, such as `params/readout/kernel`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(state)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
    return {name(path): jnp.asarray(leaf) for path, leaf in paths}


def is_key(leaf: jax.Array) -> bool:
    """Returns True for PRNG keys."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def raw(leaf: jax.Array) -> jax.Array:
    """Returns numbers, also of keys."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def undo_raw(numbers: jax.Array, leaf: jax.Array) -> jax.Array:
    """Returns keys where `leaf` is one."""
    if is_key(leaf):
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
    return numbers


def describe(name: str, leaf: jax.Array) -> str:
    """Dtype and shape; of the state's keys their value, which only a seed changes.

    Keys that an optimizer holds (noise on gradients) change with every step.
    """
    if is_key(leaf) and name in _FIXED:
        return f"{leaf.dtype} {np.asarray(raw(leaf)).tolist()}"
    return f"{leaf.dtype}{list(leaf.shape)}"


def checksum(leaf: jax.Array) -> int | None:
    """CRC-32 of the bytes; None where other processes hold a part of them."""
    numbers = raw(leaf)
    if not (numbers.is_fully_addressable or numbers.is_fully_replicated):
        return None
    return zlib.crc32(np.ascontiguousarray(numbers).reshape(-1).view(np.uint8))


def sums(leaves: Mapping[str, jax.Array]) -> dict[str, int]:
    """Returns a checksum of each array, however it is spread over processes.

    All processes that hold parts must call it. The sum, modulo 2^32, of a one-to-one
    function of every element's bits and place: a single element that differs is seen.

    Args:
        leaves: arrays by name, keys as numbers.
    """
    return {name: int(one) for name, one in _sums(dict(leaves)).items()}


@jax.jit
def _sums(leaves: dict[str, jax.Array]) -> dict[str, UInt32[Array, ""]]:
    return jax.tree.map(_sum, leaves)


def _sum(x: jax.Array) -> UInt32[Array, ""]:
    width = jnp.dtype(x.dtype).itemsize
    if x.dtype == jnp.bool_:
        bits = x.astype(jnp.uint32)
    elif width > 4:  # float64: two words an element
        bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    else:
        whole = jnp.dtype(f"uint{8 * width}")
        bits = jax.lax.bitcast_convert_type(x, whole).astype(jnp.uint32)
    place = jnp.zeros(bits.shape, jnp.uint32)
    for axis, size in enumerate(bits.shape):
        along = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        place = place * jnp.uint32(size & 0xFFFFFFFF) + along
    mixed = (bits ^ place * jnp.uint32(0x9E3779B1)) * jnp.uint32(0x85EBCA6B)
    return jnp.sum(mixed ^ mixed >> 15, dtype=jnp.uint32)


def check_same(
    path: pathlib.Path, found: Mapping[str, str], wanted: Mapping[str, jax.Array]
) -> None:
    """Raises `OtherStateError` naming what differs, if anything does.

    Args:
        path: the checkpoint, for the message.
        found: descriptions of what it holds.
        wanted: the leaves that are to be read.
    """
    ours = {name: describe(name, leaf) for name, leaf in wanted.items()}
    lines = [
        f"{name}: {found.get(name, 'absent')} there, {ours.get(name, 'absent')} here"
        for name in sorted(found.keys() | ours.keys())
        if found.get(name) != ours.get(name)
    ]
    if lines:
        more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
        raise OtherStateError(
            f"the checkpoint {path} is of another model, optimizer or seed: "
            f"{'; '.join(lines[:5])}{more}. Use the config that it was trained with, "
            "or another workdir."
        )
