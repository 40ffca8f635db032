"""Attention with a bias of head and offset, in kernels of its own: ALiBi, KERPLE, T5.

Only by name, `implementation="pallas"`, on NVIDIA GPUs. It serves what
`ropejax.attention.fused` does and biases that do not factor, with gradients to their
numbers and tables; masks and positions go by value. Tested in interpret mode and by
lowering for a GPU; it has not run on one, so neither its speed nor its rounding there
is known. The compiler does not cut it over devices: on several, attend inside
`jax.shard_map`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.attention.narrow_kernels import INVISIBLE, Arrays, Kernel, narrow_attention
from ropejax.attention.online import varying_like
from ropejax.attention.reverse_only import reverse_only
from ropejax.attention.windows import as_window
from ropejax.encodings.base import Encoding
from ropejax.encodings.bias_forms import NarrowBias
from ropejax.encodings.hook_shapes import outputs_of
from ropejax.tokens import Tokens
from ropejax.typing import Params

_BLOCK = 64
_LEAST = 16  # Triton multiplies no smaller blocks


def narrow(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    *,
    encoding: Encoding,
    params: Params,
    query: Tokens,
    key: Tokens,
    mask=None,
    scale: float,
    block: int = _BLOCK,
    interpret: bool = False,
) -> Float[Array, "B T N H"]:
    """Attends as `dense` does, in Pallas kernels.

    Arguments are those of `dense`, of which the mask is a window or None, the scale a
    number, and others are not served. `block` is the number of tokens in a block, a
    power of two of at least 16; `interpret` runs step by step, wherever JAX runs: for
    tests.

    Returns:
        Outputs `[B, T, N, Hv]` in q's dtype.

    Raises:
        ValueError: if the block is no power of two, or below 16.
    """
    if block < _LEAST or block & (block - 1):
        raise ValueError(f"block must be a power of two, at least 16, got {block}.")
    bias = encoding.narrow_bias(params) if encoding.has_bias else NarrowBias()
    num_heads, dtype, width = q.shape[2], q.dtype, v.shape[-1]
    numbers, table = _of_heads(bias, num_heads)
    views = (
        encoding.queries(params, q, query)[0],
        encoding.keys(params, k, key)[0],
        encoding.values(params, v, key),
    )
    kernel = Kernel(
        scale=scale,
        reach=as_window(mask),
        in_order=query.consecutive_index and key.consecutive_index,
        names=() if bias.numbers is None else tuple(sorted(bias.numbers)),
        function=bias.function,
        middle=None if bias.table is None else bias.table.shape[1] // 2,
        block=block,
        interpret=interpret,
    )
    arrays = Arrays(
        *(_heads_first(x.astype(dtype), block) for x in views),
        numbers,
        table,
        _places(query, key, block, keys=False),
        _places(key, query, block, keys=True),
    )
    arrays = jax.tree.map(lambda x: varying_like(x, arrays), arrays)
    floats = (reverse_only(x) for x in arrays[:5])
    arrays = Arrays(*floats, arrays.q_place, arrays.k_place)
    out = narrow_attention(kernel, arrays)[:, :, : query.length, :width]
    out = jnp.swapaxes(out, 1, 2).astype(dtype)
    return outputs_of(encoding, params, out, query).astype(dtype)


def _of_heads(bias: NarrowBias, num_heads: int):
    """Returns numbers `[N, P]` and a table `[N, R]`, R a power of two, or zeros."""
    numbers = nothing = jnp.zeros((num_heads, 1), jnp.float32)
    if bias.numbers:
        every = [bias.numbers[name] for name in sorted(bias.numbers)]
        numbers = jnp.stack(every, axis=1).astype(jnp.float32)
    if bias.table is None:
        return numbers, nothing
    size = bias.table.shape[1]
    padding = ((0, 0), (0, _power_of_two(size) - size))
    return numbers, jnp.pad(bias.table.astype(jnp.float32), padding)


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _heads_first(x: Float[Array, "B L N H"], block: int) -> Float[Array, "B N M W"]:
    """Returns heads before tokens, length and width filled up with zeros."""
    width = max(_power_of_two(x.shape[-1]), _LEAST) - x.shape[-1]
    padding = ((0, 0), (0, -x.shape[1] % block), (0, 0), (0, width))
    return jnp.swapaxes(jnp.pad(x, padding), 1, 2)


def _places(
    where: Tokens, other: Tokens, block: int, *, keys: bool
) -> Int[Array, "b 3 M"]:
    """Returns index, segment and position of each token; filling is invisible."""
    segments = jnp.zeros((1, where.length), jnp.int32)
    if where.segments is not None and other.segments is not None:
        segments = where.segments.astype(jnp.int32)
    if keys and where.valid is not None:
        segments = jnp.where(where.valid, segments, INVISIBLE)
    positions = where.positions
    if positions.ndim == 3:  # then no bias looks at them
        positions = positions[..., 0]
    rows = [where.index, segments, positions.astype(jnp.int32)]
    batch = max(row.shape[0] for row in rows)
    rows = [jnp.broadcast_to(row, (batch, where.length)) for row in rows]
    fill = ((0, 0), (0, -where.length % block))
    filled = [jnp.pad(row, fill, mode="edge") for row in rows]
    if keys:
        filled[1] = jnp.pad(rows[1], fill, constant_values=INVISIBLE)
    return jnp.stack(filled, axis=1)
