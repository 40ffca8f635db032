import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import Dims, Encoding, PaTH, reflections
from ropejax.masks import Causal
from ropejax.tokens import tokens

DIMS = Dims(num_heads=4, num_kv_heads=2, head_dim=4, embed_dim=6, causal=True)
LENGTH = 7


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def layer(rank=3):
    params = {
        "up": normal(rank or 6, 8, seed=1),
        "taps": normal(3, 8, seed=2),
        "b": normal(6, 2, seed=3),
        "c": normal(2, seed=4),
    }
    return params | ({"down": normal(6, rank, seed=5)} if rank else {})


@functools.partial(jax.jit, static_argnums=0)
def features(encoding, params, x, where, state=None):
    k = jnp.zeros((*x.shape[:2], 2, 4))
    return encoding.key_features(params, x, k, where, state)


def householder_product(q, k, w, beta, scale):
    """Multiplies matrices one by one, in float64: the formula as it is written."""
    q, k, w, beta = (np.asarray(x, np.float64) for x in (q, k, w, beta))
    batch, length, heads, width = q.shape
    logits = np.full((batch, heads, length, length), -np.inf)
    group = heads // k.shape[2]
    for b in range(batch):
        for n in range(heads):
            g = n // group
            for i in range(length):
                product = np.eye(width)
                for j in range(i, -1, -1):
                    logits[b, n, i, j] = scale * q[b, i, n] @ product @ k[b, j, g]
                    h = np.eye(width) - beta[b, j, g] * np.outer(w[b, j, g], w[b, j, g])
                    product = product @ h
    return logits


def softmax_rows(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_attention_is_the_product_of_reflections_between(implementation):
    encoding = PaTH(rank=3)
    x, params, where = normal(2, LENGTH, 6), layer(), tokens(LENGTH)
    q = normal(2, LENGTH, 4, 4)
    k, v = normal(2, LENGTH, 2, 4, seed=6), normal(2, LENGTH, 2, 4, seed=7)
    (w, beta), _ = features(encoding, params, x, where)
    sides = {"query": where, "key": where.replace(features=(w, beta))}

    @jax.jit
    def run(q, k, v):
        return attend(
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            mask=Causal(),
            implementation=implementation,
            block_q=3,
            block_k=3,
            **sides,
        )

    out = run(q, k, v)
    weights = softmax_rows(householder_product(q, k, w, beta, 0.5))
    wanted = np.einsum("bnts,bsnh->btnh", weights, np.repeat(v, 2, axis=2))
    np.testing.assert_allclose(out, wanted, atol=2e-5)


@pytest.mark.parametrize("rank", [3, 0])
def test_features_are_unit_vectors_after_a_causal_convolution(rank):
    x, params = normal(2, LENGTH, 6), layer(rank)
    (w, beta), state = features(PaTH(rank=rank), params, x, tokens(LENGTH))
    u = np.asarray(x @ params["down"] if rank else x) @ np.asarray(params["up"])
    taps = np.asarray(params["taps"])
    for t in range(LENGTH):
        mixed = sum(
            taps[2 - back] * u[:, t - back] for back in range(3) if t - back >= 0
        )
        mixed = (mixed / (1 + np.exp(-mixed))).reshape(2, 2, 4)
        wanted = mixed / np.linalg.norm(mixed, axis=-1, keepdims=True)
        np.testing.assert_allclose(w[:, t], wanted, atol=1e-4)
    gate = np.asarray(x) @ np.asarray(params["b"]) + np.asarray(params["c"])
    np.testing.assert_allclose(beta, 2 / (1 + np.exp(-gate)), rtol=1e-5)
    np.testing.assert_allclose(state[0], u[:, -2:], rtol=1e-5)


def test_state_after_padding_is_that_of_the_last_real_tokens():
    x, params, encoding = normal(2, LENGTH, 6), layer(), PaTH(rank=3)
    (whole, _), _ = features(encoding, params, x, tokens(LENGTH))
    valid = jnp.array([[True] * 4 + [False] * 2, [True] * 4 + [False] * 2])
    padded = jnp.concatenate([x[:, :4], x[:, :2]], axis=1)
    where = tokens(6, valid=valid)
    _, state = features(encoding, params, padded, where)
    rest = tokens(LENGTH - 4, offset=4)
    (w, _), _ = features(encoding, params, x[:, 4:], rest, state)
    np.testing.assert_allclose(w, whole[:, 4:], atol=1e-5)


def test_padding_between_tokens_is_passed_over_as_at_the_end_of_a_chunk():
    """A prompt padded on the right, and what is decoded after it, in one pass."""
    encoding, params, x = PaTH(rank=3), layer(), normal(2, 6, 6, seed=8)
    real = jnp.array([0, 2, 5])
    valid = jnp.zeros((2, 6), bool).at[:, real].set(True)
    at = jnp.arange(6)[None]
    where = tokens(6, valid=valid, positions=at)
    whole, state = features(encoding, params, x, where)
    alone, same = features(encoding, params, x[:, real], tokens(3))
    first, past = features(encoding, params, x[:, :4], where.block(0, 4))
    then, after = features(encoding, params, x[:, 4:], where.block(4, 2), past)
    for part in range(2):  # w, and beta
        np.testing.assert_allclose(whole[part][:, real], alone[part], atol=1e-6)
        chunks = jnp.concatenate([first[part], then[part]], axis=1)
        np.testing.assert_allclose(chunks[:, real], alone[part], atol=1e-6)
    np.testing.assert_allclose(state[0], same[0], atol=1e-6)
    np.testing.assert_allclose(after[0], same[0], atol=1e-6)


def test_packed_sequences_do_not_mix_in_the_convolution():
    x, params, encoding = normal(1, 6, 6), layer(), PaTH(rank=3)
    where = tokens(6, segments=jnp.array([[0, 0, 0, 1, 1, 1]]))
    (w, _), _ = features(encoding, params, x, where)
    (alone, _), _ = features(encoding, params, x[:, 3:], tokens(3))
    np.testing.assert_allclose(w[:, 3:], alone, atol=1e-5)


@pytest.mark.parametrize(
    ("segments", "cut"),
    [([0, 0, 1, 1], 2), ([0, 1, 1, 1], 2), ([7, 7, 3, 3], 3), ([0, 1, 2, 2], 3)],
)
def test_chunks_that_begin_or_go_on_with_a_segment_convolve_as_the_whole(segments, cut):
    x, params, encoding = normal(1, 4, 6), layer(), PaTH(rank=3)
    segments = jnp.array([segments])
    (whole, _), _ = features(encoding, params, x, tokens(4, segments=segments))
    first = tokens(cut, segments=segments[:, :cut])
    _, state = features(encoding, params, x[:, :cut], first)
    rest = tokens(4 - cut, offset=cut, segments=segments[:, cut:])
    (w, _), _ = features(encoding, params, x[:, cut:], rest, state)
    np.testing.assert_allclose(w, whole[:, cut:], atol=1e-6)
    # A padded first chunk leaves the same past.
    longer = jnp.concatenate([x[:, :cut], x[:, :2]], axis=1)
    padding = jnp.full((1, 2), segments[0, 0])
    where = tokens(
        cut + 2,
        segments=jnp.concatenate([segments[:, :cut], padding], axis=1),
        valid=jnp.arange(cut + 2)[None] < cut,
    )
    _, after = features(encoding, params, longer, where)
    for got, right in zip(after, state, strict=True):
        np.testing.assert_allclose(got, right, atol=1e-6)


def test_segments_come_with_every_chunk_or_with_none():
    x, params, encoding = normal(1, 2, 6), layer(), PaTH(rank=3)
    sides = tokens(2), tokens(2, segments=jnp.zeros((1, 2), jnp.int32))
    for first, then in (sides, sides[::-1]):
        _, state = features(encoding, params, x, first)
        with pytest.raises(ValueError, match="give segments with every chunk, or"):
            features(encoding, params, x, then, state)


def test_chunks_are_one_walk(monkeypatch):
    shape = (1, 2, 9, 4)
    rows, k, w = normal(*shape), normal(*shape, seed=1), normal(*shape, seed=2)
    w = w / jnp.linalg.norm(w, axis=-1, keepdims=True)
    beta = 2 * jax.nn.sigmoid(normal(1, 2, 9, seed=3))
    passed = jnp.tri(9, dtype=bool)[None]

    def walk():
        return jax.jit(lambda *walked: reflections.reflect_along(*walked, passed))(
            rows, k, w, beta
        )

    whole = walk()
    monkeypatch.setattr(reflections, "CHUNK", 4)
    parts = walk()
    for one, other in zip(parts, whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 16])
def test_inverse_of_a_unit_triangle(size):
    x = jnp.tril(normal(3, size, size), -1)
    got = reflections.unit_lower_inverse(x)
    wanted = np.linalg.inv(np.eye(size) + np.asarray(x, np.float64))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_without_reflections_it_is_plain_attention():
    where, encoding = tokens(LENGTH), PaTH(rank=3)
    q, k = normal(2, LENGTH, 4, 4), normal(2, LENGTH, 2, 4, seed=6)
    still = (normal(2, LENGTH, 2, 4), jnp.zeros((2, LENGTH, 2)))
    given = {"mask": Causal(), "implementation": "dense", "query": where}
    out = attend(
        q,
        k,
        k,
        encoding=encoding,
        params=layer(),
        key=where.replace(features=still),
        **given,
    )
    plain = attend(q, k, k, encoding=Encoding(), key=where, **given)
    np.testing.assert_allclose(out, plain, atol=1e-6)


def test_a_negative_rank_is_refused():
    with pytest.raises(ValueError, match="rank must not be negative"):
        PaTH(rank=-1)
