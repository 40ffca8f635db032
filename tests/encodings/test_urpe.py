"""URPE (arXiv:2205.13401): factors behind the softmax, against float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks, testing
from ropejax.encodings import URPE, Dims, Encoding, ScalarBias, compose
from ropejax.tokens import tokens

LENGTH, DIMS = 6, Dims(4, 2, 8, 16)
SMALL = URPE(clip=3)


@functools.cache
def inputs():
    made = testing.example(SMALL, dims=DIMS, length=LENGTH)
    return jax.tree.map(np.asarray, made)


def attended(encoding, given, mask, **settings):
    return testing.run(
        encoding, given, tokens(LENGTH), dims=DIMS, mask=mask, **settings
    )


def weights_and_values(given, mask, bias=0.0):
    """Weights `[B, N, T, S]` and values of each query head, in float64."""
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), given)
    q, k, v = (
        wide[n] + np.einsum("bld,dnh->blnh", wide["x"], wide["w" + n]) for n in "qkv"
    )
    k, v = np.repeat(k, 2, 2), np.repeat(v, 2, 2)
    logits = np.einsum("btnh,bsnh->bnts", q, k) / 8**0.5 + bias
    if mask is not None:
        logits = np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True), v


def rows(clip=3):
    offset = np.arange(LENGTH) - np.arange(LENGTH)[:, None]
    return np.clip(offset, -clip, clip) + clip


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
@pytest.mark.parametrize("mask", [None, masks.Causal()], ids=["both", "causal"])
def test_weights_are_multiplied_after_the_softmax(mask, implementation):
    given = inputs()
    weights, v = weights_and_values(given, mask)
    table = np.float64(given["shared"]["table"])
    factors = np.moveaxis(table[rows()], -1, 0)
    wanted = np.einsum("bnts,bsnh->btnh", weights * factors, v)
    cotangent = np.random.default_rng(1).normal(size=wanted.shape)
    blocks = {"block_q": 4, "block_k": 2} if implementation == "blockwise" else {}

    def loss(table):
        moved = given | {"shared": {"table": table}}
        out = attended(SMALL, moved, mask, implementation=implementation, **blocks)
        return (out * cotangent.astype(np.float32)).sum(), out

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, out), grad = run(given["shared"]["table"])
    np.testing.assert_allclose(out, wanted, atol=1e-5)
    # Outputs are linear in the table: its gradient is a sum over pairs of an offset.
    pairs = weights * np.einsum("btnh,bsnh->bnts", cotangent, v)
    slope = np.stack(
        [(pairs * (rows() == row)).sum((0, 2, 3)) for row in range(len(table))]
    )
    np.testing.assert_allclose(grad, slope, atol=1e-5 * np.abs(slope).max())


def test_it_stands_beside_a_bias_before_the_softmax_as_published():
    given = inputs()
    number = np.random.default_rng(2).normal(size=(7, 4)).astype(np.float32)
    both = compose(bias=ScalarBias(clip=3, shared=True), factor=SMALL)
    shared = {"bias": {"table": number}, "factor": given["shared"]}
    layer = {"bias": {}, "factor": {}}
    out = attended(both, given | {"shared": shared, "layer": layer}, None)
    bias = np.moveaxis(np.float64(number)[rows()], -1, 0)
    weights, v = weights_and_values(given, None, bias)
    factors = np.moveaxis(np.float64(given["shared"]["table"])[rows()], -1, 0)
    wanted = np.einsum("bnts,bsnh->btnh", weights * factors, v)
    np.testing.assert_allclose(out, wanted, atol=1e-5)


def test_equal_tokens_have_unequal_outputs_which_no_bias_can_do():
    """What the paper proves relative biases lack, on a sequence of equal tokens."""
    given = inputs()
    equal = {n: np.repeat(given[n][:, :1], LENGTH, 1) for n in ("x", "q", "k", "v")}
    given = given | equal
    bias = ScalarBias(clip=3, shared=True)
    biased = np.asarray(attended(bias, given, None))
    np.testing.assert_allclose(biased, biased[:, :1] + 0 * biased, atol=1e-5)
    out = np.asarray(attended(SMALL, given, None))
    mean = given["shared"]["table"][rows()].mean(1)  # of the factors of each row
    np.testing.assert_allclose(out, mean[None, ..., None] * biased, atol=1e-5)
    assert np.ptp(mean, axis=0).max() > 0.05


def test_it_starts_near_plain_attention():
    ones = SMALL.init_shared(jax.random.key(0), DIMS)
    assert ones["table"].shape == (7, 4)
    exact = URPE(clip=3, init_std=0.0).init_shared(jax.random.key(0), DIMS)
    np.testing.assert_array_equal(exact["table"], 1.0)
    assert 0 < np.abs(ones["table"] - 1).max() < 0.1
    assert URPE(shared=False).init_shared(jax.random.key(0), DIMS) == {}
    given = inputs()
    plain = attended(Encoding(), given | {"shared": {}}, None)
    np.testing.assert_allclose(
        attended(SMALL, given | {"shared": exact}, None), plain, atol=1e-6
    )
    with pytest.raises(ValueError, match="clip must be positive"):
        URPE(clip=0)
    with pytest.raises(ValueError, match="needs integer positions"):
        testing.run(SMALL, given, tokens(LENGTH, positions=jnp.ones((1, LENGTH)) / 2))
