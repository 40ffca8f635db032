"""Alpha-entmax blockwise: thresholds by Newton's method against dense bisection."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from ropejax import masks
from ropejax.attention import Entmax, attend
from ropejax.attention.blockwise import blockwise
from ropejax.encodings import ENCODINGS, Encoding
from ropejax.tokens import tokens
from tests.attention import cases

SMALL = {"implementation": "blockwise", "block_q": 8, "block_k": 16}
LENGTH = 41


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_outputs_and_gradients_against_float64(alpha):
    """Grouped heads, rows that see nothing, and lengths that blocks do not divide."""
    encoding = ENCODINGS["alibi"]()
    case = cases.case(encoding, LENGTH)
    mask = masks.Causal() & ~masks.Prefix(3)

    def run(**settings):
        return cases.attention(
            encoding, mask=mask, normalizer=Entmax(alpha), **settings
        )

    got = cases.value_and_grads(run(**SMALL), case.cotangent)(case.arrays)
    (_, out), _ = got
    assert not np.asarray(out)[:, :3].any()
    cases.assert_same(got, cases.exactly(run(implementation="dense"), case))


@pytest.mark.parametrize("name", ["cope", "shaw"])
def test_states_from_key_to_key_and_vectors_among_values(name):
    encoding = ENCODINGS[name]()
    case = cases.case(encoding, LENGTH)

    def run(**settings):
        run = cases.attention(encoding, normalizer=Entmax(), **settings)
        return cases.value_and_grads(run, case.cotangent)(case.arrays)

    cases.assert_same(run(**SMALL), run(implementation="dense"))


def inputs():
    rng = np.random.default_rng(0)
    return [cases.normal(rng, 2, LENGTH, 2, 8) for _ in range(3)]


def gradients(q, k, v, **settings):
    def loss(q, k, v):
        out = attend(
            q,
            k,
            v,
            encoding=Encoding(),
            query=tokens(LENGTH),
            key=tokens(LENGTH),
            mask=masks.Causal(),
            normalizer=Entmax(),
            **settings,
        )
        return jnp.sin(3 * out).sum()

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def test_dropout_drops_what_dense_drops():
    drop = {"dropout_rate": 0.3, "rng": jax.random.key(1)}
    got, wanted, without = (
        cases.jit(lambda *x, how=how: gradients(*x, **how))(*inputs())
        for how in (SMALL | drop, {"implementation": "dense"} | drop, SMALL)
    )
    cases.assert_close(got, wanted, 1e-5)
    assert float(jnp.abs(got[2] - without[2]).max()) > 0.1


def test_vmap_of_grad_and_shard_map():
    stacked = [jnp.stack([x, 2 * x]) for x in inputs()]
    run = jax.vmap(lambda *x: gradients(*x, **SMALL))
    dense = jax.vmap(lambda *x: gradients(*x, implementation="dense"))
    wanted = cases.jit(dense)(*stacked)
    cases.assert_close(cases.jit(run)(*stacked), wanted, 1e-5)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.shard_map(run, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    cases.assert_close(cases.jit(spread)(*stacked), wanted, 1e-5)


@pytest.mark.parametrize("alpha", [1.05, 1.5, 2.0])
@pytest.mark.parametrize("spread", [0.0, 1.0, 300.0])
def test_rows_of_any_shape_sum_to_one(alpha, spread):
    """Flat rows need the smallest thresholds, steep ones the largest."""
    q = jnp.ones((1, 1, 1, 1))
    k = spread * cases.normal(np.random.default_rng(0), 1, 3000, 1, 1)
    v = jnp.stack([jnp.ones(3000), jnp.arange(3000.0)], -1)[None, :, None]
    out = attend(
        q,
        k,
        v,
        encoding=Encoding(),
        query=tokens(1),
        key=tokens(3000),
        scale=1.0,
        normalizer=Entmax(alpha),
        implementation="blockwise",
    )
    total, place = np.asarray(out, np.float64).ravel()
    assert abs(total - 1) < 2e-6
    if spread == 0:
        assert abs(place - 1499.5) < 5e-3
    if spread == 300:
        assert place == np.argmax(k)


def test_memory_is_linear_in_length():
    def temporary(length):
        x = jax.ShapeDtypeStruct((1, length, 2, 8), jnp.float32)

        def run(q, k, v):
            where = tokens(length)
            return attend(
                q,
                k,
                v,
                encoding=Encoding(),
                query=where,
                key=where,
                mask=masks.Causal(),
                normalizer=Entmax(),
                implementation="blockwise",
            ).sum()

        compiled = jax.jit(jax.grad(run, (0, 1, 2))).lower(x, x, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(8192) < 4.5 * temporary(2048)


def test_keys_that_go_around_are_refused():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="cannot go around a ring"):
        blockwise(
            q,
            k,
            v,
            encoding=Encoding(),
            params={},
            query=tokens(LENGTH),
            key=tokens(LENGTH),
            scale=1.0,
            normalizer=Entmax(),
            around="x",
        )


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_a_query_that_is_not_a_number_gives_none(implementation):
    """Zeros there would hide it from whoever watches for steps that are not finite."""
    q, k, v = jnp.asarray(cases.normal(np.random.default_rng(0), 3, 1, 4, 1, 4))
    where = tokens(4)
    out = attend(
        q.at[0, 1].set(jnp.nan),
        k,
        v,
        encoding=Encoding(),
        query=where,
        key=where,
        normalizer=Entmax(1.5),
        implementation=implementation,
    )
    broken = np.isnan(out).all((0, 2, 3))
    np.testing.assert_array_equal(broken, [False, True, False, False])
