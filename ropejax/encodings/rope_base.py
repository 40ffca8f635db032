"""How large RoPE's base must be, and RoPE as the digits of a number.

Two views of the same frequencies: a model that should tell similar keys from others at
any distance below a length needs a base above some bound; and a position's rotations
are the digits of its number, written with waves.
"""

import math
import numbers

import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ropejax.encodings.choices import positive

_PRECISION = 1e-6


def smallest_base(length: int, width: int = 128, step: float = 1.001) -> float:
    """Returns the smallest base that keeps similar keys ahead at all distances.

    `inf {b : sum_r cos(m b ** (-2 r / width)) >= 0 for all 0 <= m < length}`. Where the
    sum is negative, a key like the query gets on average a lower logit than a random
    one.

    The set is not an interval, so bisection over all bases would be wrong: bases are
    tried in steps, from 1 up, and only the last step is bisected. The sum of a width of
    4 or more has a base for every length: as the base grows it tends to
    `cos(m) + width / 2 - 1`, which is above zero.

    Args:
        length: distances below it count, in tokens.
        width: rotated width of a head, even.
        step: ratio of one base tried to the one before; admissible sets narrower than
            this may be missed.

    Returns:
        The base, to 1e-6 of its value; 1 if that will do.

    Raises:
        ValueError: if the width is odd, length or step leave nothing to search, or no
            base will do (a width of 2 and more than two tokens).

    References:
        Su (2024), spaces.ac.cn/archives/10122; Men et al. (2024), arXiv:2405.14591.
    """
    positive(length=length)
    for name, number in (("length", length), ("width", width)):
        if not isinstance(number, numbers.Integral) or isinstance(number, bool):
            raise ValueError(f"{name} must be a whole number, got {number!r}.")
    if width < 2 or width % 2 or not 1 + _PRECISION <= step < math.inf:
        raise ValueError(
            f"need an even width and a finite step of at least {1 + _PRECISION}: "
            f"{width=}, {step=}."
        )
    if width == 2 and length > 2:
        raise ValueError(
            f"no base keeps similar keys ahead below {length=} at width=2: its one "
            "pair turns by a radian a token whatever the base; use a width of 4 or "
            "more, or a length of at most 2."
        )
    exponents = -np.arange(0, width, 2) / width
    distances = np.arange(length)
    suspect = 0

    def holds(base: float) -> bool:
        """Looks first where the last base failed; most fail there again."""
        nonlocal suspect
        frequencies = base**exponents
        near = slice(max(suspect - 256, 0), suspect + 256)
        for part in (distances[near], *np.array_split(distances, 1 + length // 4096)):
            sums = np.cos(part[:, None] * frequencies).sum(1)
            if (sums < 0).any():
                suspect = int(part[np.argmax(sums < 0)])
                return False
        return True

    base = 1.0
    if holds(base):
        return base
    while not holds(base):
        base *= step
    low, high = base / step, base
    while high / low > 1 + _PRECISION:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def digits(positions: Int[Array, "*B"], base: int, count: int) -> Int[Array, "*B R"]:
    """Returns the digits of positions in a number system, the lowest first.

    Digit r is `floor(n / base ** r) mod base`. RoPE and sinusoids replace "mod" by
    cosine and sine of the same argument, with `base = max_wavelength ** (2 / width)`;
    this is Su's reading of why scaling the base extends the length.

    Args:
        positions: non-negative integers, `[*B]`.
        base: of the number system, at least 2.
        count: number of digits, R; `base ** (R - 1)` must fit 31 bits.

    Returns:
        `[*B, R]`.

    Raises:
        ValueError: if the base is below 2 or the digits do not fit 31 bits.

    References:
        Su (2023), spaces.ac.cn/archives/9675.
    """
    if base < 2 or count < 1 or base ** (count - 1) >= 2**31:
        raise ValueError(f"no {count} digits of base {base} in 31 bits.")
    powers = np.array([base**r for r in range(count)], np.int32)
    powers = powers.reshape((1,) * positions.ndim + (count,))
    return positions[..., None] // powers % base


def waves(
    positions: Shaped[np.ndarray, "*B"], base: float, count: int
) -> Float[np.ndarray, "*B R"]:
    """Returns the arguments of RoPE's waves, `n / base ** r`, in radians, float64.

    With `base = max_wavelength ** (2 / width)` and `count = width / 2` these are the
    angles of `rotation_angles`.

    Args:
        positions: `[*B]`.
        base: of the number system.
        count: number of digits, R.
    """
    return np.asarray(positions, np.float64)[..., None] / base ** np.arange(count)
