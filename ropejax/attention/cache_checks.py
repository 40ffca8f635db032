"""What a key/value cache refuses before anything is compiled.

A chunk that the cache would have to stretch, cut or cast would leave zeros among the
keys, or other numbers than were given, and no one would see it.
"""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.attention.checks import check_heads, check_keys_and_values
from ropejax.attention.visibility import check_part
from ropejax.concrete import known_values
from ropejax.number_types import check_places
from ropejax.tokens import Tokens


def check_sizes(capacity: Any, sinks: Any) -> None:
    """Raises ValueError unless a cache can have this capacity and so many sinks."""
    if not _is_whole(capacity) or capacity < 1:
        raise ValueError(f"capacity must be positive, got {capacity!r}; an integer.")
    if sinks is not None and not (_is_whole(sinks) and 0 <= sinks < capacity):
        raise ValueError(
            f"sinks must be in 0 .. capacity - 1 = {capacity - 1}, got {sinks!r}; an "
            "integer, or None for a cache that does not roll."
        )


def check_chunk(k: Any, v: Any, key: Any, *, together: bool) -> None:
    """Raises ValueError unless keys, values and Tokens are those of a chunk.

    Args:
        k: keys, `[B, S, K, H]`, or their shape and dtype.
        v: values, likewise.
        key: where they are.
        together: True if `key` must be of the very tokens of `k`.
    """
    check_heads(k=k, v=v)
    check_keys_and_values(k, v)
    if not isinstance(key, Tokens):
        raise ValueError(
            "key must say where the keys are, as ropejax.tokens.tokens(length, "
            f"offset=count) does, got {type(key).__name__}."
        )
    if key.distances is not None:
        raise ValueError(
            "a cache takes positions, not a table of distances; give the table when "
            "attending, with cache.key.replace(distances=...)."
        )
    if together and k.shape[1] != key.length:
        raise ValueError(f"k holds {k.shape[1]} tokens, but its Tokens {key.length}.")
    for name, leaf in _parts(key):
        check_part(f"{name} of key", leaf, key.length)
        if leaf.shape[0] not in {1, k.shape[0]}:
            raise ValueError(
                f"{name} of key must have 1 or {k.shape[0]} rows, got shape "
                f"{leaf.shape}."
            )
    if not isinstance(key.positions, jax.ShapeDtypeStruct):
        check_places("positions of key", key.positions)


def check_alike(held: dict[str, Any], chunk: dict[str, Any]) -> None:
    """Raises ValueError unless a chunk's arrays go beside those that the cache holds.

    Args:
        held: the cache's pytrees, by name.
        chunk: the chunk's, by the same names.
    """
    for name in held:
        structures = [jax.tree.structure(x[name]) for x in (held, chunk)]
        if structures[0] != structures[1]:
            empty = [not jax.tree.leaves(x[name]) for x in (held, chunk)]
            how = f"with {name} of another structure than the chunks before"
            if any(empty):
                how = "which the chunks before " + ("lack" if empty[0] else "have")
                how = f"{'without' if empty[1] else 'with'} {name}, {how}"
            raise ValueError(
                f"chunks must look alike: this one comes {how}; give {name} with every "
                "chunk, the one of Cache.empty included, or with none."
            )
    for (name, old), (_, new) in zip(_leaves(held), _leaves(chunk), strict=True):
        _check_leaf(name, old, new)


def check_state(held: Any, state: Any, count: Any) -> None:
    """Raises ValueError if an encoding's state breaks off, or changes its shape.

    Args:
        held: the state after the chunks before.
        state: the state after this one.
        count: tokens in the cache.
    """
    seen = known_values(count)
    first = seen is None or seen == 0
    if held is None and (first or state is None):
        return
    alike = jax.tree.structure(held) == jax.tree.structure(state) and all(
        jnp.shape(a) == jnp.shape(b)
        for a, b in zip(jax.tree.leaves(held), jax.tree.leaves(state), strict=True)
    )
    if not alike:
        shapes = [jax.tree.map(jnp.shape, x) for x in (held, state)]
        raise ValueError(
            "state must be what key_features(..., cache.state) returned along with "
            f"these keys, of shape {shapes[0]} as after the chunks before, got "
            f"{shapes[1]}."
        )


def check_new_order(held: Tokens, key: Tokens, rolls: bool) -> None:
    """Raises ValueError if tokens are known to be in the cache already.

    Args:
        held: the cache's tokens.
        key: the chunk's.
        rolls: True for a rolling cache, which counts what it keeps by slots.
    """
    valid = known_values(key.valid) if key.valid is not None else np.bool_(True)
    if rolls and valid is not None and not valid.all():
        raise ValueError(
            "a rolling cache counts every token, padding too; leave padding out "
            "(valid must be True)."
        )
    arrays = (held.index, held.valid, key.index, held.segments, key.segments)
    known = [x if x is None else known_values(x) for x in arrays]
    if valid is None or any(
        a is not None and b is None for a, b in zip(arrays, known, strict=True)
    ):
        return
    old, filled, new, old_segments, new_segments = known
    if not filled.any():
        return
    old, new = _tags(old, old_segments), _tags(new, new_segments)
    rows = max(len(x) for x in (old, filled, new))
    old, filled = (np.broadcast_to(x, (rows, x.shape[1])) for x in (old, filled))
    new = np.broadcast_to(new, (rows, new.shape[1]))
    there = [np.isin(new[at], old[at][filled[at]]) for at in range(rows)]
    again = np.stack(there) & valid
    if again.any():
        which = new[again][0] % 2**32
        raise ValueError(
            f"the token of index {which} is in the cache already; say where the chunk "
            "goes on, such as with tokens(length, offset=cache.count)."
        )


def check_rows(rows: Any, batch: int) -> None:
    """Raises ValueError unless these are rows of a batch, as far as they are known."""
    dtype = getattr(rows, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.integer) or rows.ndim != 1:
        got = rows if dtype is None else f"{dtype} {list(rows.shape)}"
        raise ValueError(f"rows must be an array of integers on one axis, got {got}.")
    known = known_values(rows)
    if known is None or not known.size:
        return
    if known.min() < 0 or known.max() >= batch:
        raise ValueError(
            f"rows must be in 0 .. {batch - 1}, the rows of the cache, got "
            f"{known.min()} .. {known.max()}."
        )


def _tags(index: np.ndarray, segments: np.ndarray | None) -> np.ndarray:
    """A number for each pair of index and segment."""
    wide = index.astype(np.int64)
    return wide if segments is None else wide + (segments.astype(np.int64) << 32)


def _is_whole(number: Any) -> bool:
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)


def _parts(key: Tokens) -> list[tuple[str, Any]]:
    """Arrays of Tokens with the names of what they belong to."""
    return _leaves(key.per_token())


def _leaves(arrays: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, leaf) for name in arrays for leaf in jax.tree.leaves(arrays[name])]


def _check_leaf(name: str, old: Any, new: Any) -> None:
    alike = len(new.shape) == len(old.shape) and new.shape[2:] == old.shape[2:]
    if not alike or new.shape[0] not in {1, old.shape[0]}:
        rows = "1" if old.shape[0] == 1 else f"1 or {old.shape[0]}"
        wanted = ", ".join(map(str, (rows, "length", *old.shape[2:])))
        remedy = ""
        if old.shape[0] == 1 and new.shape[2:] == old.shape[2:]:
            remedy = (
                f"; rows that differ later must do so from the start: give Cache.empty "
                f"{new.shape[0]} rows of {name}, by jnp.broadcast_to"
            )
        raise ValueError(
            f"chunks must look alike: {name} must be [{wanted}] as in the cache, got "
            f"{tuple(new.shape)}{remedy}."
        )
    if new.dtype != old.dtype:
        raise ValueError(
            f"chunks must look alike: {name} is {old.dtype} in the cache, got "
            f"{new.dtype}; cast it with astype({old.dtype})."
        )
