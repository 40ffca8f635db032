"""Normalizers that need whole rows of logits at once, or several passes over them."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ropejax.attention.earlier_queries import lacks_earlier_queries
from ropejax.attention.normalizers import Normalizer, Softmax
from ropejax.attention.visibility import NEGATIVE
from ropejax.encodings.sequence_order import in_sequence, in_storage
from ropejax.manual_axes import varying_like
from ropejax.tokens import Tokens

_BISECTIONS = 40  # halves an interval of at most 1 to below float32's resolution
_NEAREST = 1e-4  # closer to 1, float32 leaves (alpha - 1) l too few digits


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
        alpha: from 1.0001 on; closer to 1 the weights are off by more than 1e-4.

    Raises:
        ValueError: if alpha is not, or is not finite.

    References:
        Peters et al. 2019, arXiv 1905.05702; with logits scaled by length (ASEntmax,
        `scales.adaptive_scale`): Vasylenko et al. 2025, arXiv 2506.16640.
    """

    alpha: float = 1.5

    summary: ClassVar[str] = "alpha-entmax: small weights are exactly zero"
    blockwise: ClassVar[bool] = False
    has_lse: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        if not self.alpha >= 1 + _NEAREST:
            raise ValueError(
                f"alpha must be above 1, by {_NEAREST} at least, got {self.alpha}; "
                "1 is Softmax."
            )

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
    low = jnp.full((*logits.shape[:-1], 1), -1.0, logits.dtype)
    low = varying_like(low, logits)
    high = varying_like(jnp.full_like(low, -(logits.shape[-1] ** (1 - alpha))), logits)

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
    to keep the first token, in its column. No parameters. Order is that of the index,
    however tokens are stored, each segment has a first token of its own, and queries at
    padding have no say.

    The mask must be causal, and every token up to a query must have its own query in
    the same call: a chunk of queries from the middle is refused, and where its place is
    traced, its outputs are NaN.

    References:
        Leviathan et al. 2024, "Selective Attention Improves Transformer", arXiv
        2410.02703 (not the method of arXiv 2411.12892 of the same name).
    """

    summary: ClassVar[str] = "queries tell later ones which keys to forget"
    blockwise: ClassVar[bool] = False
    mixes_heads: ClassVar[bool] = True
    causal_only: ClassVar[bool] = True
    needs_earlier_queries: ClassVar[bool] = True

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights and the log-sum-exp."""
        forgotten = _forgotten(logits[:, 0], visible[:, 0], query, key)
        logits = logits - forgotten[:, None]
        weights, lse = super().weights(params, logits, visible, query, key)
        lacking = lacks_earlier_queries(query, key)
        if lacking is None:
            return weights, lse
        lacking = lacking[:, None]
        lse = jnp.where(lacking, jnp.nan, lse)
        return jnp.where(lacking[..., None], jnp.nan, weights), lse


def _forgotten(
    logits: Float[Array, "B T S"], visible, query: Tokens, key: Tokens
) -> Float[Array, "B T S"]:
    """How much of each key the queries before each query have asked to forget."""
    own = query.index[:, :, None] == key.index[:, None, :]
    selects = visible & ~own & ~_first(key)[:, None, :]
    if query.valid is not None:
        selects &= query.valid[:, :, None]  # padding between tokens has no say
    select = in_sequence(jnp.where(selects, jax.nn.relu(logits), 0.0), query, 1)
    return in_storage(jnp.cumsum(select, axis=1) - select, query, 1)


def _first(key: Tokens) -> Bool[Array, "#B S"]:
    """True for keys that no other of their segment is before."""
    before = key.index[:, None, :] < key.index[:, :, None]
    if key.valid is not None:
        before &= key.valid[:, None, :]
    if key.segments is not None:
        before &= key.segments[:, None, :] == key.segments[:, :, None]
    return ~before.any(2)
