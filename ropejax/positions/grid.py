"""Grid positions: one coordinate an axis, for images and other arrays of patches."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ropejax.whole_numbers import whole_number


def grid_positions(*sizes: int, merge: int = 1) -> Int[Array, "1 L A"]:
    """Returns the coordinates of every cell of a grid, the last axis fastest.

    Args:
        *sizes: cells along each axis: `height, width`, or `frames, height, width`.
        merge: order cells by `merge` x `merge` blocks of the last two axes, as vision
            encoders that later merge each block into one token store them; 1 for plain
            rows.

    Returns:
        Coordinates from 0, `[1, L, A]`, int32, L the number of cells.

    Raises:
        ValueError: if a size is below 1, or `merge` does not divide the last two.
    """
    if not sizes:
        raise ValueError("sizes must say how many cells there are along each axis.")
    sizes = tuple(whole_number("sizes", size, least=1) for size in sizes)
    merge = whole_number("merge", merge, least=1)
    cells = np.stack(np.indices(sizes), axis=-1)
    if merge != 1:
        if len(sizes) < 2 or sizes[-2] % merge or sizes[-1] % merge:
            raise ValueError(
                f"merge={merge} must divide the last two of sizes={sizes}; pad the "
                "image or use merge=1."
            )
        *outer, height, width = sizes
        blocks = cells.reshape(
            *outer, height // merge, merge, width // merge, merge, len(sizes)
        )
        cells = np.swapaxes(blocks, -4, -3)
    cells = cells.reshape(1, math.prod(sizes), len(sizes))
    return jnp.asarray(cells, jnp.int32)


def patch_centres(*sizes: int) -> Float[Array, "1 L A"]:
    """Returns the centres of a grid's cells, every axis scaled to -1 .. 1.

    `2 (i + 1/2) / size - 1` along each axis, so that positions do not depend on the
    resolution (DINOv3 rotates by 2 pi times these).

    Args:
        *sizes: cells along each axis.

    Returns:
        Coordinates `[1, L, A]`, float32, the last axis fastest.

    Raises:
        ValueError: if a size is below 1.

    References:
        Simeoni et al. (2025), "DINOv3", arXiv:2508.10104.
    """
    cells = grid_positions(*sizes).astype(jnp.float32)
    return 2 * (cells + 0.5) / jnp.asarray(sizes, jnp.float32)[None, None] - 1
