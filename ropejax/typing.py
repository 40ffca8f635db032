"""The letters and names that every signature of ropejax uses.

Letters are those of `jax.nn.dot_product_attention`:

    *B  any leading batch          T  queries            S  keys
    N   query heads                K  key/value heads    G  N // K
    H   head width                 D  model width        F  MLP width
    V   vocabulary                 R  rotation pairs     L  sequence length

Queries, keys and values are `[*B, T or S, heads, H]`, logits and weights `[*B, N, T,
S]`. `positions` say where tokens are, in tokens; `relative_positions` are key minus
query, so the past is negative. `logits` are before the softmax and `weights` after it;
a `bias` is added to logits, in nats, in float32; a `mask` is boolean and True means
attend. `rng` is a PRNG key. `max_wavelength` is what papers call RoPE's base or theta.
"""

from typing import Any

from jaxtyping import Array, Bool, Float, Int, Key, Shaped, UInt32

Rng = Key[Array, ""] | UInt32[Array, "2"]
"""A PRNG key, new-style (`jax.random.key`) or old-style (`jax.random.PRNGKey`)."""

Positions = Shaped[Array, "B L"] | Shaped[Array, "B L A"]
"""Where tokens are: integers or floats; the leading axis is the batch, or 1."""

Mask = Bool[Array, "#B #N #T #S"]
"""True where a query may attend to a key."""

Logits = Float[Array, "B N T S"]
"""Attention before the softmax, float32."""

Params = Any
"""A pytree of arrays."""

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Int",
    "Logits",
    "Mask",
    "Params",
    "Positions",
    "Rng",
]
