"""The loop behind blockwise attention, and its backward pass.

Forward, a query block walks over the key blocks that it may see, keeping a running
maximum and sum (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv
2205.14135). Backward, every block is computed again from the saved log-sum-exp `lse`,
and one gradient of

    sum(dO * mix(P, v)) - sum(P * D),   P = exp(logits - lse),   D = sum(dO * O) - dlse

gives the gradients of queries, keys, values, features and parameters at once, whatever
the encoding computes inside the block. Neither pass forms more than one block of
logits.

Some methods carry a state from nearer to farther keys. Its values before each block are
then computed again, kept for one query block at a time, and their gradients walk back
from the farthest key to the nearest.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ropejax.attention.blocks import Plan, sliced
from ropejax.attention.closures import given_all
from ropejax.attention.reverse_only import once_only
from ropejax.attention.visibility import NEGATIVE
from ropejax.manual_axes import varying_like


class Program(NamedTuple):
    """What a block computes: functions of (parameters, query block, key block).

    The three arguments are lists of floating-point arrays, which get gradients; `fixed`
    holds all other arrays.

    Attributes:
        start: `(params, q, fixed, i) -> state` before the first key block.
        step: `(params, q, k, fixed, i, j, whole, state) -> (state, log_weights, mix)`,
            with log_weights `NEGATIVE` where invisible, and mix a function of weights;
            `whole` says that every pair is visible.
        normalized: divide by the sum of weights (softmax).
        block_q: queries in a block.
        block_k: keys in a block.
        shape: batch, query heads and width of the outputs.
        weigh: `(log_weights, rows) -> weights`, in the backward pass of `normalized`
            ones: rows are numbers `[B, N, T]` of the forward pass, the log-sum-exp.
    """

    start: Callable
    step: Callable
    normalized: bool
    block_q: int
    block_k: int
    shape: tuple[int, int, int]
    weigh: Callable = lambda logits, lse: jnp.exp(logits - lse[..., None])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def online(program: Program, params: list, q: list, k: list, fixed: Any, plan: Plan):
    """Returns outputs `[B, T, N, H]`, float32, and the log-sum-exp `[B, N, T]`.

    The log-sum-exp of a row that sees no key is plus infinity here, so that the weights
    `exp(logits - lse)` are zero.

    Args:
        program: what a block computes.
        params: floating-point parameters.
        q: arrays of the queries, `[B, T, ...]`, T a multiple of block_q.
        k: arrays of the keys, `[B, S, ...]`, S a multiple of block_k.
        fixed: arrays without gradients.
        plan: which key blocks each query block visits.
    """
    return forward(program, params, q, k, fixed, plan)[0]


def forward(program, params, q, k, fixed, plan):
    """Returns what `online` does, and what its backward pass needs."""
    refs = (params, q, k, fixed, plan)
    size = program.block_q
    batch, heads, width = program.shape
    rows = (batch, heads, size)

    def one_query_block(i, whole):
        q_i = _turned(sliced(q, i, size))

        def visit(t, carry):
            j = plan.order[i, t]
            state, top, total, out = carry
            k_j = sliced(k, j, program.block_k)
            state, logits, mix = program.step(
                params, _turned(q_i), k_j, fixed, i, j, plan.whole[i, j], state
            )
            if not program.normalized:
                return state, top, total, out + _heads_first(mix(jnp.exp(logits)))
            new_top = jnp.maximum(top, logits.max(-1))
            floor = jnp.maximum(new_top, NEGATIVE / 2)  # masked logits give exactly 0
            weights = jnp.exp(logits - floor[..., None])
            shrink = jnp.exp(top - floor)
            total = total * shrink + weights.sum(-1)
            out = out * shrink[..., None] + _heads_first(mix(weights))
            return state, new_top, total, out

        init = (
            program.start(params, _turned(q_i), fixed, i),
            jnp.full(rows, NEGATIVE if program.normalized else 0.0, jnp.float32),
            jnp.zeros(rows, jnp.float32),
            jnp.zeros((*rows, width), jnp.float32),
        )
        carry = jax.lax.fori_loop(0, plan.count[i], visit, varying(init, refs))
        _, top, total, out = carry
        lse = total
        if program.normalized:
            some = total > 0
            total = jnp.where(some, total, 1.0)
            out = out / total[..., None]
            lse = jnp.where(some, top + jnp.log(total), jnp.inf)
        return (
            _put(whole[0], _heads_first(out), i, size, axis=1),
            _put(whole[1], lse, i, size, axis=2),
        )

    count = plan.count.shape[0]
    init = (
        jnp.zeros((batch, count * size, heads, width), jnp.float32),
        jnp.zeros((batch, heads, count * size), jnp.float32),
    )
    out, lse = jax.lax.fori_loop(0, count, one_query_block, varying(init, refs))
    return (out, lse), (params, q, k, fixed, plan, out, lse)


def backward(program, saved, cotangents):
    """Returns gradients of (params, q, k), None for what has none.

    `out` and `lse` among `saved` may be of more keys than `k` (a ring's), and then the
    gradients are those of these keys' share. Where rows are no log-sum-exp, they are
    what `program.weigh` takes, and there is no cotangent of theirs.
    """
    params, q, k, *_ = saved
    sums = gradients(program, saved, cotangents)
    return (
        *(as_types(x, of) for x, of in zip(sums, (params, q, k), strict=True)),
        None,
        None,
    )


def gradients(program, saved, cotangents):
    """Returns the gradients of `backward` that there are, in float32 at least.

    They are sums over blocks: of bfloat16 numbers the last ones would be lost.

    Raises:
        ValueError: if a block computes with a traced value that it was not given.
    """
    with given_all():
        return _gradients(program, saved, cotangents)


def _gradients(program, saved, cotangents):
    params, q, k, fixed, plan, out, lse = saved
    params, q, k = jax.tree.map(once_only, (params, q, k))
    d_out, d_lse = cotangents
    refs = (params, q, k, fixed, plan, d_out)
    size, key_size = program.block_q, program.block_k
    one = varying_like(jnp.ones((), jnp.float32), refs)

    def one_query_block(i, carry):
        d_params, d_q, d_k = carry
        q_i = _turned(sliced(q, i, size))
        d_out_i = _heads_first(sliced(d_out, i, size))
        lse_i, d_lse_i = jax.tree.map(
            lambda x: jax.lax.dynamic_slice_in_dim(x, i * size, size, axis=2),
            (lse, d_lse),
        )
        if program.normalized:
            delta = (d_out_i * _heads_first(sliced(out, i, size))).sum(-1)
            if d_lse is not None:
                delta = delta - jnp.where(jnp.isfinite(lse_i), d_lse_i, 0.0)
        start, start_vjp = jax.vjp(
            lambda params, q_i: varying(
                program.start(params, _turned(q_i), fixed, i), refs
            ),
            params,
            q_i,
        )
        before = _states_before(program, params, q_i, k, fixed, plan, i, start)

        def surrogate(params, q_i, k_j, state, j):
            state, logits, mix = program.step(
                params, _turned(q_i), k_j, fixed, i, j, plan.whole[i, j], state
            )
            if not program.normalized:
                return jnp.sum(d_out_i * _heads_first(mix(jnp.exp(logits)))), state
            weights = program.weigh(logits, lse_i)
            mixed = jnp.sum(d_out_i * _heads_first(mix(weights)))
            return mixed - jnp.sum(weights * delta[..., None]), state

        def visit(step, carry):
            d_params, d_q_i, d_k, d_state = carry
            t = plan.count[i] - 1 - step
            j = plan.order[i, t]
            k_j = sliced(k, j, key_size)
            state = jax.tree.map(lambda x: x[t], before)
            _, vjp = jax.vjp(functools.partial(surrogate, j=j), params, q_i, k_j, state)
            g_params, g_q, g_k, d_state = vjp((one, d_state))
            d_k = [
                _put(whole, old + g.astype(old.dtype), j, key_size, axis=1)
                for whole, old, g in zip(
                    d_k, sliced(d_k, j, key_size), g_k, strict=True
                )
            ]
            return add(d_params, g_params), add(d_q_i, g_q), d_k, d_state

        init = (d_params, wide_zeros(q_i), d_k, _zeros(start))
        d_params, d_q_i, d_k, d_state = jax.lax.fori_loop(
            0, plan.count[i], visit, varying(init, refs)
        )
        g_params, g_q = start_vjp(d_state)
        d_q_i = _turned(add(d_q_i, g_q))
        d_q = [_put(w, x, i, size, axis=1) for w, x in zip(d_q, d_q_i, strict=True)]
        return add(d_params, g_params), d_q, d_k

    init = varying((wide_zeros(params), wide_zeros(q), wide_zeros(k)), refs)
    return jax.lax.fori_loop(0, plan.count.shape[0], one_query_block, init)


online.defvjp(forward, backward)


def _states_before(program, params, q_i, k, fixed, plan, i, start):
    """Returns the state before each visit, stacked; nothing if there is no state."""
    if not jax.tree.leaves(start):
        return start
    visits = plan.order.shape[1]

    def visit(t, carry):
        state, before = carry
        before = jax.tree.map(lambda b, s: b.at[t].set(s), before, state)
        j = plan.order[i, t]
        k_j = sliced(k, j, program.block_k)
        state, _, _ = program.step(
            params, _turned(q_i), k_j, fixed, i, j, plan.whole[i, j], state
        )
        return state, before

    before = jax.tree.map(lambda s: jnp.zeros((visits, *s.shape), s.dtype), start)
    init = varying((start, before), (params, q_i, k, fixed, plan))
    return jax.lax.fori_loop(0, plan.count[i], visit, init)[1]


def varying(tree, refs):
    """Returns a pytree of arrays, declared to vary over devices as `refs` do."""
    return jax.tree.map(functools.partial(varying_like, refs=refs), tree)


def _put(whole: Array, block: Array, i, size: int, axis: int) -> Array:
    block = block.astype(whole.dtype)
    return jax.lax.dynamic_update_slice_in_dim(whole, block, i * size, axis)


def _turned(views: list) -> list:
    """Returns views `[B, T, N, H]` with heads before tokens, or the other way round.

    Turned once a query block, its products with all key blocks read memory in order.
    """
    return [_heads_first(x) if x.ndim == 4 else x for x in views]


def _zeros(tree):
    return jax.tree.map(jnp.zeros_like, tree)


def wide_zeros(tree):
    """Returns where to add up gradients of a pytree: zeros, in float32 at least."""
    return jax.tree.map(
        lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), tree
    )


def as_types(tree, of):
    """Returns a pytree in the dtypes of another."""
    return jax.tree.map(lambda x, like: x.astype(like.dtype), tree, of)


def add(sums, more):
    """Returns sums of two pytrees, in the dtypes of the first."""
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums, more)


def _heads_first(out: Array) -> Array:
    return jnp.swapaxes(out, 1, 2)
