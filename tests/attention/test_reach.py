"""Tables of distances that end before a key: refused, or NaN where indices are traced.

Beyond the end of a table distance 0 would stand, and the farthest keys count as the
nearest.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import attention, masks
from ropejax.attention import attend
from ropejax.encodings import ALiBi, Kerple
from ropejax.encodings.base import Dims
from ropejax.encodings.relative_shift import offsets_in_order
from ropejax.tokens import relative_positions, tokens

TABLE = np.arange(5)[None] * 10
NEAREST_LAST = np.exp(-TABLE[0, ::-1]) / np.exp(-TABLE[0]).sum()


def attended(offset, *, table=TABLE, index=None, valid=None, **settings):
    """Returns weights of one query on 5 keys that are all alike, under ALiBi."""
    key = tokens(5, distances=table).replace(valid=valid)
    if index is not None:
        key = key.replace(index=jnp.asarray(index), consecutive_index=False)
    query = tokens(1).replace(index=jnp.asarray(offset).reshape(1, 1))
    ones = jnp.ones((1, 5, 1, 4))
    out = attend(
        ones[:, :1],
        ones,
        jnp.eye(5)[None, :, None],
        encoding=ALiBi(slopes=(1.0,)),
        query=query,
        key=key,
        mask=masks.Causal(),
        **settings,
    )
    return out.ravel()


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, np.uint8, jnp.int32])
def test_a_table_too_short_for_a_known_offset_is_refused(kind):
    for told in (lambda n: tokens(1, offset=n, distances=TABLE), attended):
        with pytest.raises(ValueError, match="5 distances is too short for 7 tokens"):
            told(kind(6))
        told(kind(4))


def test_only_valid_keys_must_be_within_reach():
    index = [[6, 0, 3, 4, 5]]
    with pytest.raises(ValueError, match="too short for 7 tokens"):
        attended(6, index=index)
    got = attended(6, index=index, valid=np.array([[True, False, True, True, True]]))
    weights = np.exp([0.0, -np.inf, -30, -20, -10])
    np.testing.assert_allclose(got, weights / weights.sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
@pytest.mark.parametrize("index", [None, [[0, 1, 2, 3, 4]]], ids=["in order", "any"])
def test_a_table_too_short_for_a_traced_offset_gives_nan(dtype, implementation, index):
    settings = {"table": TABLE.astype(dtype), "implementation": implementation}
    run = jax.jit(lambda offset: attended(offset, index=index, **settings))
    assert np.isnan(run(jnp.int32(5))).all()
    np.testing.assert_allclose(run(jnp.int32(4)), NEAREST_LAST, rtol=1e-5)


NORMALIZERS = [
    kind
    for kind in vars(attention).values()
    if isinstance(kind, type)
    and issubclass(kind, attention.Normalizer)
    and kind is not attention.Normalizer
]


@pytest.mark.parametrize("kind", NORMALIZERS)
def test_no_normalizer_makes_numbers_of_it(kind):
    run = jax.jit(lambda offset: attended(offset, normalizer=kind()))
    assert np.isnan(run(jnp.int32(6))).all()


def test_squared_relu_in_blocks_keeps_nan():
    """It compares logits with zero, and no comparison holds for NaN."""
    settings = {"normalizer": attention.SquaredReLU(), "implementation": "blockwise"}
    assert np.isnan(jax.jit(lambda n: attended(n, **settings))(jnp.int32(6))).all()


@pytest.mark.parametrize(("dtype", "is_unknown"), [(float, np.isnan), (int, None)])
def test_offsets_beyond_a_table_are_unknown_in_any_order(dtype, is_unknown):
    is_unknown = is_unknown or (lambda x: x == -(2**31))
    key = tokens(5, distances=TABLE.astype(dtype))
    query = tokens(1).replace(index=jnp.array([[6]]))
    ordered = np.asarray(offsets_in_order(query, key))
    np.testing.assert_array_equal(ordered, relative_positions(query, key)[:, 0])
    np.testing.assert_array_equal(is_unknown(ordered), [[True, True, 0, 0, 0]])


def test_padding_of_blocks_beyond_the_table_leaves_gradients_finite():
    """Pairs that nobody sees have gradients of zero, which NaN would not leave so."""
    table, encoding, n = np.linspace(0, 9, 5, dtype=np.float32)[None], Kerple(), 5
    side = tokens(n, distances=table)
    dims = Dims(1, 1, 4, 4)
    layer = encoding.init_layer(jax.random.key(0), dims)
    q = jax.random.normal(jax.random.key(1), (1, n, 1, 4))

    def run(layer, **settings):
        params = encoding.prepare({}, layer, side, side, dims)
        settings |= {"params": params, "query": side, "key": side}
        out = attend(q, q, q, encoding=encoding, mask=masks.Causal(), **settings)
        return jnp.square(out).sum()

    blocks = {"implementation": "blockwise", "block_q": 3, "block_k": 4}
    got = jax.grad(lambda layer: run(layer, **blocks))(layer)
    right = jax.grad(lambda layer: run(layer, implementation="dense"))(layer)
    for name, grads in right.items():
        np.testing.assert_allclose(got[name], grads, rtol=1e-4)
