"""RoPE with learned biases on queries and keys: a position logit apart from content.

A bias is rotated with its query or key, so the product of both biases depends on the
distance alone, and the model can learn a decay that plain RoPE lacks.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.encodings.base import Dims, Views
from ropejax.encodings.rotary import RotaryAttention
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiasedRotary(RotaryAttention):
    """RoPE after adding biases: `(R_m (q + a)) . (R_n (k + b))`.

    Both biases start at zero, where the method is RoPE. With `a = b` constant in the
    first channel of each pair and no content, their product is Sandwich.

    References:
        Su (2023), spaces.ac.cn/archives/9577.

    Departures:
        The gated form, which adds only the product of the biases, is not offered. Su
        reports later that the gain was hard to reproduce.
    """

    title: ClassVar[str] = "RoPE with q/k bias"
    summary: ClassVar[str] = "RoPE of queries and keys with learned biases"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9577"
    sees_turns: ClassVar[bool] = True

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns zeros, `query_bias [N, H]` and `key_bias [K, H]`."""
        return super().init_layer(rng, dims) | {
            "query_bias": jnp.zeros((dims.num_heads, dims.head_dim), jnp.float32),
            "key_bias": jnp.zeros((dims.num_kv_heads, dims.head_dim), jnp.float32),
        }

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns rotated queries with their bias."""
        return super().queries(params, _add(q, params["query_bias"]), query)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns rotated keys with their bias."""
        return super().keys(params, _add(k, params["key_bias"]), key)


def _add(x: Float[Array, "B L N H"], bias: Float[Array, "N H"]) -> Array:
    return (x.astype(jnp.float32) + bias[None, None]).astype(x.dtype)
