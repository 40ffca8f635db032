"""Shaw's relative representations: a learned vector for each offset.

The first relative encoding of Transformers. Queries meet a vector of the offset beside
the key, and outputs collect another beside the value, so that weights alone do not
have to carry the position.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding, Views
from ropejax.encodings.choices import not_negative, positive
from ropejax.encodings.heads import dot_product, weighted_sum
from ropejax.encodings.relative_terms import (
    clipped_rows,
    key_logits,
    relative_logits,
    relative_values,
)
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Logits, Params, Rng


@dataclasses.dataclass(frozen=True)
class Shaw(Encoding):
    """Adds a learned vector of the offset to each key, and another to each value.

    `q_i . (k_j + a[r])`, inside the scale, and `sum_j w_ij (v_j + b[r])`, where
    `r = clip(j - i, -clip, clip) + clip`.

    Attributes:
        clip: offsets beyond this many tokens share a vector.
        value_vectors: True for vectors b at the values.
        per_head: True if each query head has vectors of its own.
        key_query: True to add `k_j . a[r]` too, as BERT's relative_key_query does.
        init_std: standard deviation of the vectors at the start.

    Raises:
        ValueError: if clip is not positive or init_std negative, or positions are
            fractional.

    References:
        Shaw et al., 2018, arXiv:1803.02155, equations 3 to 5;
        tensorflow/tensor2tensor@bafdc1b, `_relative_attention_inner`.

    Departures:
        BERT's relative_key is `value_vectors=False`, and relative_key_query has
        `key_query=True` too, both with `clip = max - 1` and BERT's table of
        `2 max - 1` rows upside down (its rows go by query minus key). BERT fails beyond
        that distance; here it is clipped.
    """

    clip: int = 16
    value_vectors: bool = True
    per_head: bool = False
    key_query: bool = False
    init_std: float = 0.02

    title: ClassVar[str] = "Shaw"
    summary: ClassVar[str] = "learned vectors of clipped offsets at keys and values"
    reference: ClassVar[str] = "Shaw et al. 2018, arXiv:1803.02155"
    sees_turns: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(clip=self.clip)
        not_negative(init_std=self.init_std)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"keys", "values"}`, each `[2 clip + 1, H]` (or `[.., N, H]`)."""
        heads = (dims.num_heads,) if self.per_head else ()
        shape = (2 * self.clip + 1, *heads, dims.head_dim)
        names = ("keys", "values") if self.value_vectors else ("keys",)
        rngs = jax.random.split(rng, 2)
        return {
            name: self.init_std * jax.random.normal(one, shape, jnp.float32)
            for name, one in zip(names, rngs, strict=False)
        }

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns queries against keys and vectors of offsets."""
        table, rows = params["keys"], clipped_rows(self.clip)
        logits = dot_product(q[0], k[0])
        logits = logits + relative_logits(q[0], table, rows, query, key)
        if not self.key_query:
            return logits
        return logits + key_logits(k[0], table, rows, query, key, q[0].shape[2])

    def mix(
        self,
        params: Params,
        weights: Float[Array, "B N T S"],
        v: Float[Array, "B S K H"],
        query: Tokens,
        key: Tokens,
    ) -> Float[Array, "B T N H"]:
        """Returns weights against values and vectors of offsets."""
        out = weighted_sum(weights, v)
        if not self.value_vectors:
            return out
        rows = clipped_rows(self.clip)
        return out + relative_values(weights, params["values"], rows, query, key)
