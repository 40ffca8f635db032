"""Factors by the number of visible keys, and normalized queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import Entmax, attend, visible_counts
from ropejax.attention.scales import (
    adaptive_scale,
    cosine_scale,
    normalized,
    query_key_scale,
    ssmax,
    unit,
)
from ropejax.encodings import Encoding
from ropejax.encodings.log_scale import log_scale
from ropejax.tokens import tokens

Q = jax.random.normal(jax.random.key(0), (1, 24, 2, 8))
K = jax.random.normal(jax.random.key(1), (1, 24, 2, 8))
CAUSAL = np.tril(np.ones((24, 24), bool))
ONE = jnp.ones(1, jnp.int32)


def run(q, k, length=24, mask=None, scale_of=None, **settings):
    mask = masks.Causal() if mask is None else mask
    where = tokens(length)
    if scale_of is not None:
        settings["row_scale"] = scale_of(visible_counts(where, where, mask))
    return attend(
        q[:, :length],
        k[:, :length],
        k[:, :length],
        encoding=Encoding(),
        query=where,
        key=where,
        mask=mask,
        **settings,
    )


def softmax_of(logits):
    weights = np.where(CAUSAL, np.exp(logits), 0)
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bnts,bsnh->btnh", weights, K)


def test_fault_b03_log_n_goes_by_each_query_and_ignores_later_tokens():
    def scale_of(counts):
        return log_scale(counts, train_length=16)

    counts = visible_counts(tokens(64), tokens(64), masks.Causal())
    factors = np.asarray(scale_of(counts))[0, :, 0]
    np.testing.assert_allclose(factors[:16], 1)
    np.testing.assert_allclose(factors[[16, 31, 63]], [1.021865710, 1.25, 1.5], 1e-6)
    short, long = (run(Q, K, n, scale_of=scale_of) for n in (16, 24))
    np.testing.assert_allclose(long[:, :16], short, atol=1e-6)


def test_counts_follow_a_window():
    window = masks.Window.sliding(5)
    counts = visible_counts(tokens(24), tokens(24), window)
    n = np.minimum(np.arange(24) + 1, 5)
    got = ssmax(counts, jnp.array([0.4, 1.0]), jnp.array([0.0, 0.5]))
    wanted = np.log(n)[:, None] * [0.4, 1.0] + [0.0, 0.5]
    np.testing.assert_allclose(got[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_ssmax_in_attention(implementation):
    s = jnp.array([0.4, 1.0])
    got = run(
        Q,
        K,
        scale_of=lambda counts: ssmax(counts, s),
        implementation=implementation,
        block_q=9,
        block_k=7,
    )
    logits = np.einsum("btnh,bsnh->bnts", Q, K) / np.sqrt(8)
    n = np.arange(1, 25)
    wanted = softmax_of(logits * np.asarray(s)[:, None, None] * np.log(n)[:, None])
    np.testing.assert_allclose(got, wanted, atol=2e-6)


def test_adaptive_entmax_scales_before_entmax():
    beta, gamma = jnp.full((1, 1, 2), 0.5), jnp.full((1, 1, 2), 1.5)
    counts = visible_counts(tokens(24), tokens(24), masks.Causal())
    factor = adaptive_scale(counts, beta, gamma)
    n = np.arange(1, 25)
    np.testing.assert_allclose(factor[0, :, 1], 1 + 0.5 * np.log(n + 1) ** 1.5, 1e-6)
    by_hand = run(Q * factor[..., None], K, normalizer=Entmax())
    got = run(Q, K, row_scale=factor, normalizer=Entmax())
    np.testing.assert_allclose(got, by_hand, atol=2e-6)


def test_key_and_cosine_normalization_by_their_formulas():
    dot = np.einsum("btnh,bsnh->bnts", Q, K)
    length_k = np.linalg.norm(K, axis=-1).swapaxes(1, 2)[:, :, None, :]
    length_q = np.linalg.norm(Q, axis=-1).swapaxes(1, 2)[..., None]
    wanted = {
        "key": dot / length_k,
        "query": dot / length_q,
        "cosine": 4
        * np.log(np.maximum(np.arange(24) + 1, 2))[:, None]
        * dot
        / (length_q * length_k),
    }
    for kind, logits in wanted.items():
        q, k = normalized(Q, K, kind)
        where = tokens(24)
        counts = visible_counts(where, where, masks.Causal())
        got = attend(
            q,
            k,
            K,
            encoding=Encoding(),
            query=where,
            key=where,
            mask=masks.Causal(),
            scale=1.0,
            row_scale=cosine_scale(counts) if kind == "cosine" else None,
        )
        np.testing.assert_allclose(got, softmax_of(logits), atol=3e-6)


def test_a_zero_vector_stays_zero_with_finite_gradients():
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(unit(x), [[0, 0], [0.6, 0.8]], atol=1e-6)
    assert np.isfinite(jax.grad(lambda x: unit(x)[:, 0].sum())(x)).all()
    assert unit(x.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.fast
def test_vectors_of_any_size_have_length_one_and_right_gradients():
    """Squares of 1e20 overflow in float32, and those of 1e-25 vanish."""
    direction = np.array([[3.0, -4.0, 12.0], [0.0, 1e-3, -1.0]])
    weight = np.array([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]])
    length = np.sqrt((direction**2).sum(-1, keepdims=True))
    wanted = direction / length
    along = (weight * wanted).sum(-1, keepdims=True)
    slope = (weight - along * wanted) / length
    for size in (1e-30, 1e-25, 1.0, 1e20, 1e30):
        x = jnp.asarray(direction * size, jnp.float32)
        np.testing.assert_allclose(unit(x), wanted, rtol=1e-6)
        got = jax.grad(lambda x: (unit(x) * weight).sum())(x)
        np.testing.assert_allclose(np.asarray(got, float) * size, slope, atol=1e-6)
    for size in (2e-38, 2e37):  # near the least normal number, and the largest
        x = jnp.asarray(direction[:1] * size, jnp.float32)
        np.testing.assert_allclose(unit(x), wanted[:1], rtol=1e-6)


@pytest.mark.fast
def test_numbers_and_lists_are_taken_for_arrays():
    counts = visible_counts(tokens(24), tokens(24), masks.Causal())
    one = jnp.array([0.5])
    np.testing.assert_array_equal(ssmax(counts, 0.5, 1.0), ssmax(counts, one, one * 2))
    np.testing.assert_array_equal(
        adaptive_scale(counts, 0.5, 1.0), adaptive_scale(counts, one, one * 2)
    )
    got = log_scale([4, 16, 64], train_length=16)
    np.testing.assert_allclose(got, [1, 1, 1.5], rtol=1e-6)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: query_key_scale("a"), "train_length must be a whole number, got 'a'"),
        (lambda: unit(jnp.array([1, 2])), "x must be floating-point, got int32"),
        (lambda: log_scale(ONE, train_length=1), "train_length must exceed 1, got 1"),
        (lambda: log_scale(ONE, train_length=0, form="steps"), "must exceed 1, got 0"),
        (lambda: log_scale(ONE, least=0), "least must be positive, got 0"),
        (lambda: log_scale(ONE, weight=-1.0), "weight must be at least 0, got -1.0"),
    ],
)
def test_numbers_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_scale_of_query_key_normalization():
    assert query_key_scale(2) == pytest.approx(1.0)
    assert query_key_scale(1024) == pytest.approx(np.log2(1024 * 1023))
    with pytest.raises(ValueError, match="at least 2, got 1"):
        query_key_scale(1)
    with pytest.raises(ValueError, match="kind"):
        normalized(Q, K, "values")
