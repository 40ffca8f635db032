"""Inputs for attention under any encoding, and both engines as one function."""

import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import Dims
from ropejax.tokens import tokens

DIMS = Dims(
    num_heads=4, num_kv_heads=2, head_dim=16, embed_dim=24, num_layers=2, causal=True
)


# Tests compile much and run little; without LLVM optimizations that halves the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def normal(rng: np.random.Generator, *shape) -> jax.Array:
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


@dataclasses.dataclass
class Case:
    """Arrays that attention takes gradients of, by name."""

    arrays: dict
    cotangent: jax.Array


def case(encoding, length: int, dims: Dims = DIMS, batch: int = 2, seed: int = 0):
    """Returns random inputs; parameters are moved off zeros and ones."""
    rng = np.random.default_rng(seed)
    key = jax.random.key(seed)
    heads = (batch, length, dims.num_heads, dims.head_dim)
    kv_heads = (batch, length, dims.num_kv_heads, dims.head_dim)
    moved = functools.partial(
        jax.tree.map, lambda x: x + 0.1 * normal(rng, *x.shape).astype(x.dtype)
    )
    arrays = {
        "q": normal(rng, *heads),
        "k": normal(rng, *kv_heads),
        "v": normal(rng, *kv_heads),
        "x": normal(rng, batch, length, dims.embed_dim),
        "shared": moved(encoding.init_shared(key, dims)),
        "layer": moved(encoding.init_layer(key, dims)),
    }
    return Case(arrays, normal(rng, *heads))


def attention(encoding, where=None, mask=None, dims: Dims = DIMS, **settings):
    """Returns a function of a case's arrays: outputs, or outputs and log-sum-exp."""
    mask = masks.Causal() if mask is None else mask

    def run(arrays):
        q, k, v, x = (arrays[name] for name in "qkvx")
        at = tokens(q.shape[1]) if where is None else where
        params = encoding.prepare(arrays["shared"], arrays["layer"], at, at, dims)
        features, _ = encoding.key_features(params, x, k, at)
        return attend(
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            query=at.replace(features=encoding.query_features(params, x, q, at)),
            key=at.replace(features=features),
            mask=mask,
            **settings,
        )

    return run


def value_and_grads(run, cotangent):
    """Returns a compiled function: outputs and gradients of all arrays."""

    def loss(arrays):
        out = run(arrays)
        if isinstance(out, tuple):
            lse = jnp.where(jnp.isfinite(out[1]), out[1], 0.0)
            return (out[0] * cotangent).sum() + jnp.sin(lse).sum(), out
        return (out * cotangent).sum(), out

    return jit(jax.value_and_grad(loss, has_aux=True))


@contextlib.contextmanager
def float64():
    """Whatever ropejax computes in float32 it computes in float64 meanwhile.

    An oracle for rounding errors: the library says `jnp.float32` wherever precision
    matters, and asks for it at each call.
    """
    single = jnp.float32
    with jax.enable_x64(True):
        jnp.float32 = jnp.float64
        try:
            yield
        finally:
            jnp.float32 = single


def widened(tree):
    """Returns a pytree of numpy arrays, float32 ones as float64."""

    def wide(x):
        x = np.asarray(x)
        return x.astype(np.float64) if x.dtype == np.float32 else x

    return jax.tree.map(wide, tree)


def computed(run, case):
    """Returns `value_and_grads` of a case, as numpy arrays."""
    return jax.device_get(value_and_grads(run, case.cotangent)(case.arrays))


def exactly(run, case):
    """Returns `value_and_grads` of a case, computed in float64."""
    with float64():
        made = value_and_grads(run, widened(case.cotangent))(widened(case.arrays))
        made = jax.device_get(made)
    single = [x.dtype for x in jax.tree.leaves(made) if x.dtype == np.float32]
    assert not single, "something was computed in float32"
    return made


def largest_errors(got, wanted):
    """Returns errors of outputs and of gradients, relative to what is largest.

    Of gradients the largest over arrays, each error and array measured by its norm.
    """
    (_, out), grads = got
    (_, wanted_out), wanted_grads = wanted
    outer = []
    for a, b in zip(jax.tree.leaves(out), jax.tree.leaves(wanted_out), strict=True):
        seen = np.isfinite(b)
        assert (np.isfinite(a) == seen).all()
        off = np.abs(np.where(seen, a, 0.0) - np.where(seen, b, 0.0)).max()
        outer.append(off / max(1.0, np.abs(b[seen]).max()))
    inner = [
        np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-3)
        for a, b in zip(
            jax.tree.leaves(grads), jax.tree.leaves(wanted_grads), strict=True
        )
    ]
    return max(outer), max(inner)


def assert_close(got, wanted, tolerance=2e-6):
    """Compares every array to the largest number in it, but at least to 1."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        scale = max(1.0, float(jnp.abs(jnp.where(jnp.isfinite(b), b, 0)).max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


def assert_same(got, wanted, out_tolerance=2e-6, grad_tolerance=1e-5):
    """Compares `value_and_grads`, each gradient to its largest number."""
    (_, out), grads = got
    (_, wanted_out), wanted_grads = wanted
    assert_close(out, wanted_out, out_tolerance)
    named = jax.tree_util.tree_leaves_with_path(wanted_grads)
    for (path, b), a in zip(named, jax.tree.leaves(grads), strict=True):
        scale = max(float(jnp.abs(b).max()), 1e-3)
        atol = grad_tolerance * scale
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol=0, atol=atol, err_msg=name)
