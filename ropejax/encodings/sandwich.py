"""Sandwich: the inner product of two sinusoidal positions, as a bias.

The position part of the dot product of two embeddings with sinusoids in them depends
on the offset alone. Kept by itself, it is a penalty that falls off like a logarithm,
with ripples, and has nothing to learn.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from ropejax.encodings.angles import rotation_angles
from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import positive
from ropejax.encodings.heads import per_head
from ropejax.encodings.relative_shift import in_order
from ropejax.encodings.relative_terms import relative_bias
from ropejax.encodings.sinusoids import sinusoids
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Shaped


@dataclasses.dataclass(frozen=True)
class Sandwich(Encoding):
    """Adds a sum of cosines of the offset, over each head's constant, to logits.

    `(sum_k cos(r w_k) - width / 2) * N / (8 h)`, r the offset, h = 1 .. N the head,
    `w_k = max_wavelength ** (-2 k / width)`, k = 1 .. width / 2: zero at r = 0 and
    negative elsewhere.

    Attributes:
        width: twice the number of cosines.
        max_wavelength: the base of the wavelengths.

    Raises:
        ValueError: if the width is odd, or a setting is not positive.

    References:
        Chi et al., 2022, arXiv:2212.10356; no official code was found. The
        head constants, the width of 128 and the frequencies (from k = 1) follow
        NVIDIA/NeMo@8cfedd7, `SandwichRelativePositionEmbedding`; they could not be
        checked against the paper's text.

    Departures:
        The constant `width / 2` is taken off, as in NeMo; it changes no weights.
    """

    width: int = 128
    max_wavelength: float = 10_000.0

    title: ClassVar[str] = "Sandwich"
    summary: ClassVar[str] = "the inner product of sinusoidal positions as a bias"
    reference: ClassVar[str] = "Chi et al. 2022, arXiv:2212.10356"

    def __post_init__(self):
        super().__post_init__()
        positive(width=self.width, max_wavelength=self.max_wavelength)
        if self.width % 2:
            raise ValueError(f"width must be even, got {self.width}.")

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the constant of each head."""
        heads = jnp.arange(1, dims.num_heads + 1, dtype=jnp.float32)
        return {"scales": dims.num_heads / (8 * heads)}

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns the sums of cosines, over each head's constant."""
        if in_order(query, key) or key.distances is not None:
            cosines = relative_bias(self._cosines, query, key)
        else:
            q, k = (sinusoids(t.positions, self._waves()) for t in (query, key))
            batch = max(q.shape[0], k.shape[0])
            q, k = (jnp.broadcast_to(x, (batch, *x.shape[1:])) for x in (q, k))
            cosines = jnp.einsum("btw,bsw->bts", q, k, precision="highest")[:, None]
        return per_head(params["scales"]) * (cosines - self.width / 2)

    def _waves(self):
        steps = np.arange(1, self.width // 2 + 1)
        return float(self.max_wavelength) ** (-2 * steps / self.width)

    def _cosines(self, offsets: Shaped[Array, "#B *P"]) -> Float[Array, "#B 1 *P"]:
        return jnp.cos(rotation_angles(offsets, self._waves())).sum(-1)[:, None]
