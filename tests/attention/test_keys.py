"""Keys in any storage, padding of any content, positions of any dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import StickBreaking, attend
from ropejax.encodings import ALiBi, Dims, Encoding, Rotary
from ropejax.encodings.kerple import Kerple
from ropejax.masks import Causal
from ropejax.tokens import tokens

LENGTH = 9
DIMS = Dims(2, 2, 4, 8, 1, causal=True)


def arrays(seed=0, heads=2):
    keys = jax.random.split(jax.random.key(seed), 3)
    return [jax.random.normal(key, (2, LENGTH, heads, 4)) for key in keys]


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_stick_breaking_goes_by_index_however_keys_are_stored(implementation):
    q, k, v = arrays()
    where = tokens(LENGTH)
    settings = {
        "encoding": Encoding(),
        "mask": Causal(),
        "normalizer": StickBreaking(),
        "implementation": implementation,
    }
    wanted = attend(q, k, v, query=where, key=where, **settings)
    order = jnp.array([3, 0, 8, 1, 7, 2, 6, 4, 5])
    got = attend(
        q, k[:, order], v[:, order], query=where, key=where.permuted(order), **settings
    )
    np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
@pytest.mark.parametrize("encoding", [Rotary(), ALiBi()], ids=["rope", "alibi"])
def test_nothing_depends_on_what_padding_holds(implementation, encoding):
    """Fault B16: zero times NaN is NaN, in outputs and in gradients."""
    q, k, v = arrays()
    valid = jnp.arange(LENGTH)[None] < 6

    def loss(q, k, v):
        out = attend(
            q,
            k,
            v,
            encoding=encoding,
            query=tokens(LENGTH),
            key=tokens(LENGTH, valid=valid),
            mask=Causal(),
            implementation=implementation,
        )
        return (out[:, :6] ** 2).sum()

    take = jax.value_and_grad(loss, argnums=(0, 1, 2))
    value, grads = take(q, k, v)
    bad = jnp.where(valid[..., None, None], 0.0, jnp.nan)
    other, others = take(q, k + bad, v + bad)
    assert value == other
    jax.tree.map(np.testing.assert_array_equal, grads, others)


@pytest.mark.parametrize("encoding", [ALiBi(), Kerple()], ids=["alibi", "kerple"])
@pytest.mark.parametrize("dtype", [jnp.uint32, jnp.uint8, jnp.int8, jnp.uint16])
def test_biases_do_not_depend_on_the_dtype_of_positions(encoding, dtype):
    """Fault B24's kind: unsigned differences wrap around, narrow ones overflow."""
    q, k, v = arrays()
    at = jnp.array([[0, 1, 2, 50, 90, 100, 110, 120, 127]])
    layer = encoding.init_layer(jax.random.key(0), DIMS)

    def out(positions):
        where = tokens(LENGTH, positions=positions)
        params = encoding.prepare({}, layer, where, where, DIMS)
        settings = {"encoding": encoding, "params": params, "mask": Causal()}
        return attend(q, k, v, query=where, key=where, **settings)

    np.testing.assert_array_equal(out(at.astype(dtype)), out(at))


def test_segments_of_one_side_only_are_refused():
    q, k, v = arrays()
    packed = tokens(LENGTH, segments=jnp.zeros((1, LENGTH), jnp.int32))
    plain = tokens(LENGTH)
    for query, key, absent in ((plain, packed, "queries"), (packed, plain, "keys")):
        with pytest.raises(ValueError, match=f"Tokens of {absent} have no segments"):
            attend(q, k, v, encoding=Encoding(), query=query, key=key)
