"""Blockwise attention against dense: masks, tokens, transformations of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from ropejax import masks
from ropejax.attention import attend, blocks
from ropejax.attention.api import dims_of
from ropejax.attention.visibility import visible_pairs
from ropejax.encodings import Dims, Encoding, Rotary
from ropejax.tokens import Tokens, relative_positions, tokens
from tests.attention import cases

LENGTH = 41
SMALL = {"block_q": 8, "block_k": 16}


def random_inputs(length=LENGTH, heads=4, kv_heads=2, width=8, batch=2, seed=0):
    rng = np.random.default_rng(seed)
    q = cases.normal(rng, batch, length, heads, width)
    k = cases.normal(rng, batch, length, kv_heads, width)
    v = cases.normal(rng, batch, length, kv_heads, width)
    return q, k, v, cases.normal(rng, *q.shape)


def both(function):
    """Returns `function(settings)` under the two engines."""
    return function(implementation="blockwise", **SMALL), function(
        implementation="dense"
    )


def outputs_and_grads(where: Tokens, mask, encoding=None, inputs=None, **settings):
    q, k, v, cotangent = random_inputs() if inputs is None else inputs

    def loss(q, k, v):
        out, lse = attend(
            q,
            k,
            v,
            encoding=Encoding() if encoding is None else encoding,
            query=where,
            key=where,
            mask=mask,
            return_lse=True,
            **settings,
        )
        finite = jnp.isfinite(lse)
        total = (out * cotangent).sum() + jnp.sin(jnp.where(finite, lse, 0)).sum()
        return total, (out, lse)

    return cases.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(q, k, v)


MASKS = {
    "none": None,
    "window": masks.Window(5, 3),
    "lambda": masks.Lambda(2, 6),
    "longformer": masks.Longformer(6, step=2),
    "random": masks.Random(4, seed=3),
    "bigbird": masks.BigBird(LENGTH, block=4, random=1),
    "heads": masks.PerHead(
        (masks.Window(0), masks.Causal(), masks.Full(), masks.Chunked(8))
    ),
    "rows that see nothing": masks.Causal() & ~masks.Prefix(9),
    "nothing": ~masks.Full(),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    def run(**settings):
        return outputs_and_grads(tokens(LENGTH), MASKS[name], **settings)

    cases.assert_same(*both(run))


def test_rows_that_see_nothing_are_zero_and_have_zero_gradients():
    mask = masks.Causal() & ~masks.Prefix(9)
    settings = {"implementation": "blockwise", **SMALL}
    (_, (out, lse)), (d_q, d_k, d_v) = outputs_and_grads(
        tokens(LENGTH), mask, **settings
    )
    assert not np.asarray(out)[:, :9].any()
    assert (np.asarray(lse)[:, :, :9] == -np.inf).all()
    assert not np.asarray(d_q)[:, :9].any()
    assert not np.asarray(d_k)[:, :9].any()
    assert not np.asarray(d_v)[:, :9].any()
    assert np.isfinite(d_q).all()


def test_segments_padding_and_storage_order():
    order = jnp.asarray(np.random.default_rng(1).permutation(LENGTH))
    segments = (jnp.arange(LENGTH) // 13)[None]
    valid = jnp.arange(LENGTH)[None] < jnp.array([[LENGTH], [LENGTH - 20]])
    where = tokens(LENGTH, segments=segments, valid=valid)
    plain = outputs_and_grads(where, masks.Causal(), implementation="dense")
    got = outputs_and_grads(where, masks.Causal(), implementation="blockwise", **SMALL)
    cases.assert_same(got, plain)

    inputs = tuple(x[:, order] for x in random_inputs())
    moved = outputs_and_grads(
        where.permuted(order),
        masks.Causal(),
        inputs=inputs,
        implementation="blockwise",
        **SMALL,
    )
    (_, (out, lse)), grads = moved
    back = jnp.argsort(order)
    restored = (None, (out[:, back], lse[:, :, back])), [g[:, back] for g in grads]
    cases.assert_same(restored, plain)


def test_positions_of_each_row_and_a_table_of_distances():
    rng = np.random.default_rng(2)
    positions = np.sort(rng.choice(500, (2, LENGTH)), axis=1)
    for where in (
        tokens(LENGTH, positions=jnp.asarray(positions)),
        tokens(LENGTH, distances=jnp.asarray(np.arange(0, 3 * LENGTH, 3))[None]),
    ):

        def run(where=where, **settings):
            return outputs_and_grads(where, masks.Causal(), BySlope(), **settings)

        cases.assert_same(*both(run))


class BySlope(Encoding):
    """A bias from relative positions, whichever way they are given."""

    def bias(self, params, query, key, scale):
        return -0.05 * jnp.abs(relative_positions(query, key)[:, None])


def test_fewer_queries_than_keys_and_other_widths_of_values():
    q, k, v, _ = random_inputs()
    v = jnp.concatenate([v, 2 * v, v], axis=-1)[..., :20]

    def run(**settings):
        return attend(
            q[:, -5:],
            k,
            v,
            encoding=Encoding(),
            query=tokens(5, offset=LENGTH - 5),
            key=tokens(LENGTH),
            mask=masks.Causal(),
            **settings,
        )

    got, wanted = both(run)
    assert got.shape == (2, 5, 4, 20)
    cases.assert_close(got, wanted)


def test_bfloat16_stays_near_float32():
    inputs = random_inputs()
    low = tuple(x.astype(jnp.bfloat16) for x in inputs)
    exact = tuple(x.astype(jnp.float32) for x in low)
    where, mask = tokens(LENGTH), masks.Causal()
    settings = {"implementation": "blockwise", **SMALL}
    (_, (got, _)), grads = outputs_and_grads(where, mask, inputs=low, **settings)
    (_, (wanted, _)), wanted_grads = outputs_and_grads(
        where, mask, inputs=exact, implementation="dense"
    )
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), wanted, atol=0.03)
    for a, b in zip(grads, wanted_grads, strict=True):
        assert a.dtype == jnp.bfloat16
        np.testing.assert_allclose(a.astype(jnp.float32), b, atol=0.1)


def test_vmap_of_grad_and_remat():
    q, k, v, cotangent = random_inputs()
    stacked = tuple(jnp.stack([x, 2 * x, -x]) for x in (q, k, v))

    def run(remat=False, **settings):
        def loss(q, k, v):
            def out(*qkv):
                return attend(
                    *qkv,
                    encoding=Encoding(),
                    query=tokens(LENGTH),
                    key=tokens(LENGTH),
                    mask=masks.Causal(),
                    **settings,
                )

            return ((jax.checkpoint(out) if remat else out)(q, k, v) * cotangent).sum()

        return cases.jit(jax.vmap(jax.grad(loss, (0, 1, 2))))(*stacked)

    wanted = run(implementation="dense")
    for remat in (False, True):
        got = run(remat=remat, implementation="blockwise", **SMALL)
        cases.assert_close(got, wanted, 1e-5)


def test_shard_map_over_batch_and_heads():
    mesh = jax.make_mesh(
        (2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    q, k, v, cotangent = random_inputs()
    slopes = jnp.array([0.5, 0.25, 0.1, 0.01])

    def attention(q, k, v, slopes, **settings):
        return attend(
            q,
            k,
            v,
            encoding=Slopes(),
            params={"slopes": slopes},
            query=tokens(LENGTH),
            key=tokens(LENGTH),
            mask=masks.Causal(),
            **settings,
        )

    def sharded(q, k, v, slopes):
        run = jax.shard_map(
            lambda *x: attention(*x, implementation="blockwise", **SMALL),
            mesh=mesh,
            in_specs=(P("data", None, "model"),) * 3 + (P("model"),),
            out_specs=P("data", None, "model"),
        )
        return run(q, k, v, slopes)

    def dense(*x):
        return attention(*x, implementation="dense")

    def gradients(function):
        def loss(*x):
            return (function(*x) * cotangent).sum()

        return cases.jit(jax.grad(loss, (0, 1, 2, 3)))(q, k, v, slopes)

    cases.assert_close(sharded(q, k, v, slopes), dense(q, k, v, slopes))
    cases.assert_close(gradients(sharded), gradients(dense), 1e-5)


class Slopes(Encoding):
    """Learned slopes of each head."""

    def bias(self, params, query, key, scale):
        apart = query.index[:, None, :, None] - key.index[:, None, None, :]
        return -params["slopes"][None, :, None, None] * apart.astype(jnp.float32)


def test_forward_mode_names_dense():
    q, k, v, _ = random_inputs()

    def out(q, **settings):
        return attend(
            q,
            k,
            v,
            encoding=Encoding(),
            query=tokens(LENGTH),
            key=tokens(LENGTH),
            **settings,
        )

    def blockwise(q):
        return out(q, implementation="blockwise")

    def looped(q):
        return jax.lax.scan(lambda x, _: (blockwise(x), None), q, length=2)[0]

    for run in (blockwise, jax.jit(blockwise), jax.checkpoint(blockwise), looped):
        with pytest.raises(TypeError, match='implementation="dense"'):
            jax.jvp(run, (q,), (q,))
    for run in (blockwise, jax.jit(blockwise)):
        with pytest.raises(TypeError, match='implementation="dense"'):
            jax.hessian(lambda q, run=run: run(q).sum())(q)
    with pytest.raises(TypeError, match='implementation="dense"'):
        jax.jacfwd(jax.checkpoint(lambda q: blockwise(q).sum()))(q)
    for run in (blockwise, jax.jit(blockwise), jax.checkpoint(blockwise)):
        first = jax.grad(lambda q, run=run: (run(q) ** 2).sum())
        with pytest.raises(TypeError, match='second derivatives .*="dense"'):
            jax.grad(lambda q, first=first: (first(q) ** 2).sum())(q)
    jax.jvp(lambda q: out(q, implementation="dense"), (q,), (q,))


@pytest.mark.parametrize(
    ("mask", "visits", "whole"),
    [
        (masks.Causal(), 10, 6),
        (masks.Window.sliding(16), 7, 0),
        (masks.Chunked(16), 4, 0),
        (None, 16, 16),
    ],
    ids=str,
)
def test_blocks_that_the_mask_rules_out_are_not_visited(mask, visits, whole):
    grid = blocks.grid(64, 16)
    plan = blocks.plan(tokens(64), tokens(64), mask, grid, grid, nearest_first=True)
    assert int(plan.count.sum()) == visits
    assert int(plan.whole.sum()) == whole
    last = np.asarray(plan.order)[3, : int(plan.count[3])]
    assert (np.diff(last) < 0).all()


def test_other_segments_and_padding_are_not_visited():
    grid = blocks.grid(64, 16)
    where = tokens(
        64, segments=jnp.arange(64)[None] // 32, valid=jnp.arange(64)[None] < 48
    )
    seen = blocks.known_blocks(where, where, None, grid, grid).some
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    assert np.asarray(seen).astype(int).tolist() == expected


@pytest.mark.parametrize("name", MASKS)
def test_blocks_are_whole_only_where_every_pair_is_visible(name):
    mask, q, k = MASKS[name], blocks.grid(LENGTH, 8), blocks.grid(LENGTH, 4)
    where = tokens(LENGTH, valid=jnp.arange(LENGTH)[None] < LENGTH - 6)
    query = blocks.padded_tokens(where, q, keys=False)
    key = blocks.padded_tokens(where, k, keys=True)
    known = blocks.known_blocks(query, key, mask, q, k)
    pairs = np.asarray(visible_pairs(query, key, mask))
    pairs = pairs.reshape(-1, q.count, q.size, k.count, k.size)
    assert (np.asarray(known.all) <= pairs.all((0, 2, 4))).all()
    assert (np.asarray(known.some) >= pairs.any((0, 2, 4))).all()


def test_blocks_of_one_segment_are_whole():
    grid = blocks.grid(64, 16)
    where = tokens(64, segments=jnp.arange(64)[None] // 24)
    whole = np.asarray(blocks.known_blocks(where, where, None, grid, grid).all)
    wanted = np.diag([1, 0, 1, 1])
    assert whole.astype(int).tolist() == wanted.tolist()


def test_memory_is_linear_in_length():
    def temporary(length):
        x = jax.ShapeDtypeStruct((1, length, 4, 16), jnp.float32)

        def run(q, k, v):
            where = tokens(length)
            return attend(
                q,
                k,
                v,
                encoding=Rotary(),
                query=where,
                key=where,
                mask=masks.Causal(),
                implementation="blockwise",
            ).sum()

        compiled = jax.jit(jax.grad(run, (0, 1, 2))).lower(x, x, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(8192) < 4.5 * temporary(2048)


def test_dims_are_told_by_the_arrays():
    q, k, _, _ = random_inputs()
    assert dims_of(q, k) == Dims(4, 2, 8, 32)
