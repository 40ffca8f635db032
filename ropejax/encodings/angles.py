"""Angles `position * frequency` that stay right modulo 2 pi at any position.

A float32 product is not: at position 131071 its sine is off by 4e-3. Here a frequency
is held in turns a token, as a 32-bit integer plus a small rest. Integer multiplication
wraps at 2^32, and that is exactly the reduction modulo one turn. Frequencies known on
the host are split in float64; traced ones (learned, or a function of the length) in
pairs of float32, so that they lose nothing but their own rounding.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ropejax.encodings.choices import positive
from ropejax.number_types import check_kind, check_places, widened
from ropejax.whole_numbers import whole_number

Frequencies = Float[np.ndarray, " R"] | Float[Array, "*#B R"]
"""Radians a token: a NumPy array is a constant, a JAX array may be traced."""

_TURN = 2 * math.pi
_WRAP = 2.0**32
_PER_RADIAN = np.float32(1 / _TURN)
_PER_RADIAN_REST = np.float32(1 / _TURN - float(_PER_RADIAN))


def rotary_frequencies(
    width: int, max_wavelength: float = 10_000.0
) -> Float[np.ndarray, " R"]:
    """Returns RoPE's frequencies `max_wavelength ** (-2 r / width)`, r < width / 2.

    Args:
        width: number of rotated channels, even.
        max_wavelength: the base (called theta in configs), in tokens; the slowest pair
            turns once in a little less than `2 pi max_wavelength` tokens.

    Returns:
        Frequencies `[width / 2]` in radians a token, float64 on the host.

    Raises:
        ValueError: if `width` is odd or not positive, or the base is not positive and
            finite.

    References:
        Su et al. (2021), RoFormer, arXiv:2104.09864, section 3.2.2.
    """
    width = whole_number("head width", width)
    if width < 2 or width % 2:
        raise ValueError(
            f"head width must be even for a rotation, got {width}; change head_dim, or "
            "rotate a part of it with rotary_fraction."
        )
    positive(max_wavelength=max_wavelength)
    if not math.isfinite(max_wavelength):
        raise ValueError(f"max_wavelength must be finite, got {max_wavelength}.")
    exponents = -np.arange(0, width, 2, dtype=np.float64) / width
    return float(max_wavelength) ** exponents


def share_of(channels: int, fraction: float) -> int:
    """Returns how many whole channels a fraction is: 58 of 100 for 0.58.

    In floating-point numbers that product is 57.99999999999999.

    Args:
        channels: how many there are.
        fraction: 0 to 1.
    """
    return math.floor(channels * fraction + 1e-9)


def rotation_angles(
    positions: Shaped[Array, "*B L"],
    frequencies: Frequencies,
    *,
    scale: float = 1.0,
    offset: float = 0.0,
) -> Float[Array, "*B L R"]:
    """Returns `(positions * scale + offset) * frequencies`, up to whole turns.

    Args:
        positions: in tokens, integers or floats, `[*B, L]`; traced floats beyond
            +-2^31 give NaN.
        frequencies: radians a token, `[R]`; or `[*B, R]` if a JAX array.
        scale: constant factor on the positions.
        offset: constant number of tokens added to the scaled positions.

    Returns:
        Angles in radians `[*B, L, R]`, within 2e-6 of those in float64 modulo 2 pi.

    Raises:
        ValueError: if a position is known to be NaN, infinite or beyond +-2^31, or
            positions are floating-point of less than 32 bits, or no numbers.
    """
    check_places("positions", positions)
    if not isinstance(frequencies, np.ndarray):
        frequencies = frequencies[..., None, :]
    return pair_angles(positions[..., None], frequencies, scale=scale, offset=offset)


def pair_angles(
    positions: Shaped[Array, "*B L r"],
    frequencies: Frequencies | Float[Array, "*#B #L R"],
    *,
    scale: float = 1.0,
    offset: float = 0.0,
) -> Float[Array, "*B L R"]:
    """Returns angles like `rotation_angles`, each pair having a position of its own.

    Positions may be computed ones, so NaN, infinite ones and those beyond +-2^31 give
    NaN, known or traced.

    Args:
        positions: `[*B, L, R]`, or `[*B, L, 1]` if all pairs share it.
        frequencies: `[R]`, or a JAX array that broadcasts against the positions.
        scale: constant factor on the positions.
        offset: constant number of tokens added to the scaled positions.

    Returns:
        Angles in radians, `[*B, L, R]`, float32.
    """
    steps, part = _whole_and_part(positions)
    if isinstance(frequencies, np.ndarray):
        return _constant(steps, part, frequencies.astype(np.float64), scale, offset)
    frequencies = _of_rank(frequencies.astype(jnp.float32), steps.ndim)
    angles = _traced(steps, part, frequencies * scale)
    if not offset:
        return angles
    # Wound like a position: the plain product would be off by 4e-3 at 100000 tokens.
    whole = math.floor(offset)
    at = [
        jnp.full((1,) * steps.ndim, number, dtype)
        for number, dtype in ((whole, jnp.int32), (offset - whole, jnp.float32))
    ]
    return angles + _traced(*at, frequencies)


def _whole_and_part(
    positions: Shaped[Array, "*B L r"],
) -> tuple[Int[Array, "*B L r"], Float[Array, "*#B #L #r"]]:
    check_kind("positions", positions)
    positions = widened("positions", positions)
    if jnp.issubdtype(positions.dtype, jnp.integer):
        return positions, jnp.zeros((1,) * positions.ndim, jnp.float32)
    positions = positions.astype(jnp.float32)
    floor = jnp.floor(positions)
    # Beyond int32 whole tokens would all be its last number.
    counted = (positions >= -(2.0**31)) & (positions < 2.0**31)
    part = jnp.where(counted, positions - floor, jnp.nan)
    return floor.astype(jnp.int32), part


def _constant(
    steps, part, frequencies: np.ndarray, scale: float, offset: float
) -> Array:
    """Angles of frequencies known on the host."""
    turns = frequencies * scale / _TURN
    whole = np.floor(turns * _WRAP)
    high = np.mod(whole, _WRAP).astype(np.uint32)
    rest = (turns - whole / _WRAP).astype(np.float32)
    start = np.mod(frequencies * offset / _TURN, 1.0).astype(np.float32)
    constants = [jnp.asarray(x) for x in (high, rest, turns.astype(np.float32))]
    turn = _wind(steps, part, *(_of_rank(x, steps.ndim) for x in constants))
    if np.any(start):
        turn = turn + _of_rank(jnp.asarray(start), steps.ndim)
    return turn * _TURN


@jax.custom_jvp
def _traced(steps, part, frequencies: Array) -> Array:
    """Angles of frequencies that only the device knows."""
    turns = frequencies * _PER_RADIAN
    rest = _product_error(frequencies, _PER_RADIAN, turns)
    rest = rest + frequencies * _PER_RADIAN_REST
    # Towards zero, as only that is exact for frequencies of either sign.
    scaled = (turns - jnp.trunc(turns)) * _WRAP
    whole = jnp.trunc(scaled)
    rest = rest + (scaled - whole) * (1 / _WRAP)
    size = jnp.abs(whole).astype(jnp.uint32)
    high = jnp.where(whole < 0, -size, size)
    return _wind(steps, part, high, rest, turns) * _TURN


@_traced.defjvp
def _traced_jvp(primals, tangents):
    steps, part, frequencies = primals
    _, part_dot, frequencies_dot = tangents
    positions = steps.astype(jnp.float32) + part
    tangent = positions * frequencies_dot + part_dot * frequencies
    return _traced(*primals), tangent


def _wind(steps, part, high, rest, turns) -> Array:
    """Turns, up to whole ones: wrapped integer steps, and the rest in float32."""
    # Products of int32 wrap, as those of uint32 do.
    turn = (steps * high.astype(jnp.int32)).astype(jnp.float32)
    return turn * (1 / _WRAP) + steps.astype(jnp.float32) * rest + part * turns


def _product_error(a: Array, b: np.float32, product: Array) -> Array:
    """What rounding took from `product = a * b`: every partial product is exact."""
    a_high = _upper_half(a)
    b_high = np.uint32(b.view(np.uint32) & 0xFFFFF000).view(np.float32)
    a_low, b_low = a - a_high, b - b_high
    error = a_high * b_high - product
    return ((error + a_high * b_low) + a_low * b_high) + a_low * b_low


def _upper_half(x: Array) -> Array:
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) & jnp.uint32(0xFFFFF000)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _of_rank(x: Array, rank: int) -> Array:
    return x.reshape((1,) * (rank - x.ndim) + x.shape)
