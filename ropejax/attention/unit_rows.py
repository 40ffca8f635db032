"""Exponentials whose squares sum to one, in place of a softmax.

Weights that sum to one tell how what a token sees is composed, never how much of it
there is: if all values are equal, so is the output, and positions that act inside the
softmax alone change nothing. Divided by the root of the sum of their squares, n equal
weights are `n ** -0.5` each, and sum to `n ** 0.5`.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.attention.normalizers import Normalizer
from ropejax.attention.visibility import NEGATIVE


@dataclasses.dataclass(frozen=True)
class UnitRows(Normalizer):
    """`exp(l) / sqrt(sum exp(2 l))` over visible keys: squares of weights sum to one.

    A row without any visible key has zero weights. The sum of squares runs beside the
    outputs, over the same keys but other exponentials, so that whole rows of logits are
    needed. With memory linear in length, two calls of `attend` do the same:

        out, lse = attend(q, k, v, ..., return_lse=True)
        two = jnp.full((1, 1, 1), 2.0)
        _, twice = attend(q, k, v, ..., row_scale=two, return_lse=True)
        out * jnp.exp(lse - twice / 2).swapaxes(1, 2)[..., None]

    References:
        Su 2022, spaces.ac.cn/archives/9105, as the alternative to URPE (Luo et al.
        2022, arXiv 2205.13401; `ropejax.encodings.URPE`).
    """

    blockwise: ClassVar[bool] = False
    has_lse: ClassVar[bool] = False
    summary: ClassVar[str] = "weights exp(l) over the root of the sum of their squares"

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights; there is no log-sum-exp."""
        logits = jnp.where(visible, logits, NEGATIVE)
        top = jax.lax.stop_gradient(logits.max(-1, keepdims=True))
        unnormalized = jnp.where(visible, jnp.exp(logits - top), 0.0)
        squares = (unnormalized * unnormalized).sum(-1, keepdims=True)
        return unnormalized * jnp.where(squares > 0, squares, 1.0) ** -0.5, None
