"""Kernels for attention with a bias of head and offset, forward and backward.

Each program of the forward kernel keeps one block of queries of one head and walks over
the keys; one backward kernel does the same for the gradients of queries and of the
bias, another keeps a block of keys and walks over the queries (Dao 2023, arXiv
2307.08691). The bias is computed where it is needed, and the gradient to its numbers is
the vjp of its own formula there, so nothing is written by hand for any method.

A table cannot be gathered from inside Triton but by indexing its reference, which has
no vjp; its gradient is added up row by row, over the rows that a block can meet: one
where all offsets of the block lie beyond the table.

Written for Pallas' Triton backend. JAX 0.11 and later warn at lowering that this
backend will go (a DeprecationWarning, which Python does not show by default).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from ropejax.attention.visibility import NEGATIVE
from ropejax.attention.windows import Reach
from ropejax.encodings.bias_forms import BiasOfOffsets

INVISIBLE = -(2**31)
"""Segment of keys that no query sees."""


class Kernel(NamedTuple):
    """What is known when a kernel is compiled.

    Attributes:
        scale: factor on queries times keys.
        reach: which keys a query sees, by index.
        in_order: True if indices rise by one, so that blocks can be skipped.
        names: of the numbers that the bias needs, in order.
        function: the bias of numbers and offsets, or None.
        middle: row of offset 0 in the table, or None.
        block: tokens in a block.
        interpret: run step by step, wherever JAX runs.
    """

    scale: float
    reach: Reach
    in_order: bool
    names: tuple[str, ...]
    function: BiasOfOffsets | None
    middle: int | None
    block: int
    interpret: bool


class Arrays(NamedTuple):
    """What a kernel works on; lengths are multiples of the block.

    Attributes:
        q: queries, heads first.
        k: keys.
        v: values.
        numbers: of the bias, one row a head.
        table: of the bias, one row a head.
        q_place: index, segment and position of the queries.
        k_place: the same of the keys.
    """

    q: Float[Array, "B N T W"]
    k: Float[Array, "B K S W"]
    v: Float[Array, "B K S V"]
    numbers: Float[Array, "N P"]
    table: Float[Array, "N R"]
    q_place: Int[Array, "b 3 T"]
    k_place: Int[Array, "b 3 S"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def narrow_attention(kernel: Kernel, arrays: Arrays) -> Float[Array, "B N T V"]:
    """Returns outputs, heads first, float32; rows that see nothing are zero."""
    return _forward(kernel, arrays)[0]


def _forward(kernel, arrays):
    batch, heads, length, _ = arrays.q.shape
    width = arrays.v.shape[-1]
    out, lse = _call(
        _forward_kernel,
        kernel,
        arrays,
        (),
        length,
        out_q=((batch, heads, length, width), (batch, heads, length)),
    )
    return out, (arrays, out, lse)


def _backward(kernel, saved, d_out):
    arrays, out, lse = saved
    batch, heads, length, width = arrays.q.shape
    groups, size, v_width = arrays.v.shape[1:]
    delta = (d_out * out).sum(-1)
    more = (d_out.astype(arrays.v.dtype), lse, delta)
    blocks = length // kernel.block
    d_q, d_numbers, d_table = _call(
        _query_kernel,
        kernel,
        arrays,
        more,
        length,
        out_q=((batch, heads, length, width),),
        out_block=(
            (batch, heads, blocks, arrays.numbers.shape[1]),
            (batch, heads, blocks, arrays.table.shape[1]),
        ),
    )
    d_k, d_v = _call(
        _key_kernel,
        kernel,
        arrays,
        more,
        size,
        out_q=((batch, heads, size, width), (batch, heads, size, v_width)),
    )
    grouped = lambda x: x.reshape(batch, groups, -1, *x.shape[2:]).sum(2)
    grads = (
        d_q,
        grouped(d_k),
        grouped(d_v),
        d_numbers.sum((0, 2)),
        d_table.sum((0, 2)),
    )
    cast = [g.astype(x.dtype) for g, x in zip(grads, arrays[:5], strict=True)]
    return (Arrays(*cast, None, None),)


narrow_attention.defvjp(_forward, _backward)


def _call(body, kernel, arrays, more, length, out_q, out_block=()):
    """Runs a kernel for every block of `length`, head and row.

    All of a head's arrays are at hand; outputs are one block, or one row a block.
    """
    axes = jax.typeof(arrays.q).manual_axis_type
    group = arrays.q.shape[1] // arrays.k.shape[1]
    head = lambda i, n, b: (b, n, 0, 0)
    key_head = lambda i, n, b: (b, n // group, 0, 0)
    whole = lambda x, at: pl.BlockSpec((None, None, *x.shape[2:]), at)
    row = lambda x: pl.BlockSpec((None, x.shape[1]), lambda i, n, b: (n, 0))

    def place(x):
        once = x.shape[0] == 1
        at = lambda i, n, b: (0 if once else b, 0, 0)
        return pl.BlockSpec((None, *x.shape[1:]), at)

    def of_head(x):
        at = head if x.ndim == 4 else lambda i, n, b: (b, n, 0)
        return whole(x, at)

    def one_block(shape):
        if len(shape) == 4:
            spec = (None, None, kernel.block, shape[3])
            return pl.BlockSpec(spec, lambda i, n, b: (b, n, i, 0))
        return pl.BlockSpec((None, None, kernel.block), lambda i, n, b: (b, n, i))

    one_row = lambda shape: pl.BlockSpec(
        (None, None, None, shape[3]), lambda i, n, b: (b, n, i, 0)
    )
    return pl.pallas_call(
        functools.partial(body, kernel),
        out_shape=[
            jax.ShapeDtypeStruct(shape, jnp.float32, manual_axis_type=axes)
            for shape in (*out_q, *out_block)
        ],
        grid=(length // kernel.block, arrays.q.shape[1], arrays.q.shape[0]),
        in_specs=[
            whole(arrays.q, head),
            whole(arrays.k, key_head),
            whole(arrays.v, key_head),
            row(arrays.numbers),
            row(arrays.table),
            place(arrays.q_place),
            place(arrays.k_place),
            *map(of_head, more),
        ],
        out_specs=[*map(one_block, out_q), *map(one_row, out_block)],
        compiler_params=None if kernel.interpret else triton.CompilerParams(),
        interpret=kernel.interpret,
    )(*arrays, *more)


def _forward_kernel(kernel, *refs):
    refs, (out_ref, lse_ref) = Arrays(*refs[:7]), refs[7:]
    i = pl.program_id(0)
    q = refs.q[_at(kernel, i), :]
    size = kernel.block

    def visit(j, carry):
        top, total, out = carry
        logits = _logits(kernel, refs, q, refs.k[_at(kernel, j), :], i, j)[0]
        v = refs.v[_at(kernel, j), :]
        new_top = jnp.maximum(top, logits.max(1))
        floor = jnp.maximum(new_top, NEGATIVE / 2)
        weights = jnp.exp(logits - floor[:, None])
        shrink = jnp.exp(top - floor)
        total = total * shrink + weights.sum(1)
        out = out * shrink[:, None] + _dot(weights.astype(v.dtype), v)
        return new_top, total, out

    init = (
        jnp.full((size,), NEGATIVE, jnp.float32),
        jnp.zeros((size,), jnp.float32),
        jnp.zeros((size, refs.v.shape[-1]), jnp.float32),
    )
    first, last = _visited(kernel, refs.q_place, refs.k_place, i, kernel.reach)
    top, total, out = jax.lax.fori_loop(first, last, visit, init)
    some = total > 0
    total = jnp.where(some, total, 1.0)
    out_ref[...] = out / total[:, None]
    lse_ref[...] = jnp.where(some, top + jnp.log(total), -NEGATIVE)


def _query_kernel(kernel, *refs):
    """Gradients of a block of queries, and its share of those of the bias."""
    d_out_ref, lse_ref, delta_ref, d_q_ref, d_numbers_ref, d_table_ref = refs[7:]
    refs = Arrays(*refs[:7])
    i = pl.program_id(0)
    mine = _at(kernel, i)
    q, d_out = refs.q[mine, :], d_out_ref[mine, :]
    lse, delta = lse_ref[mine], delta_ref[mine]

    def visit(j, carry):
        d_q, d_numbers, d_table = carry
        k, v = refs.k[_at(kernel, j), :], refs.v[_at(kernel, j), :]
        logits, pull, rows = _logits(kernel, refs, q, k, i, j)
        weights = jnp.exp(logits - lse[:, None])
        d_logits = weights * (_dot(d_out, v.T) - delta[:, None])
        d_q = d_q + _dot(d_logits.astype(k.dtype), k)
        d_numbers = [a + b for a, b in zip(d_numbers, pull(d_logits), strict=True)]
        return d_q, d_numbers, _summed_by_row(d_table, d_logits, rows)

    init = (
        jnp.zeros(q.shape, jnp.float32),
        [jnp.zeros((), jnp.float32) for _ in kernel.names],
        jnp.zeros(d_table_ref.shape, jnp.float32),
    )
    first, last = _visited(kernel, refs.q_place, refs.k_place, i, kernel.reach)
    d_q, d_numbers, d_table = jax.lax.fori_loop(first, last, visit, init)
    d_q_ref[...] = d_q * kernel.scale
    d_table_ref[...] = d_table
    for at, number in enumerate(d_numbers):
        d_numbers_ref[at] = number


def _key_kernel(kernel, *refs):
    """Gradients of a block of keys and values, of one query head."""
    d_out_ref, lse_ref, delta_ref, d_k_ref, d_v_ref = refs[7:]
    refs = Arrays(*refs[:7])
    j = pl.program_id(0)
    k, v = refs.k[_at(kernel, j), :], refs.v[_at(kernel, j), :]

    def visit(i, carry):
        d_k, d_v = carry
        here = _at(kernel, i)
        q, d_out = refs.q[here, :], d_out_ref[here, :]
        logits = _logits(kernel, refs, q, k, i, j)[0]
        weights = jnp.exp(logits - lse_ref[here][:, None])
        d_logits = weights * (_dot(d_out, v.T) - delta_ref[here][:, None])
        d_v = d_v + _dot(weights.astype(d_out.dtype).T, d_out)
        return d_k + _dot(d_logits.astype(q.dtype).T, q), d_v

    init = jnp.zeros(k.shape, jnp.float32), jnp.zeros(v.shape, jnp.float32)
    back = Reach(kernel.reach.after, kernel.reach.before)
    first, last = _visited(kernel, refs.k_place, refs.q_place, j, back)
    d_k, d_v = jax.lax.fori_loop(first, last, visit, init)
    d_k_ref[...] = d_k * kernel.scale
    d_v_ref[...] = d_v


def _logits(kernel, refs, q, k, i, j) -> tuple[Array, Any, Any]:
    """Returns masked logits, the bias' vjp to its numbers, and the table's rows."""
    (q_index, q_segment, q_at), (k_index, k_segment, k_at) = (
        [place[row, _at(kernel, block)] for row in range(3)]
        for place, block in ((refs.q_place, i), (refs.k_place, j))
    )
    apart = k_index[None, :] - q_index[:, None]
    visible = q_segment[:, None] == k_segment[None, :]
    if kernel.reach.before is not None:
        visible &= apart >= -kernel.reach.before
    if kernel.reach.after is not None:
        visible &= apart <= kernel.reach.after
    logits = _dot(q, k.T) * kernel.scale
    offsets = k_at[None, :] - q_at[:, None]
    pull, rows = lambda _: [], None
    if kernel.function is not None:
        numbers = [refs.numbers[at] for at in range(len(kernel.names))]

        def bias(numbers):
            given = dict(zip(kernel.names, (x[None] for x in numbers), strict=True))
            return kernel.function(given, offsets[None])[0, 0]

        made, vjp = jax.vjp(bias, numbers)
        logits = logits + made
        pull = lambda d: vjp(d)[0]
    if kernel.middle is not None:
        row = lambda offset: jnp.clip(offset, -kernel.middle, kernel.middle)
        rows = row(offsets) + kernel.middle
        logits = logits + refs.table[rows]
    return jnp.where(visible, logits, NEGATIVE), pull, rows


def _summed_by_row(total, d_logits, rows):
    """Adds to each row of the table what its offsets in a block contribute."""
    if rows is None:
        return total
    every = jax.lax.iota(jnp.int32, total.shape[0])

    def add(row, total):
        share = jnp.where(rows == row, d_logits, 0.0).sum(1).sum(0)
        return total + jnp.where(every == row, share, 0.0)

    return jax.lax.fori_loop(rows.min(1).min(0), rows.max(1).max(0) + 1, add, total)


def _visited(kernel, own, others, block, reach):
    """Returns the first block that one block may see, and the one after the last."""
    count = others.shape[1] // kernel.block
    first, last = jnp.int32(0), jnp.int32(count)
    if not kernel.in_order:
        return first, last
    begin = own[0, block * kernel.block] - others[0, 0]
    if reach.before is not None:
        first = jax.lax.div(jnp.maximum(begin - reach.before, 0), kernel.block)
    if reach.after is not None:
        past = begin + (2 * kernel.block - 1 + reach.after)
        last = jnp.minimum(jax.lax.div(jnp.maximum(past, 0), kernel.block), count)
    return first, last


def _at(kernel, block):
    return pl.ds(block * kernel.block, kernel.block)


def _dot(a, b):
    """A product with float32 sums, float32 factors not rounded."""
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)
