"""Attention spelled out: the readable reference that every other engine must equal.

It forms the whole `[B, N, T, S]` array of logits, for short sequences and tests.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from ropejax.attention.counts import visible_counts
from ropejax.attention.dropout import kept_pairs
from ropejax.attention.normalizers import Normalizer, Softmax
from ropejax.attention.visibility import NEGATIVE as NEGATIVE
from ropejax.attention.visibility import is_hidden, times_rows
from ropejax.attention.visibility import visible_pairs as visible_pairs
from ropejax.encodings.base import Encoding
from ropejax.encodings.hook_shapes import checked, outputs_of
from ropejax.tokens import Tokens
from ropejax.typing import Params


def dense(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    *,
    encoding: Encoding,
    params: Params,
    query: Tokens,
    key: Tokens,
    mask=None,
    scale: float | Array,
    row_scale: Float[Array, "#B T #N"] | None = None,
    normalizer: Normalizer | None = None,
    normalizer_params: Params = None,
    dropout_rate: float = 0.0,
    seed: UInt32[Array, "2"] | None = None,
    return_lse: bool = False,
    first: tuple[int | Array, int | Array] = (0, 0),
):
    """Attends with the whole matrix of logits in memory, softmax in float32.

    `out = outputs(mix(softmax(where(visible, logits, -inf)), values))`; a row that sees
    no key gives zeros, and zero gradients. This is what `attend` calls, whose docstring
    says what the arguments are, after its checks: `params` are prepared, `scale` is
    given, and what stands at padding is zero. Instead of an rng there are

    * `seed`: two random words for dropout, or None for none;
    * `first`: row and head of the whole batch with which these start, on which dropout
      depends.

    Returns:
        Outputs `[B, T, N, Hv]` in q's dtype, and if asked for the log of the softmax's
        denominator, `[B, N, T]`, minus infinity where a row sees no key.
    """
    weights, lse = attention_weights(
        q,
        k,
        encoding=encoding,
        params=params,
        query=query,
        key=key,
        mask=mask,
        scale=scale,
        row_scale=row_scale,
        normalizer=normalizer,
        normalizer_params=normalizer_params,
    )
    if dropout_rate and seed is not None:
        shape = weights.shape[:2]
        keep = kept_pairs(seed, dropout_rate, shape, query, key, first)
        weights = jnp.where(keep, weights / (1 - dropout_rate), 0.0)
    values = encoding.values(params, v, key)
    out = encoding.mix(params, weights, values, query, key)
    checked(encoding, "mix", out, (*q.shape[:3], None))
    out = outputs_of(encoding, params, out, query).astype(q.dtype)
    return (out, lse) if return_lse else out


def attention_weights(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    *,
    encoding: Encoding,
    params: Params,
    query: Tokens,
    key: Tokens,
    mask=None,
    scale: float | Array,
    row_scale: Float[Array, "#B T #N"] | None = None,
    normalizer: Normalizer | None = None,
    normalizer_params: Params = None,
) -> tuple[Float[Array, "B N T S"], Float[Array, "B N T"] | None]:
    """Returns the weights with which every query attends to every key.

    The first half of `dense`, without dropout: for looking at a model, and for tests.
    Arguments are those of `attend`; `params` must be prepared, and `scale` given.

    Returns:
        Weights `[B, N, T, S]`, float32, zero where nothing is seen, and the log-sum-exp
        of each row if the normalizer has one.
    """
    normalizer = Softmax() if normalizer is None else normalizer
    visible = visible_pairs(query, key, mask)
    q_views = encoding.queries(params, q, query)
    k_views = encoding.keys(params, k, key)
    state = encoding.init_carry(params, q_views, query)
    _, logits = encoding.score(
        params, state, q_views, k_views, query, key, visible, scale
    )
    logits = logits.astype(jnp.float32)
    if row_scale is not None:
        logits = times_rows(logits, row_scale)
    hidden = is_hidden(logits)
    visible, logits = visible & ~hidden, jnp.where(hidden, NEGATIVE, logits)
    counts = visible_counts(query, key, mask) if normalizer.needs_counts else None
    return normalizer.weights(normalizer_params, logits, visible, query, key, counts)
