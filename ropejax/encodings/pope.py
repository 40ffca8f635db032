"""PoPE: channels have a magnitude from content and a phase from position, nothing else.

In RoPE the angle between two channels mixes what a token says with where it stands.
PoPE takes only magnitudes from content, `softplus(q)`, and lets the phase be the
position's alone, plus a learned offset; every channel has a frequency of its own.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.encodings.angles import rotation_angles
from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.choices import positive
from ropejax.encodings.held import held
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoPE(Encoding):
    """Logit = `sum_c softplus(q_c) softplus(k_c) cos((j - i) f_c + delta_c)`.

    Frequencies are `f_c = max_wavelength ** (-c / width)`, one a channel; delta is
    learned for each head and channel, and kept within [-2 pi, 0]. Queries and keys take
    twice their width in the product.

    Attributes:
        max_wavelength: the base of the frequencies, in tokens.
        rotary_fraction: part of a head's channels treated so, the first ones; the
            others enter the product as they are.
        uniform_init: start delta uniform in [-2 pi, 0] rather than at 0.

    References:
        Gopalakrishnan et al. (2025), arXiv:2509.10534; formulas as in
        lucidrains/PoPE-pytorch@2b91cde (the paper's text was not read).

    Departures:
        Delta is applied on the side of queries, with the opposite sign, so that each
        query head has its own where heads share keys; products are the same. Delta
        starts on a bound of its range, so it is held there as KERPLE's parameters are:
        clamped at use, in `prepare`, and where it is out of range only a gradient whose
        descent leads back passes; such a rule has no forward-mode derivative.
    """

    max_wavelength: float = 10_000.0
    rotary_fraction: float = 1.0
    uniform_init: bool = False

    title: ClassVar[str] = "PoPE"
    summary: ClassVar[str] = "magnitudes from content, phases from position"
    reference: ClassVar[str] = "Gopalakrishnan et al. 2025, arXiv:2509.10534"
    sees_turns: ClassVar[bool] = True
    by_distance: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        positive(max_wavelength=self.max_wavelength)
        if not 0 < self.rotary_fraction <= 1:
            raise ValueError(
                f"rotary_fraction must be in (0, 1], got {self.rotary_fraction}."
            )

    def check(self, dims: Dims) -> None:
        """Raises ValueError if no channel would be left to treat."""
        self._width(dims.head_dim)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"delta": [N, C]}`, C the number of treated channels, radians."""
        shape = (dims.num_heads, self._width(dims.head_dim))
        if not self.uniform_init:
            return {"delta": jnp.zeros(shape, jnp.float32)}
        delta = jax.random.uniform(rng, shape, jnp.float32, -2 * math.pi, 0)
        return {"delta": delta}

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns delta in float32, held in its range."""
        delta = layer["delta"].astype(jnp.float32)
        return {"delta": held(delta, -2 * math.pi, 0.0)}

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns `softplus(q)` as real and imaginary part at angle `i f - delta`."""
        return (self._polar(q, query, -params["delta"].astype(jnp.float32)),)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns `softplus(k)` as real and imaginary part at angle `j f`."""
        return (self._polar(k, key, None),)

    def _width(self, head_dim: int) -> int:
        width = int(head_dim * self.rotary_fraction)
        if width < 1:
            raise ValueError(
                f"rotary_fraction={self.rotary_fraction} leaves no channel of a head "
                f"of {head_dim}."
            )
        return width

    def _polar(self, x: Array, where: Tokens, shift: Array | None) -> Array:
        width = self._width(x.shape[-1])
        if where.positions.ndim != 2:
            raise ValueError(
                f"{self.title} takes positions on one axis, got shape "
                f"{where.positions.shape}."
            )
        frequencies = float(self.max_wavelength) ** (-np.arange(width) / width)
        angles = rotation_angles(where.positions, frequencies)[:, :, None]
        if shift is not None:
            angles = angles + shift[None, None]
        magnitude = jax.nn.softplus(x[..., :width].astype(jnp.float32))
        parts = (magnitude * jnp.cos(angles), magnitude * jnp.sin(angles))
        parts = [part.astype(x.dtype) for part in parts]
        return jnp.concatenate([*parts, x[..., width:]], axis=-1)
