"""Llama 4 normalizes queries and keys behind the rotation: why there is no such option.

A rotation keeps lengths, so a norm without gains may as well come before it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax.encodings import Dims, Rotary, YaRN
from ropejax.encodings.angles import rotary_frequencies
from ropejax.masks import Causal
from ropejax.nn import MultiHeadAttention, Weighting
from ropejax.nn.query_key_norm import HeadRMSNorm, LearnedCosine
from ropejax.tokens import tokens

LENGTH, HEADS, WIDTH = 6, 2, 8
DIMS = Dims(HEADS, HEADS, WIDTH, 16, causal=True)


def llama4(params, x, epsilon=1e-5):
    """transformers' `Llama4TextAttention` with RoPE: rotated, then `Llama4TextL2Norm`.

    That norm is `x / sqrt(mean(x^2) + epsilon)`, without parameters. Pairs here are
    channels (2 r, 2 r + 1), as complex numbers. In float64.
    """
    kernel = lambda name: np.asarray(params[name]["kernel"], np.float64)
    q, k, v = (
        np.einsum("bld,dnh->blnh", x, kernel(name))
        for name in ("query", "key", "value")
    )
    turn = np.exp(1j * np.arange(LENGTH)[:, None] * rotary_frequencies(WIDTH))
    rotated = []
    for y in (q, k):
        z = (y[..., 0::2] + 1j * y[..., 1::2]) * turn[:, None]
        y = np.stack([z.real, z.imag], -1).reshape(y.shape)
        rotated.append(y / np.sqrt((y**2).mean(-1, keepdims=True) + epsilon))
    logits = np.einsum("btnh,bsnh->bnts", *rotated) / WIDTH**0.5
    logits = np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    out = np.einsum("bnts,bsnh->btnh", weights, v)
    return np.einsum("btnh,nhd->btd", out, kernel("out"))


def test_llama_4_is_cosines_times_the_root_of_the_width():
    """`q / rms(q) . k / rms(k) / sqrt(H)` is `sqrt(H) cos(q, k)`."""
    norm = LearnedCosine(initial=WIDTH**0.5, learned=False)
    layer = MultiHeadAttention(
        DIMS,
        Rotary(layout="interleaved"),
        weighting=Weighting(qk_norm=norm),
        rngs=nnx.Rngs(0),
    )
    params = nnx.to_pure_dict(nnx.state(layer, nnx.Param))
    x = np.random.default_rng(0).normal(size=(2, LENGTH, 16)).astype(np.float32)
    got = layer(jnp.asarray(x), tokens(LENGTH), shared={}, mask=Causal())
    np.testing.assert_allclose(got, llama4(params, x), atol=2e-5)
    no_epsilon = llama4(params, x, epsilon=0.0)
    np.testing.assert_allclose(got, no_epsilon, atol=2e-6)


def both_orders(rope, norm, params):
    x = jax.random.normal(jax.random.key(0), (1, LENGTH, HEADS, WIDTH))
    where = tokens(LENGTH)
    prepared = rope.prepare({}, {}, where, where, DIMS)
    rotated = lambda q: rope.queries(prepared, q, where)[0]
    normed = lambda q: norm.queries(params, q)
    return np.asarray(rotated(normed(x))), np.asarray(normed(rotated(x)))


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_a_norm_without_gains_commutes_with_a_rotation(fraction):
    norm, gains = HeadRMSNorm(), {"query_gain": jnp.ones(WIDTH)}
    before, after = both_orders(Rotary(rotary_fraction=fraction), norm, gains)
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_gains_and_attention_factors_do_not_commute_with_it():
    """Gains that differ within a pair; and YaRN's factor, which a norm takes away."""
    norm = HeadRMSNorm()
    gains = {"query_gain": jnp.linspace(0.5, 1.5, WIDTH)}
    before, after = both_orders(Rotary(), norm, gains)
    assert np.abs(before - after).max() > 0.1
    yarn = YaRN(scale=8.0, train_length=4)
    factor = float(yarn.frequencies.factor())
    before, after = both_orders(yarn, norm, {"query_gain": jnp.ones(WIDTH)})
    assert factor > 1.1
    np.testing.assert_allclose(before, factor * after, rtol=1e-4, atol=1e-6)
