"""Normalizers that need whole rows of logits at once, or several passes over them."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.attention.normalizers import Normalizer, Softmax
from ropejax.attention.visibility import NEGATIVE

_BISECTIONS = 40  # halves an interval of at most 1 to below float32's resolution


@dataclasses.dataclass(frozen=True)
class Entmax(Normalizer):
    """Alpha-entmax: a softmax whose small weights are exactly zero.

    `p = max(0, (alpha - 1) l - tau) ** (1 / (alpha - 1))`, tau such that a row sums to
    one, found by bisection; alpha 2 is sparsemax, alpha towards 1 the softmax. The
    gradient is that of the exact solution.

    Up to alpha 2 blockwise attention finds tau by Newton's method, a pass over the keys
    a step, in memory linear in length: of 1,024 tokens it takes four times as long as a
    softmax does, twice as long with gradients.

    Attributes:
        alpha: above 1.

    References:
        Peters et al. 2019, arXiv 1905.05702; with logits scaled by length (ASEntmax,
        `scales.adaptive_scale`): Vasylenko et al. 2025, arXiv 2506.16640.
    """

    alpha: float = 1.5

    blockwise: ClassVar[bool] = False
    has_lse: ClassVar[bool] = False

    def __post_init__(self):
        if not self.alpha > 1:
            raise ValueError(f"alpha must be above 1, got {self.alpha}; 1 is Softmax.")

    @property
    def has_threshold(self) -> bool:
        """True up to alpha 2, where Newton's method is sure to converge."""
        return self.alpha <= 2

    def finish(self, params, out, lse):
        """Returns outputs as they are: there is no log-sum-exp."""
        return out, None

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights; there is no log-sum-exp."""
        logits = jnp.where(visible, logits, NEGATIVE)
        return jnp.where(visible, entmax(logits, float(self.alpha)), 0.0), None


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def entmax(logits: Float[Array, "*B S"], alpha: float) -> Float[Array, "*B S"]:
    """Returns alpha-entmax over the last axis.

    Args:
        logits: float32 logits.
        alpha: above 1.
    """
    power = 1 / (alpha - 1)
    scaled = (alpha - 1) * (logits - logits.max(-1, keepdims=True))
    # At the top logit alone p <= 1 means tau >= -1; p <= 1 / S there means tau <= this.
    low = jnp.full((*logits.shape[:-1], 1), -1.0)
    high = jnp.full_like(low, -(logits.shape[-1] ** (1 - alpha)))

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        total = (jnp.maximum(scaled - middle, 0) ** power).sum(-1, keepdims=True)
        return jnp.where(total >= 1, middle, low), jnp.where(total >= 1, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    p = jnp.maximum(scaled - low, 0) ** power
    return p / p.sum(-1, keepdims=True)


@entmax.defjvp
def _entmax_jvp(alpha, primals, tangents):
    (logits,), (d_logits,) = primals, tangents
    p = entmax(logits, alpha)
    slope = jnp.where(p > 0, jnp.where(p > 0, p, 1.0) ** (2 - alpha), 0.0)
    mean = (slope * d_logits).sum(-1, keepdims=True) / slope.sum(-1, keepdims=True)
    return p, slope * (d_logits - mean)


@dataclasses.dataclass(frozen=True)
class Selective(Softmax):
    """Queries tell later ones which keys to forget: `softmax(l - F)`.

    `F_ij = sum_{i' < i} S_i'j`, `S = relu(l)` of head 0 with zeros on the diagonal and,
    to keep the first token, in column 0. No parameters. Queries must be in order of
    index, from the first token on, and the mask causal.

    References:
        Leviathan et al. 2024, "Selective Attention Improves Transformer", arXiv
        2410.02703 (not the method of arXiv 2411.12892 of the same name).
    """

    blockwise: ClassVar[bool] = False
    mixes_heads: ClassVar[bool] = True

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights and the log-sum-exp."""
        i, j = query.index[:, :, None], key.index[:, None, :]
        selects = visible[:, 0] & (i != j) & (j != 0)
        select = jnp.where(selects, jax.nn.relu(logits[:, 0]), 0.0)
        forget = jnp.cumsum(select, axis=1) - select
        logits = logits - forget[:, None]
        return super().weights(params, logits, visible, query, key)
