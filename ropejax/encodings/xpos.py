"""xPos: RoPE whose channels fade with distance, the fast ones soonest.

The product of a pair is multiplied by `zeta ** ((m - n) / scale_base)`, so that far
keys count less and plain RoPE's oscillations die out. Each side alone would have to
carry `zeta ** m`, which overflows after some thousands of tokens; here it is applied
about the middle of each block of queries, where it cannot.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from ropejax.encodings.base import Views
from ropejax.encodings.centred import about_centres, exponent_limit
from ropejax.encodings.choices import positive
from ropejax.encodings.distance import tokens_between
from ropejax.encodings.heads import dot_product
from ropejax.encodings.rotary import RotaryAttention
from ropejax.tokens import Tokens
from ropejax.typing import Logits, Params
from ropejax.whole_numbers import whole_number


def xpos_decay(
    width: int, gamma: float = 0.4, scale_base: float = 512.0
) -> Float[np.ndarray, " R"]:
    """Returns how fast each pair fades, `-ln(zeta_r) / scale_base`, in nats a token.

    `zeta_r = (2 r / width + gamma) / (1 + gamma)`.

    Args:
        width: rotated width, even.
        gamma: the greater, the slower the fading.
        scale_base: tokens in which a pair fades by zeta.

    Returns:
        Rates `[width / 2]`, positive, float64 on the host, at most 1e30.

    Raises:
        ValueError: if the width is odd, or a number is not positive and finite.
    """
    width = whole_number("width", width, least=2)
    positive(gamma=gamma, scale_base=scale_base)
    if width % 2 or not math.isfinite(gamma + scale_base):
        raise ValueError(
            "xPos takes an even width, and a finite gamma and scale_base, got "
            f"{width=}, {gamma=}, {scale_base=}."
        )
    zeta = (np.arange(0, width, 2) / width + gamma) / (1 + gamma)
    # Faster than any that float32 tells from a pair that is gone at the next token.
    return -np.log(zeta) / max(scale_base, 1e-30)


def fading_product(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    query: Shaped[Array, "B T"],
    key: Shaped[Array, "B S"],
    rates: Float[np.ndarray, " H"],
) -> Logits:
    """Returns `sum_c q_c k_c exp(-rates_c (m - n))` for keys at n up to queries at m.

    Where a block's queries are near each other this is one dot product, fading applied
    about their middle; otherwise it is worked out in chunks, and where even those are
    too wide (random positions with great gaps), query by query. Nothing overflows.

    Args:
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`.
        query: positions of the queries, `[B or 1, T]`.
        key: positions of the keys, `[B or 1, S]`.
        rates: fading of each channel, not negative, in nats a token.

    Returns:
        Logits `[B, N, T, S]`; finite but meaningless for keys after their query.
    """
    limit = exponent_limit(q.dtype) / max(float(rates.max()), 1e-30)
    rates = jnp.asarray(rates, jnp.float32)

    def ends(query) -> tuple[Array, Array]:
        """The first position, and half of the way to the last."""
        first = query.min(1, keepdims=True)
        half = tokens_between(first, query.max(1, keepdims=True)) / 2
        return jax.lax.stop_gradient((first, half))

    def narrow(rows) -> Array:
        return ends(rows[1])[1].max() <= limit

    def at_once(rows) -> Logits:
        q, query = rows
        first, half = ends(query)
        since = jnp.clip(tokens_between(first, query) - half, -limit, limit)
        before = jnp.minimum(tokens_between(first, key) - half, limit)
        return dot_product(_fade(q, since, rates), _fade(k, -before, rates))

    def one(row) -> Array:
        q, query = row
        past = jnp.maximum(-tokens_between(query[:, None], key), 0.0)
        return dot_product(q[:, None], _fade(k, past, rates))[:, :, 0]

    return about_centres((q, query), narrow, at_once, one)


def _fade(x: Array, tokens: Array, rates: Array) -> Array:
    """Multiplies channels by `exp(-rates * tokens)`, in x's dtype."""
    factor = jnp.exp(-tokens[..., None, None] * rates[None, None, None])
    return (x.astype(jnp.float32) * factor).astype(x.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class XPos(RotaryAttention):
    """RoPE with every pair's product multiplied by `zeta_r ** ((m - n) / scale_base)`.

    Causal only: for later keys the factor would grow without bound. Channels that are
    not rotated do not fade.

    Attributes:
        gamma: the greater, the slower the fading.
        scale_base: tokens in which a pair fades by its zeta.

    References:
        Sun et al. (2022), arXiv:2212.10554, equation 6; microsoft/torchscale@4d1e0e8.

    Departures:
        Centred on blocks of queries rather than on the sequence: products are the same.
        The paper's blockwise causal attention is a mask.
    """

    gamma: float = 0.4
    scale_base: float = 512.0

    title: ClassVar[str] = "xPos"
    summary: ClassVar[str] = "RoPE whose channels fade with distance"
    reference: ClassVar[str] = "Sun et al. 2022, arXiv:2212.10554"
    causal_only: ClassVar[bool] = True

    def __post_init__(self):
        """Refuses settings that are not positive."""
        positive(gamma=self.gamma, scale_base=self.scale_base)
        super().__post_init__()

    @property
    def has_product(self) -> bool:
        """True: fading is part of it."""
        return True

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns products of rotated queries and keys, faded by distance."""
        width = self.rotary_width(q[0].shape[-1])
        rates = xpos_decay(width, self.gamma, self.scale_base)
        rates = np.tile(rates, 2) if self.layout == "half" else np.repeat(rates, 2)
        rates = np.pad(rates, (0, q[0].shape[-1] - width))
        return fading_product(q[0], k[0], query.positions, key.positions, rates)
