"""Gradients in bfloat16 are rounded once, however many blocks they are summed over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import attend
from ropejax.attention.sequence_parallel import SequenceParallel
from ropejax.encodings import ALiBi, Dims
from ropejax.tokens import tokens
from tests.attention import cases, on_mesh

LENGTH = 256
ROUNDED = 2.0**-8  # bfloat16 has 8 digits

rng = np.random.default_rng(0)
ENCODING = ALiBi(learned=True)
DIMS = Dims(2, 2, 8, 16)
WHERE = tokens(LENGTH)
ARRAYS = {name: cases.normal(rng, 1, LENGTH, 2, 8) for name in "qkv"}
ARRAYS["layer"] = ENCODING.init_layer(jax.random.key(0), DIMS)
ARRAYS = jax.tree.map(lambda x: x.astype(jnp.bfloat16), ARRAYS)
COTANGENT = cases.normal(rng, 1, LENGTH, 2, 8).astype(jnp.bfloat16)


def gradients(arrays, **settings):
    def loss(arrays):
        params = ENCODING.prepare({}, arrays["layer"], WHERE, WHERE, DIMS)
        out = attend(
            *(arrays[name] for name in "qkv"),
            encoding=ENCODING,
            params=params,
            query=WHERE,
            key=WHERE,
            mask=masks.Causal(),
            **settings,
        )
        return (out.astype(jnp.float32) * COTANGENT).sum()

    return cases.jit(jax.grad(loss))(arrays)


@pytest.mark.parametrize("implementation", ["blockwise", SequenceParallel("ring")])
def test_gradients_in_bfloat16_are_summed_in_float32(implementation):
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), ARRAYS)
    wanted = gradients(wide, implementation="dense")
    with jax.set_mesh(on_mesh.mesh_of(sequence=4)):
        got = gradients(ARRAYS, implementation=implementation, block_q=8, block_k=8)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == jnp.bfloat16
        off = jnp.linalg.norm(a.astype(jnp.float32) - b) / jnp.linalg.norm(b)
        assert off < ROUNDED
