"""Positions of text with images and videos in it: one line of tokens, several axes.

Text token n is at (n, n, ...), so a row of text alone is as if there were one axis, and
a language model keeps what it knows. What differs between methods is where a picture's
patches go, and where the text goes on after it:

- M-RoPE counts patches from where the picture begins, and goes on behind its largest
  coordinate. A picture of h x w patches is worth max(h, w) tokens, and lies closer to
  the text after it than to the text before.
- RoPE-Tie spreads patches so that the picture is equally far from the text before and
  after, corner to corner.
- RoPE-TV keeps patches one apart, centres them on the diagonal between the two texts,
  and makes a picture worth as many tokens as it has patches.

Layouts are known before compilation: a layout is a sequence of `Text` and `Vision`.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Text(NamedTuple):
    """A run of text, `length` tokens."""

    length: int


class Vision(NamedTuple):
    """An image (one frame) or a video, in patches after any merging, row by row.

    Attributes:
        height: rows of patches.
        width: columns of patches.
        frames: how many of them follow one another.
        frame_step: how far apart frames are on the axis of time, in tokens; M-RoPE
            alone knows it. Qwen2.5-VL has tokens a second times seconds a frame, so
            that time passes alike in videos of any rate.
    """

    height: int
    width: int
    frames: int = 1
    frame_step: float = 1.0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Frames, height and width."""
        return self.frames, self.height, self.width


class Layout(NamedTuple):
    """Positions of a row, and the one at which text would go on (for decoding).

    Attributes:
        positions: `[1, L, A]`.
        next_position: position of the next text token, on every axis: behind all
            tokens of the row.
    """

    positions: Int[Array, "1 L A"] | Float[Array, "1 L A"]
    next_position: int


def mrope_positions(
    blocks: Sequence[Text | Vision], *, count_frames: bool = True
) -> Layout:
    """Returns M-RoPE's (time, row, column) of each token.

    A picture that begins at s has its patches at `s + (frame, row, column)`, all
    counted from 0; with a step, frame f of a video is at `s + floor(f frame_step)`.

    Args:
        blocks: the row's layout.
        count_frames: where text goes on after a picture that begins at s. True: behind
            its largest coordinate on any axis, `s + max(frames, height, width)`, as in
            the paper. False: at `s + max(height, width)`, as in transformers 5.24; a
            longer video then overlaps the text after it.

    Returns:
        A `Layout` with three axes, int32.

    Raises:
        ValueError: if a block is empty, or a step is negative.

    References:
        Wang et al. (2024), "Qwen2-VL", arXiv:2409.12191, section 2.1. Steps of time:
        Bai et al. (2025), "Qwen2.5-VL", arXiv:2502.13923; transformers 5.24,
        `Qwen2_5_VLModel.get_rope_index` (in float32, as here).
    """

    def place(start, picture):
        cells = np.stack(np.indices(picture.sizes), axis=-1).reshape(-1, 3)
        at = np.arange(picture.frames, dtype=np.float32) * np.float32(
            picture.frame_step
        )
        cells[:, 0] = np.floor(at).astype(np.int64)[cells[:, 0]]
        span = cells[:, slice(None) if count_frames else slice(1, None)].max() + 1
        return start + cells, start + int(span)

    return _lay_out(blocks, place, num_axes=3, dtype=jnp.int32)


def rope_tie_positions(
    blocks: Sequence[Text | Vision], *, integer: bool = True
) -> Layout:
    """Returns RoPE-Tie's (row, column) of each token.

    After text that ends at L, the patch in row x and column y of h x w, counted from 1,
    is at `(L + s x, L + t y)`, and text goes on at `L + s (h + 1) = L + t (w + 1)`.
    With integers, `s = w + 1` and `t = h + 1`; otherwise `s = (w h + 1) / (h + 1)` and
    `t = (w h + 1) / (w + 1)`, and a picture is worth as many tokens as it has patches.

    Args:
        blocks: the row's layout; images only. An image with no text before it follows
            on L, one less than where text would have gone on.
        integer: whole positions, or the real ones of equal worth.

    Returns:
        A `Layout` with two axes, int32 if integer, else float32.

    Raises:
        ValueError: if a block is empty or a video.

    References:
        Su (2024), spaces.ac.cn/archives/10040.
    """

    def place(start, picture):
        frames, height, width = _untimed(picture)
        if frames != 1:
            raise ValueError(
                f"RoPE-Tie places images, got a video of {frames} frames; use RoPE-TV."
            )
        cells = 1 + np.stack(np.indices((height, width)), axis=-1).reshape(-1, 2)
        span = (width + 1) * (height + 1) if integer else height * width + 1
        # In whole numbers where they are whole: span * x / (h + 1).
        steps = np.array([span / (height + 1), span / (width + 1)])
        return (start - 1) + cells * steps, (start - 1) + span

    dtype = jnp.int32 if integer else jnp.float32
    return _lay_out(blocks, place, num_axes=2, dtype=dtype)


def rope_tv_positions(blocks: Sequence[Text | Vision], *, num_axes: int = 2) -> Layout:
    """Returns RoPE-TV's (row, column) or (time, row, column) of each token.

    After text that ends at L, a picture of V patches has the patch of coordinate x
    along an axis of size d, counted from 1, at `L + (V - d) / 2 + x`; text goes on at
    `L + V + 1`.

    Args:
        blocks: the row's layout. A picture with no text before it follows on L, one
            less than where text would have gone on.
        num_axes: 2 for images only, or 3.

    Returns:
        A `Layout` with `num_axes` axes, float32 (halves occur).

    Raises:
        ValueError: if a block is empty, `num_axes` is neither 2 nor 3, or there is a
            video on two axes.

    References:
        Su (2024), spaces.ac.cn/archives/10352.
    """
    if num_axes not in {2, 3}:
        raise ValueError(f"num_axes must be 2 or 3, got {num_axes}.")

    def place(start, picture):
        sizes = _untimed(picture)
        if num_axes == 2 and sizes[0] != 1:
            raise ValueError(
                f"A video of {sizes[0]} frames needs num_axes=3, got num_axes=2."
            )
        sizes = sizes[3 - num_axes :]
        volume = math.prod(sizes)
        cells = 1 + np.stack(np.indices(sizes), axis=-1).reshape(-1, num_axes)
        return (start - 1) + (volume - np.array(sizes)) / 2 + cells, start + volume

    return _lay_out(blocks, place, num_axes=num_axes, dtype=jnp.float32)


def _lay_out(
    blocks: Sequence[Text | Vision],
    place: Callable[[int, Vision], tuple[np.ndarray, int]],
    *,
    num_axes: int,
    dtype,
) -> Layout:
    """Goes along a row; `place(start, picture)` gives coordinates and next start."""
    parts, start = [np.zeros((0, num_axes))], 0
    for block in blocks:
        text = isinstance(block, Text)
        if min(block if text else block.sizes) < 1:
            raise ValueError(f"Every size must be at least 1, got {block}.")
        if text:
            line = start + np.arange(block.length)
            parts.append(np.repeat(line[:, None], num_axes, axis=1))
            start += block.length
        else:
            if not 0 <= block.frame_step < math.inf:
                raise ValueError(
                    f"frame_step must be finite and at least 0, got {block}."
                )
            coordinates, start = place(start, block)
            parts.append(coordinates)
    positions = np.concatenate(parts)
    last = math.floor(positions.max(initial=-1))
    return Layout(jnp.asarray(positions[None], dtype), max(start, last + 1))


def _untimed(picture: Vision) -> tuple[int, int, int]:
    """The sizes of a picture whose frames are one apart."""
    if picture.frame_step != 1:
        raise ValueError(
            f"frame_step is for M-RoPE, got {picture}; leave it out, as frames are one "
            "apart here."
        )
    return picture.sizes
