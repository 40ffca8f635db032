"""HARD-ALiBi: a few heads see a few tokens back, and the others see everything.

It tells tokens apart by how far a head can look, not by a bias, so it is a mask of
`ropejax.masks` and belongs where masks go; the encoding beside it is "none".
"""

from ropejax.masks import Causal, PerHead, Window
from ropejax.whole_numbers import whole_number


def hard_alibi(num_heads: int, num_windowed: int) -> PerHead:
    """Returns the mask whose head h (from 0) sees h tokens back, for the first heads.

    `visible = i - h <= j <= i` for h < num_windowed; the other heads see all j <= i.

    Args:
        num_heads: number of query heads, N.
        num_windowed: how many of them have a window, m.

    Returns:
        A causal mask of N heads, for `attend(..., mask=...)`.

    Raises:
        ValueError: if there are more windows than heads, or none.

    References:
        Jelassi et al., 2024, arXiv:2402.01032; sjelassi/transformers_ssm_copy,
        `hard_alibi_model.py`, where m is 8 (as recorded; not read again).

    Departures:
        A mask in place of the most negative float, which the original adds twice.
    """
    num_heads = whole_number("num_heads", num_heads, least=1)
    num_windowed = whole_number("num_windowed", num_windowed, least=1)
    if num_windowed > num_heads:
        raise ValueError(
            f"num_windowed must not exceed {num_heads} heads, got {num_windowed}."
        )
    windows = tuple(Window(back) for back in range(num_windowed))
    return PerHead(windows + (Causal(),) * (num_heads - num_windowed))
