"""Blockwise attention whose rows have a threshold: alpha-entmax in linear memory.

    p = max(0, z - tau) ** power,   power = 1 / (alpha - 1),
    z = (alpha - 1) (logit - top)

One pass over the keys finds a row's largest logit `top`. Each further one is a step of
Newton's method for tau, on the norm of a row instead of its sum:

    (sum max(0, z - tau) ** power) ** (1 / power) = 1

Up to alpha 2 it is convex in tau and falls, so that every step from tau = -1 on stays
left of the solution; and it is linear where logits are equal, so that few steps suffice
however many keys there are. The last pass gives outputs, and the mean of values under
the weights' slopes `s = p ** (2 - alpha)`. With it in the place of outputs the backward
pass is that of the softmax, since

    d_logits = s * (dP - sum(s * dP) / sum(s)),   sum(s * dP) / sum(s) = dO . mean
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.attention import online
from ropejax.attention.blocks import sliced
from ropejax.attention.visibility import NEGATIVE

_MOST_STEPS = 40  # of Newton's method; a few are usual
_SMALL_STEP = 1e-6  # the step after it would be as small as its square


class Rows(NamedTuple):
    """What makes weights out of a row's logits, each `[B, N, T]`.

    Attributes:
        top: the largest logit.
        tau: the threshold, relative to `top`.
        total: the sum of weights, one but for rounding.
    """

    top: Array
    tau: Array
    total: Array


def weights_above(alpha: float) -> Callable:
    """Returns the function `(logits, Rows) -> weights`.

    Args:
        alpha: above 1, at most 2.
    """

    def weights(logits: Float[Array, "B N T S"], rows: Rows) -> Array:
        above = _above(alpha, logits, rows.top, rows.tau)
        return _raised(above, 1 / (alpha - 1)) / rows.total[..., None]

    return weights


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def by_threshold(alpha: float, program: online.Program, params, q, k, fixed, plan):
    """Returns outputs `[B, T, N, H]`, float32, and thresholds `[B, N, T]`.

    Args:
        alpha: above 1, at most 2.
        program: what a block computes; weighs by `weights_above`.
        params: as for `online.online`, and so the others.
        q: arrays of the queries.
        k: arrays of the keys.
        fixed: arrays without gradients.
        plan: which key blocks each query block visits.
    """
    return _forward(alpha, program, params, q, k, fixed, plan)[0]


def _forward(alpha, program, params, q, k, fixed, plan):
    size, power = program.block_q, 1 / (alpha - 1)
    batch, heads, width = program.shape
    count = plan.count.shape[0]
    varying = functools.partial(online.varying, refs=(params, q, k, fixed, plan))

    def one_query_block(i, whole):
        q_i = sliced(q, i, size)
        zeros = varying(jnp.zeros((batch, heads, size), jnp.float32))
        zero_out = varying(jnp.zeros((batch, size, heads, width), jnp.float32))

        def over_keys(fold, init):
            def visit(t, carry):
                state, folded = carry
                j = plan.order[i, t]
                k_j = sliced(k, j, program.block_k)
                state, logits, mix = program.step(
                    params, q_i, k_j, fixed, i, j, plan.whole[i, j], state
                )
                return state, fold(folded, logits, mix)

            start = varying(program.start(params, q_i, fixed, i))
            return jax.lax.fori_loop(0, plan.count[i], visit, (start, init))[1]

        top = over_keys(
            lambda top, logits, _: jnp.maximum(top, logits.max(-1)), zeros + NEGATIVE
        )
        top = jnp.maximum(top, NEGATIVE / 2)  # masked logits stay below any threshold

        def sums(folded, logits, tau):
            above = _above(alpha, logits, top, tau)
            weights, slopes = _raised(above, power), _raised(above, power - 1)
            folded = folded[0] + weights.sum(-1), folded[1] + slopes.sum(-1)
            return folded, weights, slopes

        def newton(carry):
            n, tau, _ = carry
            fold = lambda folded, logits, _: sums(folded, logits, tau)[0]
            total, slope = over_keys(fold, (zeros, zeros))
            some = total > 0
            total, slope = jnp.where(some, total, 1.0), jnp.where(some, slope, 1.0)
            step = total * (1 - total ** (-1 / power)) / slope
            return n + 1, tau + step, jnp.abs(step).max()

        def goes_on(carry):
            n, _, step = carry
            return (n < _MOST_STEPS) & (step > _SMALL_STEP)

        begin = (varying(jnp.int32(0)), zeros - 1, varying(jnp.float32(1)))
        _, tau, _ = jax.lax.while_loop(goes_on, newton, begin)

        def last(folded, logits, mix):
            folded, out, mean = folded
            folded, weights, slopes = sums(folded, logits, tau)
            return folded, out + mix(weights), mean + mix(slopes)

        begin = ((zeros, zeros), zero_out, zero_out)
        (total, slope), out, mean = over_keys(last, begin)
        total, slope = (jnp.where(total > 0, x, 1.0) for x in (total, slope))
        found = (
            out / _of_tokens(total),
            mean / _of_tokens(slope),
            Rows(top, tau, total),
        )
        return jax.tree.map(
            lambda all_of, x, axis: jax.lax.dynamic_update_slice_in_dim(
                all_of, x, i * size, axis
            ),
            whole,
            found,
            axes,
        )

    axes = (1, 1, Rows(2, 2, 2))
    outputs = jnp.zeros((batch, count * size, heads, width), jnp.float32)
    row = jnp.zeros((batch, heads, count * size), jnp.float32)
    whole = varying((outputs, outputs, Rows(row, row, row)))
    out, mean, rows = jax.lax.fori_loop(0, count, one_query_block, whole)
    return (out, rows.tau), (params, q, k, fixed, plan, mean, rows)


def _backward(alpha, program, saved, cotangents):
    return online.backward(program, saved, (cotangents[0], None))


by_threshold.defvjp(_forward, _backward)


def _above(alpha, logits, top, tau) -> Float[Array, "B N T S"]:
    return (alpha - 1) * (logits - top[..., None]) - tau[..., None]


def _raised(above: Array, power: float) -> Array:
    """Returns `above ** power` where above is positive, else zero; NaN stays NaN."""
    nothing = above <= 0
    power = int(power) if float(power).is_integer() else power
    return jnp.where(nothing, 0.0, jnp.where(nothing, 1.0, above) ** power)


def _of_tokens(rows: Float[Array, "B N T"]) -> Float[Array, "B T N 1"]:
    return jnp.swapaxes(rows, 1, 2)[..., None]
