"""Rotating pairs of channels by an angle that grows with position: plain functions.

A head of width H is R = H/2 pairs, that is R complex numbers, and pair r turns by
`frequencies[r]` radians a token. Everything rotary in ropejax is built from these
functions and those of `ropejax.encodings.angles`; they need neither Flax nor the
encoding contract.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ropejax.encodings.angles import pair_angles as pair_angles
from ropejax.encodings.angles import rotary_frequencies as rotary_frequencies
from ropejax.encodings.angles import rotation_angles as rotation_angles
from ropejax.encodings.choices import check_choice

Layout = Literal["half", "interleaved"]
"""Which channels form pair r: (r, r + H/2) or (2r, 2r + 1)."""

LAYOUTS = ("half", "interleaved")


def rotate(
    x: Float[Array, "*B L N H"],
    angles: Float[Array, "*#B #L R"] | Float[Array, "*#B #L N R"],
    *,
    layout: Layout = "half",
    factor: float | Array = 1.0,
) -> Float[Array, "*B L N H"]:
    """Rotates the first 2 R channels of every head; the others pass through.

    A pair (a, b) becomes `factor * (a cos - b sin, a sin + b cos)`.

    Args:
        x: `[*B, L, N, H]`, any float dtype.
        angles: radians, `[*B, L, R]`, float32, the same for all heads; or
            `[*B, L, N, R]` for angles a head.
        layout: "half" pairs channels (r, r + R), "interleaved" (2 r, 2 r + 1). Queries
            and keys of a model must share one; weights move from one to the other by a
            permutation.
        factor: multiplies the rotated channels (YaRN's attention factor).

    Returns:
        `[*B, L, N, H]` in the dtype of x; computed in float32.

    Raises:
        ValueError: if x has fewer than 2 R channels, or the layout is unknown.
    """
    check_choice("layout", layout, LAYOUTS)
    pairs = angles.shape[-1]
    if x.shape[-1] < 2 * pairs:
        raise ValueError(
            f"{pairs} angles need {2 * pairs} channels, got {x.shape[-1]}."
        )
    if angles.ndim == x.ndim - 1:
        angles = angles[..., None, :]
    return combine(x, jnp.cos(angles) * factor, jnp.sin(angles) * factor, layout=layout)


def combine(
    x: Float[Array, "*B L N H"],
    cos: Float[Array, "*#B #L #N R"],
    sin: Float[Array, "*#B #L #N R"],
    *,
    layout: Layout = "half",
) -> Float[Array, "*B L N H"]:
    """Returns heads whose pairs (a, b) became `(a cos - b sin, a sin + b cos)`.

    Args:
        x: `[*B, L, N, H]`; channels beyond the first 2 R pass through.
        cos: what stands for cosines, float32.
        sin: what stands for sines, float32.
        layout: which channels form a pair, as in `rotate`.

    Returns:
        `[*B, L, N, H]` in the dtype of x; computed in float32.
    """
    pairs = cos.shape[-1]
    a, b = _split(x[..., : 2 * pairs].astype(jnp.float32), layout)
    turned = _join(a * cos - b * sin, a * sin + b * cos, layout).astype(x.dtype)
    if x.shape[-1] == 2 * pairs:
        return turned
    return jnp.concatenate([turned, x[..., 2 * pairs :]], axis=-1)


def as_complex(
    x: Float[Array, "*B H"], layout: Layout = "half"
) -> Complex[Array, "*B R"]:
    """Returns channels as complex numbers: in this view a rotation is `z exp(i angle)`.

    So `q . k` of rotated vectors is `Re sum_r q_r conj(k_r) exp(i (m - n) f_r)`.

    Args:
        x: `[*B, H]`, H even.
        layout: which channels are real and imaginary part, as in `rotate`.

    Returns:
        `[*B, H / 2]`, complex64.
    """
    check_choice("layout", layout, LAYOUTS)
    return jax.lax.complex(*_split(x.astype(jnp.float32), layout))


def from_complex(
    z: Complex[Array, "*B R"], layout: Layout = "half"
) -> Float[Array, "*B H"]:
    """Returns the channels of complex numbers, the inverse of `as_complex`.

    Args:
        z: `[*B, R]`.
        layout: as in `rotate`.

    Returns:
        `[*B, 2 R]`, float32.
    """
    check_choice("layout", layout, LAYOUTS)
    return _join(z.real, z.imag, layout)


def _split(x: Array, layout: Layout) -> tuple[Array, Array]:
    if layout == "half":
        return tuple(jnp.split(x, 2, axis=-1))
    return x[..., 0::2], x[..., 1::2]


def _join(a: Array, b: Array, layout: Layout) -> Array:
    if layout == "half":
        return jnp.concatenate([a, b], axis=-1)
    return jnp.stack([a, b], axis=-1).reshape(*a.shape[:-1], 2 * a.shape[-1])
