"""Weights against values, in blockwise's order, are what every engine means by them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention.products import weighted_heads
from ropejax.encodings.heads import weighted_sum
from tests.attention import cases


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_outputs_and_gradients_are_those_of_the_plain_sum(kv_heads):
    rng = np.random.default_rng(0)
    weights = cases.normal(rng, 2, 4, 5, 7)
    v = cases.normal(rng, 2, 7, kv_heads, 3)
    got, pull = jax.vjp(weighted_heads, weights, v)
    wanted, wanted_pull = jax.vjp(weighted_sum, weights, v)
    cases.assert_close(got, wanted)
    cotangent = cases.normal(rng, *wanted.shape)
    cases.assert_close(pull(cotangent), wanted_pull(cotangent))


def test_bfloat16_values_are_summed_in_float32():
    rng = np.random.default_rng(0)
    weights = jax.nn.softmax(cases.normal(rng, 1, 2, 3, 512))
    v = cases.normal(rng, 1, 512, 2, 4).astype(jnp.bfloat16)
    got, pull = jax.vjp(weighted_heads, weights, v)
    wide = weights.astype(jnp.bfloat16).astype(jnp.float32)
    wanted = weighted_sum(wide, v.astype(jnp.float32))
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    d_weights, d_v = pull(jnp.ones_like(got))
    assert (d_weights.dtype, d_v.dtype) == (jnp.float32, jnp.bfloat16)
    by_head = v.astype(jnp.float32).sum(-1)[0].T[None, :, None]
    np.testing.assert_allclose(
        d_weights, jnp.broadcast_to(by_head, d_weights.shape), atol=1e-5
    )


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_small_bfloat16_products_run_compiled(kv_heads):
    """Of some orders of axes XLA's CPU backend has no bfloat16 product."""
    rng = np.random.default_rng(0)
    weights = jax.nn.softmax(cases.normal(rng, 2, 4, 40, 40))
    v = cases.normal(rng, 2, 40, kv_heads, 16).astype(jnp.bfloat16)
    total = lambda weights, v: (weighted_heads(weights, v) ** 2).sum()
    got = jax.jit(jax.grad(total, (0, 1)))(weights, v)
    plain = lambda weights, v: (weighted_sum(weights, v) ** 2).sum()
    wanted = jax.grad(plain, (0, 1))(weights, v.astype(jnp.float32))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a.astype(jnp.float32), b, atol=0.05, rtol=0.05)
