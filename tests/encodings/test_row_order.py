"""Sums along a packed row: the index that they go by must not start anew in it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import testing
from ropejax.encodings import ENCODINGS, CoPE, Dims, GrapeA, compose
from ropejax.positions import packed_positions
from ropejax.tokens import tokens

SEGMENTS = jnp.array([[0, 0, 0, 1, 1, 1], [0] * 6])
IN_ORDER = ("fox", "cable", "wall", "path", "grape_m")
ANY_ORDER = ("cope", "repo", "grape_a", "grape_ap")
DIMS = Dims(2, 1, 4, 8, causal=True)


def packed(index, valid=None):
    where = tokens(
        6, positions=packed_positions(SEGMENTS), segments=SEGMENTS, valid=valid
    )
    return where.replace(index=index, consecutive_index=False)


def features(encoding, x, where):
    layer = encoding.init_layer(jax.random.key(0), DIMS)
    params = encoding.prepare({}, layer, where, where, DIMS)
    k = jnp.zeros((2, 6, 1, 4))
    return encoding.key_features(params, x, k, where)[0]


def arrays(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("name", IN_ORDER)
def test_an_index_that_starts_anew_is_refused_or_nan_where_it_is_traced(name):
    encoding, x = ENCODINGS[name](), arrays(2, 6, 8)
    index = packed_positions(SEGMENTS)
    for repeated in (index, np.array([[0, 1, 2, 3, 4, 2]])):
        told = f"{encoding.title} sums .* which must not repeat within a row"
        for method in (encoding, compose(encoding)):
            with pytest.raises(ValueError, match=told):
                features(method, x, packed(repeated))
    run = jax.jit(lambda index: features(encoding, x, packed(index)))
    parts = jax.tree.leaves(run(index))
    assert np.isnan(parts[0][0]).all()
    for part in parts:
        assert np.isfinite(part[1]).all()


@pytest.mark.parametrize("name", IN_ORDER)
def test_an_index_that_goes_on_is_taken_in_any_order_and_padding_may_repeat(name):
    encoding, x = ENCODINGS[name](), arrays(2, 6, 8)
    index, order = jnp.arange(6)[None], np.array([3, 0, 5, 1, 2, 4])
    right = features(encoding, x, packed(index))
    moved = packed(index).permuted(order)
    run = functools.partial(features, encoding, x[:, order])
    for got in (run(moved), jax.jit(run)(moved)):
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(right), strict=True):
            np.testing.assert_allclose(a, b[:, order], atol=1e-5)
    valid = jnp.arange(6)[None] < 4
    ended = packed(jnp.minimum(index, 3), valid)
    whole = features(encoding, x, packed(index, valid))
    run = functools.partial(features, encoding, x)
    for got in (run(ended), jax.jit(run)(ended)):
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(whole), strict=True):
            np.testing.assert_allclose(a[:, :4], b[:, :4], atol=1e-6)


@pytest.mark.parametrize("name", ANY_ORDER)
def test_other_methods_of_content_take_an_index_that_starts_anew(name):
    encoding = ENCODINGS[name]()
    inputs = testing.example(encoding, length=6)
    run = jax.jit(lambda index: testing.run(encoding, inputs, packed(index)))
    np.testing.assert_allclose(
        run(packed_positions(SEGMENTS)),
        run(jnp.arange(6)[None].repeat(2, 0)),
        atol=1e-5,
    )


def test_what_padding_holds_reaches_no_parameter_even_if_it_is_nan():
    """A NaN times a gradient of zero is NaN: it must not be multiplied at all."""
    methods = {name: ENCODINGS[name]() for name in (*IN_ORDER, *ANY_ORDER)}
    methods |= {"cope": CoPE(gate_keys=True), "grape_a": GrapeA(gate="both")}
    rngs = jax.random.split(jax.random.key(0), len(methods))
    layers = {
        name: method.init_layer(one, DIMS)
        for (name, method), one in zip(methods.items(), rngs, strict=True)
    }
    valid = jnp.arange(6)[None].repeat(2, 0) < 4
    where = tokens(6, valid=valid)
    x, q, k = (
        jnp.where(valid.reshape(2, 6, *[1] * len(shape)), arrays(2, 6, *shape), jnp.nan)
        for shape in ((8,), (2, 4), (1, 4))
    )

    def total(layers):
        found = []
        for name, method in methods.items():
            params = method.prepare({}, layers[name], where, where, DIMS)
            found.append(method.query_features(params, x, q, where))
            found.append(method.key_features(params, x, k, where)[0])
        return sum(part[:, :4].sum() for part in jax.tree.leaves(found))

    for name, gradients in jax.jit(jax.grad(total))(layers).items():
        for path, part in jax.tree.leaves_with_path(gradients):
            assert np.isfinite(part).all(), (name, path)
