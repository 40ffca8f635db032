"""Storing a sequence in an order in which a causal mask gives devices equal work.

Cut into consecutive parts, the last part's queries see all keys and the first part's
almost none. In zigzag order the sequence is cut into twice as many pieces as devices,
and device d holds pieces d and 2n - 1 - d: every device sees as many pairs. Tokens
carry their index and positions by value, so nothing else needs to know.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


def zigzag_order(length: int, devices: int) -> Int[np.ndarray, " L"]:
    """Returns the token that each place holds: pieces 0, 2n-1, 1, 2n-2, ...

    Args:
        length: number of tokens, a multiple of twice the devices.
        devices: n, over which the sequence is spread.

    Raises:
        ValueError: if the length does not divide.
    """
    if devices < 1:
        raise ValueError(f"devices must be at least 1, got {devices}.")
    pieces = 2 * devices
    if length % pieces:
        low = length // pieces * pieces
        near = f"{low} or {low + pieces}" if low else f"{pieces}"
        raise ValueError(
            f"zigzag order cuts {length} tokens into {pieces} pieces, two a device; "
            f"the nearest lengths that divide are {near}."
        )
    order = np.arange(length).reshape(pieces, -1)
    first = np.arange(devices)
    return order[np.stack([first, pieces - 1 - first], axis=1).ravel()].ravel()


def to_zigzag(tree: Any, devices: int, *, axis: int = 1) -> Any:
    """Returns every array with its tokens in zigzag order.

    Args:
        tree: arrays; Tokens go by `Tokens.permuted(zigzag_order(...))`.
        devices: over which the sequence is spread.
        axis: of the tokens.
    """

    def moved(x: Array) -> Array:
        return jnp.take(x, zigzag_order(x.shape[axis], devices), axis=axis)

    return jax.tree.map(moved, tree)


def from_zigzag(tree: Any, devices: int, *, axis: int = 1) -> Any:
    """Undoes `to_zigzag`."""

    def moved(x: Array) -> Array:
        order = np.argsort(zigzag_order(x.shape[axis], devices))
        return jnp.take(x, order, axis=axis)

    return jax.tree.map(moved, tree)
