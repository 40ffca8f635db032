"""Checks that hold a position scheme to what models and training rely on."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.positions.base import Placement, PositionScheme
from ropejax.testing.described import check_described
from ropejax.testing.running import compiled

_LAYERS = 3


def check_positions(
    scheme: PositionScheme, *, num_tokens: int = 12, tokens: Any = None
) -> None:
    """Raises AssertionError if a position scheme breaks a promise.

    Checked are: it is described, frozen and hashable; it can be compiled, with lengths
    that are traced; a row's positions depend on its length alone, not on the padding
    and the lengths of other rows; rows of equal length are alike where `rows_differ`
    says so; another key changes nothing unless `random` says so; ids are below the
    bounds that it states, integers from 0; distances start at 0 and never decrease;
    arrays have the axes that `Placement` says.

    Args:
        scheme: an instance.
        num_tokens: the padded length.
        tokens: symbols `[4, num_tokens]` of a task, for schemes that read them; zeros
            if None.
    """
    check_described(scheme, "title", "summary")
    scheme.check(2 * num_tokens)
    check = _Check(scheme, num_tokens, tokens)
    lengths = [num_tokens, num_tokens // 2, num_tokens, 1]
    base = check.place(lengths)
    check.shapes(base, 4)
    check.ranges(base, lengths)
    other = [num_tokens, 2, num_tokens, num_tokens]
    check.same(
        base, check.place(other), [0, 2], num_tokens, "the lengths of other rows"
    )
    wide = check.place(lengths, 2 * num_tokens)
    for row, length in enumerate(lengths):
        check.same(base, wide, [row], length, "the padding")
    check.rows(base)
    check.keys(base, lengths)


@dataclasses.dataclass(frozen=True)
class _Check:
    """The checks of `check_positions`, which share compiled programs."""

    scheme: PositionScheme
    num_tokens: int
    symbols: Any

    def place(self, lengths: list[int], num_tokens: int | None = None, seed: int = 0):
        """Returns a placement on the host, compiled."""
        size = num_tokens or self.num_tokens
        symbols = jnp.zeros((len(lengths), size), jnp.int32)
        if self.symbols is not None:
            symbols = symbols.at[:, : self.num_tokens].set(self.symbols)
        made = _program(self.scheme, size)(
            jax.random.key(seed), jnp.asarray(lengths), symbols
        )
        return jax.tree.map(np.asarray, made)

    def shapes(self, placed: Placement, rows: int) -> None:
        size = self.num_tokens
        for name, array in _arrays(placed).items():
            layers = placed.per_layer and not name.startswith("stream")
            if layers and array.shape[0] != _LAYERS:
                self.fail(
                    f"{name} {array.shape} has no leading axis of {_LAYERS} layers"
                )
            shape = array.shape[layers:]
            if len(shape) < 2 or shape[0] not in (1, rows) or shape[1] != size:
                self.fail(f"{name} are {array.shape}, and must be [B or 1, P]: {size}")

    def ranges(self, placed: Placement, lengths: list[int]) -> None:
        streams = placed.streams or {}
        bounds = {"positions": self.scheme.position_bound(self.num_tokens)} | {
            f"stream {name}": self.scheme.stream_bound(name, self.num_tokens)
            for name in streams
        }
        for name, array in _arrays(placed).items():
            for row, length in enumerate(lengths):
                ids = _row(placed, name, array, row)[..., :length, :]
                low = 0 if np.issubdtype(ids.dtype, np.integer) else -np.inf
                high = np.inf if bounds.get(name) is None else bounds[name]
                if np.any((ids < low) | (ids >= high)):
                    self.fail(f"{name} of {length} tokens leave {low} .. {high} - 1")
                if name == "distances" and (
                    np.any(ids[..., 0, :]) or np.any(np.diff(ids, axis=-2) < 0)
                ):
                    self.fail("distances must start at 0 and never decrease")

    def same(
        self, one: Placement, two: Placement, rows, length: int, what: str
    ) -> None:
        """Rows of two placements, up to a length."""
        for (name, mine), theirs in zip(
            _arrays(one).items(), _arrays(two).values(), strict=True
        ):
            for row in rows:
                a, b = _row(one, name, mine, row), _row(two, name, theirs, row)
                if not np.array_equal(a[..., :length, :], b[..., :length, :]):
                    self.fail(f"{name} of a row of {length} tokens change with {what}")

    def rows(self, placed: Placement) -> None:
        if self.scheme.rows_differ:
            return
        for name, array in _arrays(placed).items():
            one, two = (_row(placed, name, array, row) for row in (0, 2))
            if not np.array_equal(one, two):
                self.fail(
                    f"{name} of two rows of one length differ, but rows_differ is False"
                )

    def keys(self, placed: Placement, lengths: list[int]) -> None:
        again = self.place(lengths, seed=1)
        differ = any(
            not np.array_equal(array, other)
            for array, other in zip(
                _arrays(placed).values(), _arrays(again).values(), strict=True
            )
        )
        if differ and not self.scheme.random:
            self.fail("another key places tokens elsewhere, but random is False")

    def fail(self, why: str) -> None:
        raise AssertionError(f"{self.scheme!r}: {why}.")


@functools.cache
def _program(scheme: PositionScheme, num_tokens: int):
    return compiled(
        lambda rng, lengths, symbols: scheme(
            rng, lengths, num_tokens=num_tokens, num_layers=_LAYERS, tokens=symbols
        )
    )


def _arrays(placed: Placement) -> dict[str, np.ndarray]:
    given = {"positions": placed.positions, "distances": placed.distances}
    given |= {f"stream {name}": ids for name, ids in (placed.streams or {}).items()}
    return {name: array for name, array in given.items() if array is not None}


def _row(placed: Placement, name: str, array: np.ndarray, row: int) -> np.ndarray:
    """One row's ids, `[layers, P, A]`."""
    layered = placed.per_layer and not name.startswith("stream")
    if not layered:
        array = array[None]
    if array.ndim == 3:
        array = array[..., None]
    return array[:, row if array.shape[1] > 1 else 0]
