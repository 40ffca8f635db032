"""One attention under an encoding, every hook called as a model calls it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings.base import Dims, Encoding
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Rng

DIMS = Dims(
    num_heads=4, num_kv_heads=2, head_dim=8, embed_dim=16, num_layers=2, causal=True
)
"""The sizes that checks use: small, and with grouped heads."""

Inputs = dict[str, Any]
"""What `example` makes: arrays by name, parameters among them."""

_CAUSAL = masks.Causal()


def example(
    encoding: Encoding,
    rng: Rng | None = None,
    *,
    dims: Dims = DIMS,
    length: int = 8,
    batch: int = 2,
) -> Inputs:
    """Returns random inputs and parameters of one attention under an encoding.

    Parameters are moved off their initial values, as training would, so that what
    starts at zero counts.

    Args:
        encoding: the encoding.
        rng: PRNG key; a fixed one if None.
        dims: sizes of the model.
        length: number of tokens, L.
        batch: number of rows, B.

    Returns:
        "x" `[B, L, D]`, the layer's input; "q", "k", "v" `[B, L, N or K, H]`, added to
        projections of x by "wq", "wk", "wv"; and "shared" and "layer", the parameters.
    """
    rng = jax.random.key(0) if rng is None else rng
    numbers = np.random.default_rng(np.asarray(jax.random.key_data(rng)))

    def normal(*shape):
        return jnp.asarray(numbers.normal(size=shape), jnp.float32)

    inputs = {"x": normal(batch, length, dims.embed_dim)}
    heads = {"q": dims.num_heads, "k": dims.num_kv_heads, "v": dims.num_kv_heads}
    for name, count in heads.items():
        inputs[name] = normal(batch, length, count, dims.head_dim)
        weights = normal(dims.embed_dim, count, dims.head_dim)
        inputs["w" + name] = weights * dims.embed_dim**-0.5

    def init(rng):
        rng_shared, rng_layer = jax.random.split(rng)
        return {
            "shared": encoding.init_shared(rng_shared, dims),
            "layer": encoding.init_layer(rng_layer, dims),
        }

    params = compiled(init)(rng)
    return inputs | jax.tree.map(lambda leaf: leaf + 0.3 * normal(*leaf.shape), params)


def run(
    encoding: Encoding,
    inputs: Inputs,
    where: Tokens,
    *,
    dims: Dims = DIMS,
    mask: Any = _CAUSAL,
    past: int = 0,
    order: Array | None = None,
    **settings,
) -> Float[Array, "B T N H"]:
    """Returns the outputs of one attention, all hooks called as a model calls them.

    Args:
        encoding: the encoding.
        inputs: what `example` made.
        where: where the tokens are.
        dims: sizes of the model.
        mask: a mask of (query, key), or None.
        past: number of tokens that are cached already: features are made in two parts,
            and queries are those of the second only.
        order: storage order of the keys, `[L]`; as they come if None.
        **settings: passed on to `attend`.
    """
    x = encoding.embed(inputs["shared"], inputs["x"], where)
    q, k, v = (
        inputs[name]
        + jnp.einsum("bld,dnh->blnh", x, inputs["w" + name].astype(x.dtype))
        for name in "qkv"
    )
    query = where.block(past, where.length - past) if past else where
    key = where if order is None else where.permuted(order)
    params = encoding.prepare(inputs["shared"], inputs["layer"], query, key, dims)
    query_features, key_features = _features(encoding, params, x, q, k, where, past)
    where = where.replace(features=key_features)
    if order is not None:
        where = where.permuted(order)
        k, v = (jnp.take(part, order, axis=1) for part in (k, v))
    return attend(
        q[:, past:],
        k,
        v,
        encoding=encoding,
        params=params,
        query=query.replace(features=query_features),
        key=where,
        mask=mask,
        **settings,
    )


def compiled(function):
    """Returns the function compiled, with little time spent on making it fast."""
    if jax.default_backend() != "cpu":
        return jax.jit(function)
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def _features(encoding, params, x, q, k, where: Tokens, past: int):
    """Returns features of the queries and of all keys, made in two parts if cached."""
    if not past:
        key_features, _ = encoding.key_features(params, x, k, where)
        return encoding.query_features(params, x, q, where), key_features
    rest = where.length - past
    before, after = where.block(0, past), where.block(past, rest)
    first, state = encoding.key_features(params, x[:, :past], k[:, :past], before)
    second, _ = encoding.key_features(params, x[:, past:], k[:, past:], after, state)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, second)
    return encoding.query_features(params, x[:, past:], q[:, past:], after, state), both
