"""Checks that hold a mask to what engines rely on."""

import numpy as np

from ropejax.masks import Mask
from ropejax.testing.described import check_described
from ropejax.testing.running import compiled
from ropejax.tokens import Tokens, tokens


def check_mask(mask: Mask, where: Tokens | None = None) -> None:
    """Raises AssertionError if a mask breaks a promise; the message says which.

    Checked are: it is frozen and hashable; it returns booleans `[B, N, T, S]`; a pair
    is visible or not by the indices of its tokens alone, wherever they are stored and
    whatever is beside them; `blocks` says that no pair is visible, or that all are,
    only where that is so, of blocks of any sizes; every query sees itself, in some
    head, if `shows_itself` says so; and compiled it is the same.

    Args:
        mask: an instance.
        where: the tokens that it is tried on, with indices 0 to L - 1 in order; 48 if
            None. Take more than what the mask counts in (windows, chunks).
    """
    where = tokens(48) if where is None else where
    name = repr(mask)
    check_described(mask)
    length = where.length
    whole = np.asarray(mask(where, where))
    if whole.dtype != bool:
        raise AssertionError(f"{name} returns {whole.dtype}, not booleans.")
    if whole.ndim != 4 or whole.shape[2:] != (length, length):
        wanted = f"[1 or rows, 1 or heads, {length}, {length}]"
        raise AssertionError(f"{name} returns {list(whole.shape)}, not {wanted}.")
    _check_compiled(mask, where, whole, name)
    _check_places(mask, where, whole, name)
    _check_blocks(mask, whole, name)
    itself = np.diagonal(whole, axis1=2, axis2=3).any(axis=1)
    if mask.shows_itself and not itself.all():
        raise AssertionError(f"{name} shows_itself, but hides a query's own key.")


def _check_compiled(mask, where, whole, name) -> None:
    if (np.asarray(compiled(mask)(where, where)) != whole).any():
        raise AssertionError(f"{name} shows other pairs when it is compiled.")


def _check_places(mask, where, whole, name) -> None:
    """Checks some of the queries against some of the keys, in another order."""
    draw = np.random.default_rng(0)
    program = compiled(mask)
    for size in (1, where.length // 2):
        rows, columns = (draw.permutation(where.length)[:size] for _ in range(2))
        part = np.asarray(program(where.permuted(rows), where.permuted(columns)))
        if (part != whole[..., rows, :][..., columns]).any():
            raise AssertionError(
                f"{name} goes by where tokens are stored, or what is beside them; it "
                "must go by query.index and key.index."
            )


def _check_blocks(mask, whole, name) -> None:
    """Checks what is certain of blocks, against the pairs in them."""
    length = whole.shape[-1]
    shown = whole.reshape(-1, length, length)
    draw = np.random.default_rng(1)
    ends = np.sort(draw.integers(0, length, (4096, 2, 2)), axis=-1)
    ends[::2, :, 0] = ends[::2, :, 1]  # single pairs
    some, every = (
        np.broadcast_to(np.asarray(one), len(ends))
        for one in mask.blocks(
            *np.moveaxis(ends.astype(np.int32), 0, -1).reshape(4, -1)
        )
    )
    for (rows, columns), may, must in zip(ends, some, every, strict=True):
        block = shown[:, rows[0] : rows[1] + 1, columns[0] : columns[1] + 1]
        of = f"queries {rows[0]} to {rows[1]} and keys {columns[0]} to {columns[1]}"
        if block.any() and not may:
            raise AssertionError(f"{name}.blocks says that no pair of {of} is visible.")
        if not block.all() and must:
            raise AssertionError(f"{name}.blocks says that all pairs of {of} are.")
