"""Squares of what is above zero in place of exponentials: the weights of FLASH."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.attention.normalizers import Normalizer
from ropejax.attention.visibility import NEGATIVE
from ropejax.encodings.choices import not_negative, positive

_LEAST = 1e-18  # a logit below counts as zero: its square would be lost in float32


@dataclasses.dataclass(frozen=True)
class SquaredReLU(Normalizer):
    """`max(l, 0)^2 / n^power`: each weight for itself, many of them exactly zero.

    Rows need not sum to one. A key with a logit below zero, as all far ones have under
    ALiBi's bias, counts for nothing and gets no gradient; nor does a row without any
    logit above.

    Attributes:
        length: n; None for the number of keys that the query sees. Su finds that a
            model meets other lengths better with n held at the trained length.
        power: 1 for `/ n`; 2 for the paper's code, which divides logits by n.

    References:
        Hua et al. 2022, "Transformer Quality in Linear Time", arXiv 2202.10447, and the
        code in its appendix; So et al. 2021 (Primer), arXiv 2109.08668 (the square); Su
        2022, spaces.ac.cn/archives/8934 (`power=1`) and 9019 (`length`).

    Departures:
        Logits are an encoding's, with its biases inside the square and `1 / sqrt(H)` on
        products: under `power=2` the paper's code has neither this factor nor a
        division of the bias by n. n counts visible keys, so that padding changes
        nothing and a causal row has its own; the paper's is the length.
    """

    length: float | None = None
    power: float = 1.0

    normalized: ClassVar[bool] = False
    has_lse: ClassVar[bool] = False
    summary: ClassVar[str] = "each weight the square of a logit above zero, over n"

    def __post_init__(self):
        super().__post_init__()
        not_negative(power=self.power)
        if self.length is not None:
            positive(length=self.length)

    @property
    def needs_counts(self) -> bool:
        """True if n is the number of visible keys."""
        return self.length is None

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights."""
        above = jax.nn.relu(jnp.where(visible, logits, 0.0))
        return above * above * jnp.exp(-self._log_divisor(counts)), None

    def log_weights(self, params, state, logits, visible, counts=None):
        """Returns log weights."""
        above = visible & ~(logits <= _LEAST)  # NaN, which must stay one, counts as so
        # A logarithm whose gradient is finite, whichever side is taken.
        twice = 2 * jnp.log(jnp.where(above, logits, 1.0))
        return state, jnp.where(above, twice - self._log_divisor(counts), NEGATIVE)

    def finish(self, params, out, lse):
        """Returns outputs as they are: there is no log-sum-exp."""
        return out, None

    def _log_divisor(
        self, counts: Int[Array, "#B T #N"] | None
    ) -> Float[Array, "#B #N T 1"]:
        """The logarithm of `n^power`, of each query."""
        if self.length is not None:
            n = jnp.full((1, 1, 1), self.length, jnp.float32)
        else:
            n = jnp.maximum(counts, 1).astype(jnp.float32)
        return self.power * jnp.swapaxes(jnp.log(n), 1, 2)[..., None]
