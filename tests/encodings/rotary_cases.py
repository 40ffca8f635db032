"""Golden cases of the rotary family, and attention on their arrays."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import Dims
from ropejax.tokens import tokens

FOLDER = pathlib.Path(__file__).parents[1] / "golden"


@functools.cache
def index() -> dict:
    return json.loads((FOLDER / "rotary.json").read_text())


def names(*prefixes: str) -> list[str]:
    return [name for name in index() if name.startswith(prefixes)]


def golden(name: str) -> tuple[dict[str, np.ndarray], dict, dict]:
    """Returns a case's arrays, its parameters and its tolerance."""
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays), index()[name]["params"], index()[name]["tolerance"]


def swapped(x: np.ndarray) -> jnp.ndarray:
    """From the sources' [B, heads, L, H] to ours, [B, L, heads, H], and back."""
    return jnp.swapaxes(jnp.asarray(x), 1, 2)


def placed(positions) -> object:
    """Tokens at these positions, `[L]`, `[B, L]` or `[B, L, A]`."""
    positions = jnp.asarray(positions)
    positions = positions[None] if positions.ndim == 1 else positions
    if jnp.issubdtype(positions.dtype, jnp.integer):
        positions = positions.astype(jnp.int32)
    return tokens(positions.shape[1], positions=positions)


def prepared(encoding, where, x, k=None):
    """Parameters of an encoding that learns nothing."""
    k = x if k is None else k
    dims = Dims(x.shape[2], k.shape[2], x.shape[3], x.shape[2] * x.shape[3])
    return encoding.prepare({}, {}, where, where, dims)


@functools.partial(jax.jit, static_argnums=0)
def logits(encoding, q, k, where, params=None, scale=1.0, key=None):
    """Logits of all pairs `[B, N, T, S]`, before any mask; `key` if other tokens."""
    params = prepared(encoding, where, q, k) if params is None else params
    key = where if key is None else key
    queries, keys = encoding.queries(params, q, where), encoding.keys(params, k, key)
    all_pairs = jnp.ones((1, 1, where.length, key.length), bool)
    return encoding.score(params, None, queries, keys, where, key, all_pairs, scale)[1]


@functools.partial(jax.jit, static_argnums=0)
def turned(encoding, x, where):
    """Queries rotated to the first view, and keys likewise."""
    params = prepared(encoding, where, x)
    views = encoding.queries(params, x, where), encoding.keys(params, x, where)
    return views[0][0], views[1][0]


def causal_attention(encoding, arrays):
    """Outputs `[B, heads, L, H]` on a golden case's q, k and v, under a causal mask."""
    return _attend(encoding, *(arrays[name] for name in "qkv"))


@functools.partial(jax.jit, static_argnums=0)
def _attend(encoding, q, k, v):
    q, k, v = (swapped(x) for x in (q, k, v))
    where = tokens(q.shape[1])
    out = attend(
        q,
        k,
        v,
        encoding=encoding,
        params=prepared(encoding, where, q, k),
        query=where,
        key=where,
        mask=masks.Causal(),
        implementation="dense",
    )
    return swapped(out)


def ones(length: int, width: int = 8, heads: int = 1, dtype=jnp.float32):
    return jnp.ones((1, length, heads, width), dtype)


def random(*shape: int, seed: int = 0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)
