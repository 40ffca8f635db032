"""Linear attention with rotary positions: both forms are the formula."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention.linear import (
    causal_linear_attention,
    elu_plus_one,
    linear_attention,
)
from ropejax.encodings import Encoding, ReRoPE, Rotary
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import logits, random

LENGTH = 11
Q, K, V = (
    random(2, LENGTH, 4, 8),
    random(2, LENGTH, 2, 8, seed=1),
    random(2, LENGTH, 2, 6, seed=2),
)


def formula(seen, valid=None):
    """Numerator turned, denominator not, pair by pair in float64."""
    phi_q, phi_k = (elu_plus_one(x) for x in (Q, K))
    above, below = (
        np.asarray(logits(e, phi_q, phi_k, tokens(LENGTH)), float) * seen
        for e in (Rotary(), Encoding())
    )
    if valid is not None:
        above, below = above * valid[:, None, None], below * valid[:, None, None]
    v = np.repeat(np.asarray(V, float), 2, 2)
    total = below.sum(-1)
    return np.einsum("bnij,bjnv->binv", above, v) / np.swapaxes(total, 1, 2)[..., None]


def causal(where, **settings):
    run = functools.partial(causal_linear_attention, encoding=Rotary(), **settings)
    return jax.jit(run)(Q, K, V, where=where)


def test_full_form_is_the_formula():
    at = tokens(LENGTH)
    ours = linear_attention(Q, K, V, encoding=Rotary(), query=at, key=at)
    np.testing.assert_allclose(ours, formula(1.0), atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_causal_form_is_the_formula_whatever_the_chunk(chunk):
    seen = np.tril(np.ones((LENGTH, LENGTH)))
    ours = causal(tokens(LENGTH), chunk=chunk)
    np.testing.assert_allclose(ours, formula(seen), atol=1e-5)


def test_only_the_numerator_turns():
    at = tokens(LENGTH)
    one = jnp.ones_like(V)
    turned = linear_attention(Q, K, one, encoding=Rotary(), query=at, key=at)
    plain = linear_attention(Q, K, one, encoding=Encoding(), query=at, key=at)
    np.testing.assert_allclose(plain, jnp.ones_like(plain), atol=1e-5)
    assert np.abs(turned - 1).max() > 1e-2


def test_a_shift_of_positions_changes_nothing():
    far = tokens(LENGTH, positions=jnp.arange(LENGTH)[None] + 5000)
    np.testing.assert_allclose(causal(far), causal(tokens(LENGTH)), atol=1e-5)


def test_padding_keys_do_not_count():
    valid = jnp.arange(LENGTH)[None] < jnp.array([[5], [LENGTH]])
    at = tokens(LENGTH, valid=valid)
    expected = formula(1.0, valid=np.asarray(valid, float))
    ours = linear_attention(Q, K, V, encoding=Rotary(), query=at, key=at)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    seen = np.tril(np.ones((LENGTH, LENGTH)))
    expected = formula(seen, valid=np.asarray(valid, float))
    np.testing.assert_allclose(causal(at, chunk=4), expected, atol=1e-5)
    none = tokens(LENGTH, valid=jnp.zeros((2, LENGTH), bool))
    nothing = linear_attention(Q, K, V, encoding=Rotary(), query=none, key=none)
    np.testing.assert_array_equal(nothing, jnp.zeros_like(nothing))


def test_gradients_of_both_forms_agree_on_the_last_query():
    at, last = tokens(LENGTH), tokens(1, offset=LENGTH - 1)

    def full(k, v):
        one = Q[:, -1:]
        out = linear_attention(one, k, v, encoding=Rotary(), query=last, key=at)
        return (out**2).sum()

    def scanned(k, v):
        out = causal_linear_attention(Q, k, v, encoding=Rotary(), where=at, chunk=4)
        return (out[:, -1] ** 2).sum()

    ours = jax.jit(jax.grad(scanned, argnums=(0, 1)))(K, V)
    expected = jax.jit(jax.grad(full, argnums=(0, 1)))(K, V)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_dtype_is_kept_and_several_views_and_segments_are_refused():
    at = tokens(LENGTH)
    narrow = [x.astype(jnp.bfloat16) for x in (Q, K, V)]
    ours = linear_attention(*narrow, encoding=Rotary(), query=at, key=at)
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(float), formula(1.0), atol=0.1)
    with pytest.raises(ValueError, match="several views"):
        linear_attention(Q, K, V, encoding=ReRoPE(), query=at, key=at)
    packed = tokens(LENGTH, segments=jnp.zeros((1, LENGTH), jnp.int32))
    with pytest.raises(ValueError, match="segments"):
        linear_attention(Q, K, V, encoding=Rotary(), query=packed, key=packed)
