"""Many pictures on one sheet, in rows, each with its own proportions."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

_GAP = 16
_WIDTH = 3600

Picture = Float[np.ndarray, "h w 3"]


def contact_sheet(pictures: Sequence[Picture], width: int = _WIDTH) -> Picture:
    """Returns pictures at half their size, in order, row by row, on white.

    Args:
        pictures: each with values in 0 .. 1.
        width: of the sheet, in pixels, where no picture is wider; a sheet whose
            pictures fill no row is as narrow as they are.
    """
    small = [_halved(picture) for picture in pictures]
    width = max(width, *(picture.shape[1] + 2 * _GAP for picture in small))
    rows: list[list[Picture]] = [[]]
    used = _GAP
    for picture in small:
        if rows[-1] and used + picture.shape[1] + _GAP > width:
            rows.append([])
            used = _GAP
        rows[-1].append(picture)
        used += picture.shape[1] + _GAP
    width = max(sum(x.shape[1] + _GAP for x in row) + _GAP for row in rows)
    heights = [max(picture.shape[0] for picture in row) for row in rows]
    sheet = np.ones((sum(heights) + _GAP * (len(rows) + 1), width, 3))
    top = _GAP
    for row, height in zip(rows, heights, strict=True):
        left = _GAP
        for picture in row:
            tall, wide = picture.shape[:2]
            sheet[top : top + tall, left : left + wide] = picture
            left += wide + _GAP
        top += height + _GAP
    return sheet


def _halved(picture: Picture) -> Picture:
    """Averages squares of four pixels; an odd last row or column is dropped."""
    tall, wide = (n // 2 * 2 for n in picture.shape[:2])
    return picture[:tall, :wide, :3].reshape(tall // 2, 2, wide // 2, 2, 3).mean((1, 3))
