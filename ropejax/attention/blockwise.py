"""Exact attention block by block: memory linear in length, any encoding, any mask.

The engine of choice wherever the whole matrix of logits is too large: it runs where JAX
runs, gives gradients to everything an encoding may learn, and skips the blocks that the
mask, the segments or the padding rule out.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from ropejax.attention import blocks
from ropejax.attention.closures import Opened, given_all, opened
from ropejax.attention.counts import visible_counts
from ropejax.attention.dropout import kept_pairs
from ropejax.attention.gather import gathered_tokens
from ropejax.attention.normalizers import MeanLogit, Normalizer, Softmax
from ropejax.attention.online import Program, online
from ropejax.attention.products import weighted_heads
from ropejax.attention.requests import current_platform
from ropejax.attention.reverse_only import reverse_only
from ropejax.attention.ring import Around, online_around
from ropejax.attention.thresholds import by_threshold, weights_above
from ropejax.attention.visibility import (
    NEGATIVE,
    is_hidden,
    times_rows,
    visible_pairs,
)
from ropejax.encodings.base import Encoding
from ropejax.encodings.hook_shapes import checked, outputs_of
from ropejax.manual_axes import varying_like
from ropejax.tokens import Tokens
from ropejax.typing import Params


def blockwise(
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
    block_q: int = 256,
    block_k: int = 128,
    first: tuple[int | Array, int | Array] = (0, 0),
    around: str | None = None,
):
    """Attends as `dense` does, without ever holding more than a block of logits.

    Args:
        q: queries, `[B, T, N, H]`.
        k: keys, `[B, S, K, H]`, N a multiple of K.
        v: values, `[B, S, K, Hv]`.
        encoding: settings of the position encoding.
        params: what its `prepare` returned.
        query: where the queries are.
        key: where the keys are, by rising index if a method has a carry.
        mask: a mask or None.
        scale: factor on queries times keys; an array has at most an axis of N heads.
        row_scale: factor on the final logits of each query and head, or None.
        normalizer: what turns logits into weights; a softmax if None.
        normalizer_params: its parameters.
        dropout_rate: probability of dropping a weight.
        seed: two random words for dropout, or None for none.
        return_lse: also return the log-sum-exp, `[B, N, T]`, differentiable.
        block_q: most queries in a block.
        block_k: most keys in a block.
        first: row and head of the whole batch with which these start: dropout.
        around: mesh axis over whose devices keys are spread, each as many, inside
            `jax.shard_map`; they are passed around. None: all keys are here.

    Returns:
        Outputs `[B, T, N, Hv]` in q's dtype, and the log-sum-exp if asked for.

    Raises:
        ValueError: if the normalizer has thresholds and keys go around, or a method
            closes over a traced value.
        TypeError: in forward-mode differentiation (`jax.jvp`, `jax.jacfwd`), and when
            gradients are differentiated.

    References:
        Rabe and Staats 2021, arXiv 2112.05682; Dao et al. 2022, arXiv 2205.14135.
    """
    grid_q = blocks.grid(q.shape[1], block_q)
    grid_k = blocks.grid(k.shape[1], block_k)
    whole_query, dtype = query, q.dtype
    q_views = encoding.queries(params, q, query)
    k_views = encoding.keys(params, k, key)
    values = encoding.values(params, v, key)
    normalizer = Softmax() if normalizer is None else normalizer
    if normalizer.needs_entropy:
        entropy = _entropy(
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
            block_q=block_q,
            block_k=block_k,
            around=around,
        )
        sharp = jnp.swapaxes(normalizer.sharpness(entropy), 1, 2)
        row_scale = sharp if row_scale is None else sharp * row_scale
    counts = None
    if normalizer.needs_counts:
        everywhere = key if around is None else gathered_tokens(key, around)
        counts = visible_counts(query, everywhere, mask)
    rows = (_as_rows(row_scale, query), _as_rows(counts, query))
    table = _table(key.distances, grid_q.pad + grid_k.pad)
    shared = {
        "params": params,
        "normalizer": normalizer_params,
        "scale": scale,
        "distances": table,
        "seed": seed if dropout_rate else None,
        "first": first if dropout_rate else None,
    }
    query = blocks.padded_tokens(query, grid_q, keys=False)
    key = blocks.padded_tokens(key, grid_k, keys=True)
    visits = functools.partial(
        blocks.plan,
        mask=mask,
        q=grid_q,
        k=grid_k,
        nearest_first=encoding.has_carry or normalizer.has_carry,
        skip_between=not encoding.has_carry or encoding.carry_skips_hidden,
    )
    query_side = _Split.of((*blocks.padded((q_views, rows), grid_q), query))
    key_side = _Split.of((*blocks.padded((k_views, values), grid_k), key))
    shared = _Split.of(shared)
    specs = (shared.spec, query_side.spec, key_side.spec)
    width = 1 if normalizer.measures else values.shape[-1]
    shape = (q.shape[0], q.shape[2], width)
    arrays = (
        shared.floats,
        query_side.floats,
        key_side.floats,
        (shared.others, query_side.others, key_side.others),
    )
    arrays = jax.tree.map(lambda x: varying_like(x, arrays), arrays)
    *floats, fixed = arrays
    sizes = (grid_q.size, grid_k.size)
    some = _first_blocks(specs, floats, fixed, sizes)
    shown = opened(mask, *some)
    fixed = ((fixed[0], shown.closed), *fixed[1:])
    methods = (encoding, shown, normalizer, dropout_rate)
    program = _program(*methods, specs, shape, sizes)
    floats = jax.tree.map(reverse_only, floats)
    if normalizer.has_threshold and around is not None:
        raise ValueError(
            f"{type(normalizer).__name__} passes over all keys several times, and "
            'cannot go around a ring; use SequenceParallel("ulysses").'
        )
    with given_all():
        if normalizer.has_threshold:
            alpha = float(normalizer.alpha)
            out, lse = by_threshold(alpha, program, *floats, fixed, visits(query, key))
        elif around is None:
            out, lse = online(program, *floats, fixed, visits(query, key))
        else:
            plan = lambda fixed: visits(
                query_side.spec.known(fixed[1])[-1], key_side.spec.known(fixed[2])[-1]
            )
            out, lse = online_around(program, Around(around, plan), *floats, fixed)
    out, lse = out[:, : whole_query.length], lse[:, :, : whole_query.length]
    lse = jnp.where(lse == jnp.inf, -jnp.inf, lse)
    if normalizer.measures:
        return out, lse
    out, lse = normalizer.finish(normalizer_params, out, lse)
    out = outputs_of(encoding, params, out, whole_query).astype(dtype)
    return (out, lse) if return_lse else out


def _entropy(q, k, v, **common) -> Float[Array, "B N T"]:
    """Returns the entropy of each row of softmax weights: lse minus the mean logit."""
    mean, lse = blockwise(q, k, v, normalizer=MeanLogit(), return_lse=True, **common)
    seen = jnp.isfinite(lse)
    mean = jnp.swapaxes(mean[..., 0], 1, 2)
    return jnp.where(seen, jnp.where(seen, lse, 0.0) - mean, 0.0)


def _table(distances: Array | None, pad: int) -> Array | None:
    """Returns the table as long as padding needs: tokens in order go on past the end.

    Of pairs that nobody sees the distance matters, as their gradient is zero times it.
    """
    if distances is None or not pad:
        return distances
    return jnp.pad(distances, ((0, 0), (0, pad)), mode="edge")


def _as_rows(x: Array | None, query: Tokens) -> Array | None:
    if x is None:
        return None
    return jnp.broadcast_to(x, (x.shape[0], query.length, x.shape[2]))


def _first_blocks(specs, floats, fixed, sizes) -> tuple[Tokens, Tokens]:
    """Returns the Tokens of a block of queries and of keys, as a mask sees them."""
    shared, *sides = (
        spec.joined(*x) for spec, *x in zip(specs, floats, fixed, strict=True)
    )
    query, key = (
        blocks.sliced(side[-1], 0, size)
        for side, size in zip(sides, sizes, strict=True)
    )
    return query, key.replace(distances=shared["distances"])


def _program(
    encoding: Encoding,
    shown: Opened,
    normalizer: Normalizer,
    dropout_rate: float,
    specs: "tuple[_Spec, _Spec, _Spec]",
    shape: tuple[int, int, int],
    sizes: tuple[int, int],
) -> Program:
    shared_spec, query_spec, key_spec = specs

    def queries(params, q_i, fixed, i):
        shared = shared_spec.joined(params, fixed[0][0])
        others = blocks.sliced(fixed[1], i, sizes[0])
        return shared, query_spec.joined(q_i, others)

    def start(params, q_i, fixed, i):
        shared, (views, _, query) = queries(params, q_i, fixed, i)
        state = ()
        if encoding.has_carry:
            state = encoding.init_carry(shared["params"], views, query)
        return state, normalizer.init_carry((*shape[:2], sizes[0]))

    def step(params, q_i, k_j, fixed, i, j, whole, state):
        shared, (q_views, rows, query) = queries(params, q_i, fixed, i)
        others = blocks.sliced(fixed[2], j, sizes[1])
        k_views, values, key = key_spec.joined(k_j, others)
        key = key.replace(distances=shared["distances"])
        row_scale, counts = rows
        params = shared["params"]
        mask = shown.of(fixed[0][1])
        visible = visible_pairs(query, key, mask)
        carried, left = state
        carried, logits = encoding.score(
            params, carried, q_views, k_views, query, key, visible, shared["scale"]
        )
        logits = logits.astype(jnp.float32)
        if row_scale is not None:
            logits = times_rows(logits, row_scale)
        left, logits = normalizer.log_weights(
            shared["normalizer"], left, logits, visible, counts
        )
        logits = logits.astype(jnp.float32)  # parameters may be float64
        # Asked anew, so that it is computed only where this branch is taken.
        masked = lambda logits: jnp.where(
            visible_pairs(query, key, mask), logits, NEGATIVE
        )
        if current_platform() == "cpu":
            # The condition does more than spare the mask: its result is stored, where
            # XLA would compute logits twice, for the maximum and in the exponentials.
            logits = jax.lax.cond(whole, lambda logits: logits, masked, logits)
        else:
            logits = masked(logits)  # each condition would stop an accelerator

        def mix(weights):
            if normalizer.measures:
                mean = (weights * jnp.where(is_hidden(logits), 0.0, logits)).sum(-1)
                return jnp.swapaxes(mean, 1, 2)[..., None]
            if shared["seed"] is not None:
                keep = kept_pairs(
                    shared["seed"], dropout_rate, shape[:2], query, key, shared["first"]
                )
                weights = jnp.where(keep, weights / (1 - dropout_rate), 0.0)
            if not encoding.has_mix:
                return weighted_heads(weights, values)
            mixed = encoding.mix(params, weights, values, query, key)
            rows, heads, queries, _ = weights.shape
            checked(encoding, "mix", mixed, (rows, queries, heads, None))
            return mixed.astype(jnp.float32)

        return (carried, left), logits, mix

    program = Program(start, step, normalizer.normalized, *sizes, shape)
    if normalizer.has_threshold:
        return program._replace(weigh=weights_above(float(normalizer.alpha)))
    return program


class _Spec(NamedTuple):
    """How a pytree was split into floating-point arrays and others."""

    treedef: Any
    is_float: tuple[bool, ...]

    def known(self, others: list) -> Any:
        """Returns the pytree with None for what is floating-point."""
        return self.joined([None] * sum(self.is_float), others)

    def joined(self, floats: list, others: list) -> Any:
        floats, others = iter(floats), iter(others)
        leaves = [next(floats) if f else next(others) for f in self.is_float]
        return jax.tree.unflatten(self.treedef, leaves)


class _Split(NamedTuple):
    floats: list
    others: list
    spec: _Spec

    @classmethod
    def of(cls, tree: Any) -> "_Split":
        leaves, treedef = jax.tree.flatten(tree)
        leaves = [jnp.asarray(x) for x in leaves]
        is_float = tuple(jnp.issubdtype(x.dtype, jnp.inexact) for x in leaves)
        floats = [x for x, f in zip(leaves, is_float, strict=True) if f]
        others = [x for x, f in zip(leaves, is_float, strict=True) if not f]
        return cls(floats, others, _Spec(treedef, is_float))
