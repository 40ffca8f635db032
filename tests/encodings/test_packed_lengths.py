"""What follows the length of a sequence counts within a token's own segment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import SequenceParallel, attend
from ropejax.encodings import (
    Dims,
    DualChunk,
    DynamicNTKRoPE,
    DynamicYaRN,
    LogScale,
    LongRoPE,
    Rotary,
    compose,
)
from ropejax.encodings.length_scaling import DynamicInterpolation
from ropejax.encodings.own_segment import own_counts, segment_keys
from ropejax.encodings.yarn_map import ThreeBands
from ropejax.positions import packed_positions
from ropejax.tokens import tokens
from tests.attention.on_mesh import LENGTH, assert_spread_equals_dense, mesh_of
from tests.encodings.rotary_cases import prepared, random

SEGMENTS = jnp.asarray([[0, 0, 0, 1, 1, 1, 1, 1], [7, 7, 7, 7, 7, 2, 2, 2]])
PARTS = {3: ((0, slice(0, 3)), (1, slice(5, 8))), 5: ((0, slice(3, 8)), (1, slice(5)))}
"""Length -> row and place of the sequences that are so long."""

METHODS = {
    "log-n": LogScale(train_length=2),
    "log-n of all keys": LogScale(train_length=2, count="all"),
    "steps of earlier keys": LogScale(form="steps", train_length=2, count="earlier"),
    "dynamic NTK": DynamicNTKRoPE(scale=2.0, train_length=2),
    "dynamic YaRN": DynamicYaRN(train_length=2, beta_fast=2.0, beta_slow=0.01),
    "three bands": Rotary(frequencies=ThreeBands(train_length=2, dynamic=True)),
    "LongRoPE": LongRoPE(long_factors=(2.0, 3.0), train_length=4, keep_first=1),
    "moving LongRoPE": LongRoPE(
        long_factors=(2.0, 3.0), train_length=2, interpolate=True
    ),
    "Dual Chunk": DualChunk(chunk_size=3, local=1, factor_length=2),
    "learned": Rotary(frequencies=DynamicInterpolation(2), trainable="layer"),
}


def packed(index="row"):
    where = tokens(8, positions=packed_positions(SEGMENTS), segments=SEGMENTS)
    if index == "row":
        return where
    return where.replace(index=where.positions, consecutive_index=False)


def cut(x, length):
    return jnp.stack([x[row, place] for row, place in PARTS[length]])


def logits(encoding, q, k, where):
    dims = Dims(1, 1, 4, 4)
    layer = encoding.init_layer(jax.random.key(0), dims)
    params = encoding.prepare({}, layer, where, where, dims)
    views = encoding.queries(params, q, where), encoding.keys(params, k, where)
    pairs = jnp.ones((1, 1, where.length, where.length), bool)
    return encoding.score(params, None, *views, where, where, pairs, 1.0)[1][:, 0]


def test_a_packed_sequence_has_the_logits_that_it_has_alone():
    q, k = random(2, 8, 1, 4), random(2, 8, 1, 4, seed=1)

    @jax.jit
    def every(q, k):
        return {
            name: (
                {
                    index: logits(encoding, q, k, packed(index))
                    for index in ("row", "own")
                },
                {n: logits(encoding, cut(q, n), cut(k, n), tokens(n)) for n in PARTS},
            )
            for name, encoding in METHODS.items()
        }

    for name, (together, alone) in every(q, k).items():
        for index, got in together.items():
            for length, wanted in alone.items():
                for at, (row, place) in enumerate(PARTS[length]):
                    np.testing.assert_allclose(
                        got[row, place, place],
                        wanted[at],
                        atol=2e-5,
                        err_msg=f"{name}, {index} index, length {length}",
                    )


def test_log_n_factors_start_anew_in_each_segment():
    where = packed()
    x = jnp.ones((2, 8, 1, 4))
    scale = LogScale(train_length=2)
    params = prepared(scale, where, x)
    (got,) = scale.queries(params, x, where)
    five = np.maximum(1, np.log2([1, 2, 3, 4, 5]))
    wanted = [[*five[:3], *five], [*five, *five[:3]]]
    np.testing.assert_allclose(got[:, :, 0, 0], wanted, rtol=1e-6)
    # A query that is decoded sees what it saw among the others.
    one = where.block(7, 1)
    (got,) = scale.queries(params, x[:, :1], one)
    np.testing.assert_allclose(got[:, 0, 0, 0], [np.log2(5), np.log2(3)], rtol=1e-6)


@pytest.mark.fast
def test_counts_of_a_segment_by_hand():
    """Of tokens in any order, with padding inside and outside the segments."""
    segments = jnp.asarray([[4, 4, 9, 9, 9, 9, 0, 0]])
    valid = jnp.asarray([[True, True, False, True, True, True, False, False]])
    where = tokens(8, segments=segments, valid=valid, positions=jnp.zeros((1, 8), int))
    order = jnp.asarray([5, 0, 7, 3, 1, 6, 4, 2])
    for key in (where, where.permuted(order)):
        got = own_counts(segment_keys(key), where)
        np.testing.assert_array_equal(got.length[0], [2, 2, 3, 3, 3, 3, 0, 0])
        np.testing.assert_array_equal(got.valid[0], [2, 2, 3, 3, 3, 3, 0, 0])
        np.testing.assert_array_equal(got.before[0], [1, 2, 0, 1, 2, 3, 0, 0])
    with pytest.raises(ValueError, match="these tokens have none"):
        own_counts(segment_keys(where), tokens(8))


def test_engines_agree_on_packed_rows_and_with_sequences_alone():
    encoding = compose(
        LogScale(train_length=2), DynamicNTKRoPE(scale=2.0, train_length=2)
    )
    q, k, v, weight = (random(2, 8, 1, 4, seed=seed) for seed in range(4))

    def run(arrays, where, implementation):
        return attend(
            *arrays,
            encoding=encoding,
            params=prepared(encoding, where, arrays[0]),
            query=where,
            key=where,
            mask=masks.Causal(),
            implementation=implementation,
            block_q=3,
            block_k=2,
        )

    def loss(arrays, implementation):
        out = run(arrays, packed(), implementation)
        return (out * weight).sum(), out

    @jax.jit
    def every(arrays):
        together = {
            name: jax.grad(loss, has_aux=True)(arrays, name)
            for name in ("dense", "blockwise")
        }
        alone = {n: run([cut(x, n) for x in arrays], tokens(n), "dense") for n in PARTS}
        return together, alone

    together, alone = every((q, k, v))
    gradients = [jax.tree.leaves(got) for got in together.values()]
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    out = together["dense"][1]
    for length, wanted in alone.items():
        np.testing.assert_allclose(cut(out, length), wanted, atol=2e-5)


def test_devices_that_hold_parts_of_a_row_know_the_lengths_of_its_segments():
    """With rows spread as well: what is known of the keys has an axis of rows."""
    encoding = compose(
        LogScale(train_length=2), DynamicNTKRoPE(scale=2.0, train_length=2)
    )
    first = jnp.asarray([[5], [LENGTH - 9]])
    segments = (jnp.arange(LENGTH) >= first).astype(jnp.int32)
    where = tokens(LENGTH, positions=packed_positions(segments), segments=segments)
    assert_spread_equals_dense(
        SequenceParallel("ring", batch_axes=("data",)),
        encoding,
        mesh_of(data=2, sequence=2),
        where,
    )


def test_what_is_counted_takes_memory_linear_in_length():
    """Pairs of tokens would be 4,096 times 4,096."""
    length = 4096

    def count(segments):
        where = tokens(length, segments=segments)
        return own_counts(segment_keys(where), where)

    shape = jax.ShapeDtypeStruct((1, length), jnp.int32)
    program = jax.jit(count).lower(shape).compile()
    assert program.memory_analysis().temp_size_in_bytes < 100 * length
