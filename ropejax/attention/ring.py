"""Blockwise attention whose keys are spread over a mesh axis and passed around.

Each device keeps its queries. Keys, values and all that is known of the key tokens go
from neighbour to neighbour, and after as many hops as there are devices every query has
met every key. Results of the hops are merged by their log-sum-exp:

    lse = logaddexp(lse_1, lse_2),   out = e^(lse_1 - lse) out_1 + e^(lse_2 - lse) out_2

The backward pass goes around once more: keys travel again, with their gradients adding
up beside them, until both are home. So memory does not grow with the number of hops.
Tokens carry their index and positions by value; a hop is nothing that a mask or an
encoding could notice.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ropejax.attention import online
from ropejax.attention.blocks import Plan
from ropejax.attention.visibility import NEGATIVE
from ropejax.manual_axes import varying_like


class Around(NamedTuple):
    """How keys go around.

    Attributes:
        axis: the mesh axis, manual (inside `jax.shard_map`).
        plan: `(fixed) -> Plan`, which key blocks each query block visits in a hop.
    """

    axis: str
    plan: Callable[[Any], Plan]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def online_around(
    program: online.Program, around: Around, params: list, q: list, k: list, fixed: Any
):
    """Returns outputs and log-sum-exp as `online` does, over the keys of all devices.

    Args:
        program: what a block computes; without a state from key to key.
        around: how keys go around.
        params: floating-point parameters.
        q: arrays of this device's queries, `[B, T, ...]`.
        k: arrays of this device's keys, `[B, S, ...]`.
        fixed: arrays without gradients, of `(params, queries, keys)`; the last travel.

    References:
        Liu et al. 2023, "Ring Attention with Blockwise Transformers for Near-Infinite
        Context", arXiv 2310.01889.

    Departures:
        Keys make one hop more than needed, back home, so that one compiled block serves
        all hops; it overlaps with computation like the others.
    """
    return _forward(program, around, params, q, k, fixed)[0]


def _forward(program, around, params, q, k, fixed):
    shared, queries, keys = fixed

    def hop(_, carry):
        out, lse, k, keys = carry
        coming = _passed_on((k, keys), around.axis)
        here = (shared, queries, keys)
        (o, l), _ = online.forward(program, params, q, k, here, around.plan(here))
        if program.normalized:
            out, lse = _merged(out, lse, o, jnp.where(l == jnp.inf, NEGATIVE, l))
        else:
            out = out + o
        return out, lse, *coming

    batch, heads, width = program.shape
    length = _length(around.plan(fixed), program.block_q)
    least = NEGATIVE if program.normalized else 0.0
    start = (
        jnp.zeros((batch, length, heads, width), jnp.float32),
        jnp.full((batch, heads, length), least, jnp.float32),
    )
    refs = (params, q, k, fixed)
    start = jax.tree.map(lambda x: varying_like(x, refs), start)
    size = jax.lax.axis_size(around.axis)
    out, lse, _, _ = jax.lax.fori_loop(0, size, hop, (*start, k, keys))
    lse = jnp.where(lse < NEGATIVE / 2, jnp.inf, lse)
    return (out, lse), (params, q, k, fixed, out, lse)


def _backward(program, around, saved, cotangents):
    params, q, k, fixed, out, lse = saved
    shared, queries, keys = fixed

    def hop(_, carry):
        d_params, d_q, k, d_k, keys = carry
        coming = _passed_on((k, keys), around.axis)
        here = (shared, queries, keys)
        hop_saved = (params, q, k, here, around.plan(here), out, lse)
        g_params, g_q, g_k = online.gradients(program, hop_saved, cotangents)
        d_k = _passed_on(online.add(d_k, g_k), around.axis)
        d_params, d_q = online.add((d_params, d_q), (g_params, g_q))
        return d_params, d_q, coming[0], d_k, coming[1]

    refs = (params, q, k, fixed, cotangents)
    zeros = online.varying(online.wide_zeros((params, q, k)), refs)
    size = jax.lax.axis_size(around.axis)
    d_params, d_q, _, d_k, _ = jax.lax.fori_loop(
        0, size, hop, (zeros[0], zeros[1], k, zeros[2], keys)
    )
    return *online.as_types((d_params, d_q, d_k), (params, q, k)), None


online_around.defvjp(_forward, _backward)


def _passed_on(tree: Any, axis: str) -> Any:
    """Sends every leaf to the next device, and receives the previous one's."""
    size = jax.lax.axis_size(axis)
    to_next = [(i, (i + 1) % size) for i in range(size)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, axis, to_next), tree)


def _merged(
    out: Array, lse: Array, more_out: Array, more_lse: Array
) -> tuple[Array, Array]:
    both = jnp.logaddexp(lse, more_lse)
    share = lambda part: jnp.swapaxes(jnp.exp(part - both), 1, 2)[..., None]
    return out * share(lse) + more_out * share(more_lse), both


def _length(plan: Plan, block_q: int) -> int:
    return plan.count.shape[0] * block_q
