"""A softmax whose temperature follows the entropy of its own weights.

Blockwise it takes two passes: one over all keys for the entropy of each row, which is
the row's log-sum-exp minus its mean logit, and one with the sharpened logits.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.attention.normalizers import Softmax


@dataclasses.dataclass(frozen=True)
class AdaptiveTemperature(Softmax):
    """A softmax sharpened where its entropy is high, at test time.

    `softmax(t l)`, `t = max(1, poly(e))` for an entropy e above 0.5 nats, else 1.

    References:
        Velickovic et al. 2024, "softmax is not enough (for sharp out-of-distribution)",
        arXiv 2410.01104, figure 5 (the polynomial).
    """

    needs_entropy: ClassVar[bool] = True
    summary: ClassVar[str] = "a softmax sharpened where its entropy is high"

    def sharpness(self, entropy: Float[Array, "*B"]) -> Float[Array, "*B"]:
        """Returns the factor on a row's logits, from its entropy in nats."""
        polynomial = jnp.array([-0.037, 0.481, -2.3, 4.917, -1.791], jnp.float32)
        sharp = jnp.maximum(jnp.polyval(polynomial, entropy), 1.0)
        return jnp.where(entropy > 0.5, sharp, 1.0)

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights and the log-sum-exp of the sharpened logits."""
        p, _ = super().weights(params, logits, visible, query, key)
        log_p = jnp.log(jnp.where(p > 0, p, 1.0))
        entropy = -(p * log_p).sum(-1, keepdims=True)
        logits = logits * self.sharpness(entropy)
        return super().weights(params, logits, visible, query, key)
