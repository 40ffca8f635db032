"""Sinusoidal absolute positions: fixed waves of geometric wavelengths, added once.

Each position is a point on many circles. A linear map turns position m into m + r, so
a model can learn relative offsets, but nothing forces it to.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import check_choice, positive
from ropejax.encodings.learned import stream_of
from ropejax.encodings.sinusoids import (
    LAYOUTS,
    Exponent,
    Layout,
    frequencies,
    sinusoids,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params


@dataclasses.dataclass(frozen=True)
class Sinusoidal(Encoding):
    """Adds sines and cosines of the position to token embeddings.

    `x + [sin(m w), cos(m w)]`, `w_i = max_wavelength ** (-2 i / D)`, m the position.

    Positions may be integers or floats, of either sign, to 2^20 in magnitude.

    Attributes:
        max_wavelength: the base of the wavelengths, in tokens over 2 pi.
        layout: "interleaved" as in the paper, or "concatenated": equal up to a fixed
            permutation of channels.
        exponent: "width" as in the paper, `2 i / D`; "endpoints" for `i / (D / 2 - 1)`,
            as in tensor2tensor and fairseq.
        factor: multiplies the sinusoids before they are added.
        stream: name of the stream that stands for positions, such as "within" of
            `ropejax.positions.BiPE`; "" for positions themselves.

    Raises:
        ValueError: if layout or exponent is unknown, a number is not positive, (in
            `check`) D is odd, or tokens lack the stream.

    References:
        Vaswani et al., 2017, arXiv:1706.03762, section 3.5.

    Departures:
        None. Scaling token embeddings by sqrt(D) is the model's business.
    """

    max_wavelength: float = 10_000.0
    layout: Layout = "interleaved"
    exponent: Exponent = "width"
    factor: float = 1.0
    stream: str = ""

    title: ClassVar[str] = "Sinusoidal"
    summary: ClassVar[str] = "fixed sines and cosines added to the embeddings"
    reference: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762"
    shift_invariant: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        frequencies(4, self.max_wavelength, self.exponent)
        check_choice("layout", self.layout, LAYOUTS)
        positive(factor=self.factor)

    def check(self, dims: Dims) -> None:
        """Raises ValueError if the model's width is odd."""
        frequencies(dims.embed_dim, self.max_wavelength, self.exponent)

    def embed(
        self, shared: Params, x: Float[Array, "B L D"], where: Tokens
    ) -> Float[Array, "B L D"]:
        """Returns x plus the sinusoids of its positions, in x's dtype."""
        waves = frequencies(x.shape[-1], self.max_wavelength, self.exponent)
        at = stream_of(where, self.stream) if self.stream else where.positions
        table = sinusoids(at, waves, self.layout)
        return (x.astype(jnp.float32) + self.factor * table).astype(x.dtype)
