"""Sinusoids of positions, as absolute and relative encodings share them.

The two conventions that published code disagrees on, the exponent of the frequencies
and the order of the channels, are chosen by name here and nowhere else.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from ropejax.encodings.angles import rotation_angles
from ropejax.encodings.choices import check_choice, positive
from ropejax.typing import Array, Float, Positions

Exponent = Literal["width", "endpoints"]
EXPONENTS = ("width", "endpoints")

Layout = Literal["concatenated", "interleaved"]
LAYOUTS = ("concatenated", "interleaved")


def frequencies(
    width: int, max_wavelength: float = 10_000.0, exponent: Exponent = "width"
) -> Float[np.ndarray, " R"]:
    """Returns frequencies in radians a token, from 1 down, float64 on the host.

    `max_wavelength ** (-i / (width / 2))` ("width", the paper's `2 i / width`), or
    `max_wavelength ** (-i / (width / 2 - 1))` ("endpoints": the last one is exactly
    `1 / max_wavelength`), for i = 0 .. width / 2 - 1.

    Args:
        width: number of sines and cosines together; even.
        max_wavelength: what papers call the base, 10000.
        exponent: "width" or "endpoints".

    Returns:
        `width // 2` frequencies.

    Raises:
        ValueError: if the width is odd, or below 4 for "endpoints", or the convention
            is unknown, or the base is not positive.
    """
    check_choice("exponent", exponent, EXPONENTS)
    if width < 2 or width % 2:
        raise ValueError(f"sinusoids need an even width of at least 2, got {width}.")
    positive(max_wavelength=max_wavelength)
    half = width // 2
    if exponent == "endpoints" and half < 2:
        raise ValueError(
            f"exponent='endpoints' needs a width of 4 or more, not {width}."
        )
    steps = half if exponent == "width" else half - 1
    return float(max_wavelength) ** (-np.arange(half) / steps)


def sinusoids(
    positions: Positions,
    frequency: Float[np.ndarray, " R"],
    layout: Layout = "concatenated",
) -> Float[Array, "B L W"]:
    """Returns sines and cosines of positions, float32, W = 2 R of them.

    Within 1e-6 of float64 at any integer position, as angles lose whole turns before
    they are rounded.

    Args:
        positions: in tokens, integers or floats of either sign, `[B or 1, L]`.
        frequency: radians a token, float64 on the host.
        layout: "concatenated" (all sines, then all cosines) or "interleaved" (sine and
            cosine of each frequency side by side).

    Returns:
        `[B or 1, L, 2 R]`.

    Raises:
        ValueError: if the layout is unknown, or positions have several axes.
    """
    check_choice("layout", layout, LAYOUTS)
    sine, cosine = sines_and_cosines(positions, frequency)
    if layout == "concatenated":
        return jnp.concatenate([sine, cosine], axis=-1)
    return jnp.stack([sine, cosine], axis=-1).reshape(*sine.shape[:-1], -1)


def sines_and_cosines(
    positions: Positions, frequency: Float[np.ndarray, " R"]
) -> tuple[Float[Array, "B L R"], Float[Array, "B L R"]]:
    """Returns sines and cosines of positions, one of each a frequency, float32.

    Raises:
        ValueError: if positions have several axes.
    """
    if positions.ndim != 2:
        raise ValueError(
            "sinusoids take positions on one axis, [batch, length], got shape "
            f"{positions.shape}; give each axis as a stream of its own, and put "
            'sinusoids of each together: compose(row=Sinusoidal(stream="row"), ...).'
        )
    angle = rotation_angles(positions, frequency)
    return jnp.sin(angle), jnp.cos(angle)
