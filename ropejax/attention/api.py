"""`attend`: one meaning of attention for every encoding, mask and engine."""

import logging
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.attention import checks
from ropejax.attention.axes import dims_of
from ropejax.attention.blockwise import blockwise
from ropejax.attention.choice import block_sizes, decide
from ropejax.attention.dense import dense
from ropejax.attention.earlier_queries import check_earlier_queries
from ropejax.attention.fused import fused
from ropejax.attention.keys import (
    finite_at_padding,
    ordered_for,
    without_hidden,
    without_padding,
)
from ropejax.attention.narrow import narrow
from ropejax.attention.normalizers import Normalizer, Softmax
from ropejax.attention.parameter_checks import (
    check_features,
    check_params,
    plain_params,
)
from ropejax.attention.reach import within_reach
from ropejax.attention.requests import current_platform, request_of
from ropejax.attention.sequence_parallel import SequenceParallel
from ropejax.attention.spread import attend_spread
from ropejax.encodings.base import Encoding
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng

_log = logging.getLogger(__name__)


def attend(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    *,
    encoding: Encoding,
    params: Params = None,
    query: Tokens,
    key: Tokens,
    mask=None,
    scale: float | Array | None = None,
    row_scale: Float[Array, "#B #T #N"] | None = None,
    normalizer: Normalizer | None = None,
    normalizer_params: Params = None,
    dropout_rate: float = 0.0,
    rng: Rng | None = None,
    first_row: int | Int[Array, ""] = 0,
    implementation: str | SequenceParallel = "auto",
    block_q: int | None = None,
    block_k: int | None = None,
    return_lse: bool = False,
):
    """Attends from queries to keys under a position encoding.

    `out = outputs(mix(normalizer(row_scale * logits), values))`, logits being the
    encoding's, `fold(scale * product + bias)`. Every engine computes this, dropout
    included, to rounding; which one "auto" takes and why, `explain` says, and the log
    at level DEBUG. A row that sees no key gives zeros, and zero gradients. A logit of
    minus infinity, or below -5e29, hides its key as a mask does.

    What `k` and `v` hold at padding (`valid` False) does not matter; nor does NaN or
    infinity in `q` there, to other tokens. On one device `k` and `v` do not matter
    either where a mask of `ropejax.masks` is certain to hide a key: by its rule for
    blocks, from the first query, the last, and all between. NaN or infinity at any
    other key may reach the outputs of all queries, since zero times NaN is NaN; so say
    `valid`, rather than a mask, of tokens without content. Values of a traced function
    are not looked at: NaN in `scale` or in positions makes NaN of what it meets.

    Args:
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`, N a multiple of K.
        v: values, `[B, S, K, Hv]`.
        encoding: settings of the position encoding.
        params: what its `prepare` returned; None for an encoding without parameters of
            its own, which is prepared here.
        query: where the queries are (with features, if the encoding makes any).
        key: where the keys are.
        mask: a mask of (query, key), or None for full attention within segments; a
            function may compute with traced values, which get zero gradients.
        scale: factor on queries times keys; `1 / sqrt(H)` if None. An array may hold
            one for each head, `[1, N, 1, 1]`.
        row_scale: factor on the logits of each query and head, `[B, T, N]` or 1 for
            any of them: see `ropejax.attention.scales`.
        normalizer: what turns logits into weights; a softmax if None.
        normalizer_params: its parameters.
        dropout_rate: probability of dropping a weight, where an rng is given.
        rng: PRNG key of dropout; None at evaluation.
        first_row: row of the whole batch with which q starts, so that a batch in parts
            drops the same weights as a whole one.
        implementation: "auto", "dense" (the whole matrix of logits; the reference),
            "blockwise" (memory linear in length; no forward-mode and no second
            derivatives), "fused" (the GPU's or TPU's own kernel, for encodings that are
            one dot product) or "pallas" (a kernel for simple biases, on GPUs);
            docs/engines.md has a table.
            A `SequenceParallel` spreads the sequence over a mesh axis.
        block_q: most queries in a block, blockwise; chosen by the mask, rows and heads
            if None.
        block_k: most keys in a block, blockwise.
        return_lse: also return the log-sum-exp of each row, `[B, N, T]`.

    Returns:
        Outputs `[B, T, N, Hv]`, and the log-sum-exp if asked for.

    Raises:
        ValueError: if shapes do not fit each other, a setting is out of range, a table
            of distances is too short, params or features are not what the encoding's
            hooks return for these tokens, a known scale, position or distance is not
            finite, or mask or engine cannot serve the methods.
    """
    normalizer = Softmax() if normalizer is None else normalizer
    checks.check_kinds(encoding, query, key, mask)
    checks.check_arrays(q, k, v)
    q, k, v = (jnp.asarray(x) for x in (q, k, v))  # NumPy's float64 becomes float32
    checks.check_tokens(q, k, encoding, query, key)
    checks.check_settings(normalizer, dropout_rate, return_lse, block_q, block_k)
    checks.check_rng(rng)
    checks.check_first_row(first_row)
    checks.check_mask(mask, q, query, key)
    checks.check_causal(encoding, normalizer, mask, query, key)
    check_earlier_queries(normalizer, query, key)
    checks.check_row_scale(row_scale, q)
    normalizer.check(normalizer_params, q.shape[2])
    if params is None:
        checks.check_no_parameters(encoding, dims_of(q, k))
    else:
        params = plain_params(params)
        check_params(encoding, params, q, k, query, key)
    check_features(encoding, q, k, query, key)
    q = within_reach(q, query, key)
    q = finite_at_padding(q, query)
    k, v = without_padding(k, v, key)
    k, v, key = ordered_for((encoding, normalizer), k, v, key)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    checks.check_scale(scale, q.shape[2])
    if not hasattr(scale, "dtype"):
        scale = float(scale)  # it may be a fraction
    seed = None
    if dropout_rate and rng is not None:
        seed = jax.random.bits(rng, (2,), jnp.uint32)
    if isinstance(implementation, SequenceParallel):
        return attend_spread(
            attend,
            implementation,
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            query=query,
            key=key,
            mask=mask,
            scale=scale,
            row_scale=row_scale,
            normalizer=normalizer,
            normalizer_params=normalizer_params,
            dropout_rate=dropout_rate,
            seed=seed,
            first_row=first_row,
            return_lse=return_lse,
            block_q=block_q,
            block_k=block_k,
        )
    k, v = without_hidden(k, v, query, key, mask)
    if params is None:
        params = encoding.prepare({}, {}, query, key, dims_of(q, k))
    platform = current_platform()
    request = request_of(
        q,
        k,
        v,
        encoding=encoding,
        params=params,
        query=query,
        key=key,
        mask=mask,
        normalizer=normalizer,
        scale=scale,
        row_scale=row_scale,
        dropout=bool(dropout_rate) and rng is not None,
        return_lse=return_lse,
        platform=platform,
    )
    choice = decide(implementation, request)
    _log.debug("%s attention: %s.", *choice)
    plain = {
        "encoding": encoding,
        "params": params,
        "query": query,
        "key": key,
        "mask": mask,
        "scale": scale,
    }
    if choice.implementation == "fused":
        return fused(q, k, v, **plain, platform=platform)
    if choice.implementation == "pallas":
        return narrow(q, k, v, **plain)
    common = plain | {
        "row_scale": row_scale,
        "normalizer": normalizer,
        "normalizer_params": normalizer_params,
        "dropout_rate": dropout_rate,
        "seed": seed,
        "return_lse": return_lse,
        "first": (first_row, 0),
    }
    if choice.implementation == "dense":
        return dense(q, k, v, **common)
    sizes = block_sizes(mask, block_q, block_k, request.num_rows, q.shape[1])
    return blockwise(q, k, v, **common, block_q=sizes[0], block_k=sizes[1])
