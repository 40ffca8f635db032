"""The relative shift and what is built on it, against loops over pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings.relative_shift import (
    in_order,
    offsets_in_order,
    offsets_to_pairs,
    pairs_to_offsets,
    rows_from,
)
from ropejax.encodings.relative_terms import (
    against_offsets,
    clipped_rows,
    key_logits,
    relative_bias,
    relative_logits,
    relative_values,
)
from ropejax.tokens import relative_positions, tokens

SIZES = [(1, 1), (1, 5), (4, 1), (3, 5), (5, 3), (2, 2)]
CLIP = 4


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def sides(kind, length=5, num_keys=7, first=2):
    """Returns queries and keys whose offsets are known in different ways."""
    query, key = tokens(length, offset=first), tokens(num_keys)
    if kind == "order":
        return query, key
    if kind == "distances":
        table = jnp.array([[0, 1, 3, 4, 9, 11, 12, 20, 21]])
        return query.replace(distances=table), key.replace(distances=table)
    if kind == "tables":
        table = jnp.array([[0, 1, 3, 4, 9, 11, 12], [0, 2, 3, 5, 6, 7, 8]])
        return query.replace(distances=table), key.replace(distances=table)
    if kind == "positions":
        place = jnp.array([[0, 2, 3, 7, 8, 11, 12]])
        return (
            tokens(length, offset=first, positions=place[:, first : first + length]),
            tokens(num_keys, positions=place),
        )
    place = jnp.array([[0, 2, 3, 7, 8, 11, 12], [0, 1, 3, 4, 6, 7, 20]])
    return (
        tokens(length, offset=first, positions=place[:, first : first + length]),
        tokens(num_keys, positions=place),
    )


KINDS = ["order", "distances", "tables", "positions", "rows"]


@pytest.mark.parametrize(("length", "num_keys"), SIZES)
def test_shift_puts_every_offset_at_its_pairs(length, num_keys):
    x = normal(2, length, length + num_keys - 1)
    got = offsets_to_pairs(x, num_keys)
    for t in range(length):
        for s in range(num_keys):
            np.testing.assert_array_equal(got[:, t, s], x[:, t, length - 1 + s - t])


@pytest.mark.parametrize(("length", "num_keys"), SIZES)
def test_pairs_to_offsets_is_the_transpose_of_the_shift(length, num_keys):
    by_offset = jnp.zeros((length, length + num_keys - 1))
    pairs = normal(length, num_keys)
    _, transpose = jax.vjp(lambda x: offsets_to_pairs(x, num_keys), by_offset)
    np.testing.assert_array_equal(pairs_to_offsets(pairs), transpose(pairs)[0])


def test_a_wrong_number_of_offsets_is_refused():
    with pytest.raises(ValueError, match="have 7 offsets, got 6"):
        offsets_to_pairs(jnp.zeros((3, 6)), 5)


@pytest.mark.parametrize("start", [-9, -3, 0, 2, 4, 9])
def test_rows_outside_a_table_are_zeros_and_move_no_others(start):
    table = normal(1, 5, 2)
    padded = np.pad(np.asarray(table[0]), [(20, 20), (0, 0)])
    got = rows_from(table, jnp.array([start]), 3)[0]
    np.testing.assert_array_equal(got, padded[20 + start : 23 + start])


def test_rows_start_where_each_table_is_told():
    table = normal(1, 6, 2)
    got = rows_from(table, jnp.array([1, 3]), 2)
    np.testing.assert_array_equal(got, jnp.stack([table[0, 1:3], table[0, 3:5]]))


@pytest.mark.parametrize("kind", ["order", "distances", "tables"])
def test_offsets_in_order_are_those_of_the_pairs(kind):
    query, key = sides(kind)
    assert in_order(query, key)
    offsets = offsets_in_order(query, key)[:, None]
    rows = jnp.broadcast_to(offsets, (offsets.shape[0], 5, offsets.shape[2]))
    np.testing.assert_array_equal(
        offsets_to_pairs(rows, 7), relative_positions(query, key)
    )


@pytest.mark.parametrize(
    ("kind", "batch"),
    [
        ("order", 1),
        ("order", 2),
        ("order", 8),
        ("distances", 8),
        ("tables", 2),
        ("positions", 2),
        ("positions", 1),
        ("positions", 8),
        ("rows", 2),
    ],
)
def test_terms_equal_loops_over_pairs(kind, batch):
    query, key = sides(kind)
    q, k, weights = (
        normal(batch, 5, 3, 4),
        normal(batch, 7, 1, 4),
        normal(batch, 3, 5, 7),
    )
    tables = [normal(2 * CLIP + 1, *heads, 4, seed=1) for heads in ((), (3,))]
    rows = clipped_rows(CLIP)

    @jax.jit
    def terms(q, k, weights, tables):
        return [
            (
                relative_logits(q, table, rows, query, key),
                key_logits(k, table, rows, query, key, 3),
                relative_values(weights, table, rows, query, key),
            )
            for table in tables
        ]

    offset = np.asarray(relative_positions(query, key))
    offset = np.broadcast_to(offset, (batch, 5, 7))
    every = np.repeat(k, 3, axis=2)
    for got, table in zip(terms(q, k, weights, tables), tables, strict=True):
        vectors = np.asarray(table)[np.clip(offset, -CLIP, CLIP) + CLIP]
        if table.ndim == 2:
            vectors = np.broadcast_to(vectors[:, :, :, None], (batch, 5, 7, 3, 4))
        wanted = (
            np.einsum("btnh,btsnh->bnts", q, vectors),
            np.einsum("bsnh,btsnh->bnts", every, vectors),
            np.einsum("bnts,btsnh->btnh", weights, vectors),
        )
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_bias_is_the_function_of_every_offset(kind):
    query, key = sides(kind)

    def function(offsets):
        shape = (1, 2) + (1,) * (offsets.ndim - 1)
        return offsets[:, None] ** 2 * jnp.array([1.0, -3.0]).reshape(shape)

    got = relative_bias(function, query, key)
    wanted = relative_positions(query, key)[:, None] ** 2
    np.testing.assert_allclose(got, wanted * np.array([1, -3])[None, :, None, None])


@pytest.mark.parametrize("batch", [2, 8])
def test_both_ways_for_tokens_in_order_have_the_same_gradients(batch):
    q, vectors = normal(batch, 5, 2, 4), normal(1, 11, 2, 4, seed=1)
    weights = normal(batch, 2, 5, 7, seed=2)

    def loss(q, vectors, ways):
        logits = ways(q, vectors)
        return (logits * weights).sum()

    def spelled_out(q, vectors):
        at = 4 + jnp.arange(7)[None] - jnp.arange(5)[:, None]
        return jnp.einsum("btnh,tsnh->bnts", q, vectors[0][at])

    def shifted(q, vectors):
        return against_offsets(q, vectors, 7)

    gradients = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    got, wanted = (gradients(q, vectors, ways) for ways in (shifted, spelled_out))
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_fractional_offsets_have_no_row_in_a_table():
    with pytest.raises(ValueError, match="integer positions"):
        clipped_rows(3)(jnp.array([0.5]))
