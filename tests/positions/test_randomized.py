"""Randomized positions: a sorted draw without replacement (arXiv:2305.16843)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import Randomized
from ropejax.positions.randomized import first_of_order, random_order

LENGTHS = np.array([5, 12, 1, 8])


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def place(scheme, lengths, num_tokens, num_layers):
    return scheme(
        jax.random.key(0), lengths, num_tokens=num_tokens, num_layers=num_layers
    )


def draw(scheme, lengths=LENGTHS, *, num_tokens=12, num_layers=1):
    return place(scheme, lengths, num_tokens, num_layers)


@pytest.mark.parametrize("per_sequence", [False, True])
def test_ids_are_distinct_increasing_and_in_range(per_sequence):
    ids = np.asarray(draw(Randomized(20, per_sequence=per_sequence)).positions)
    for row, length in zip(ids, LENGTHS, strict=True):
        real = row[:length]
        assert (np.diff(real) > 0).all()
        assert real.min() >= 0
        assert real.max() < 20


def test_as_many_ids_as_tokens_are_consecutive():
    ids = draw(Randomized(12), lengths=np.array([12, 12])).positions
    np.testing.assert_array_equal(ids, np.tile(np.arange(12), (2, 1)))


def test_as_many_distances_as_tokens_are_consecutive():
    table = draw(Randomized(12, distances=True), lengths=np.array([12])).distances
    np.testing.assert_array_equal(table, np.arange(12)[None])


def test_more_tokens_than_ids_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"13 tokens.*max_position=12"):
        draw(Randomized(12), num_tokens=13)
    with pytest.raises(ValueError, match=r"13 tokens.*max_position=12"):
        Randomized(12).check(13)
    Randomized(12).check(12)


def test_every_id_and_every_pair_is_equally_likely():
    num_ids, length, trials = 12, 5, 4000
    scheme = Randomized(num_ids)
    keys = jax.random.split(jax.random.key(0), trials)
    ids = jax.jit(
        jax.vmap(
            lambda key: scheme(key, jnp.array([length]), num_tokens=length).positions[0]
        )
    )(keys)
    chosen = np.asarray(jax.nn.one_hot(ids, num_ids).sum(1))
    together = chosen.T @ chosen / trials
    one = length / num_ids
    two = one * (length - 1) / (num_ids - 1)
    expected = np.where(np.eye(num_ids, dtype=bool), one, two)
    spread = np.sqrt(expected * (1 - expected) / trials)
    # 78 different entries: the largest of them stays within 4.5 standard deviations.
    assert np.abs((together - expected) / spread).max() < 4.5


def test_order_is_a_permutation_and_each_first_id_equally_likely():
    keys = jax.random.split(jax.random.key(1), 3000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: random_order(key, 8)))(keys))
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(range(8), (3000, 1)))
    begun = jax.vmap(lambda key: random_order(key, 8, 3))(keys[:50])
    np.testing.assert_array_equal(begun, orders[:50, :3])
    counts = np.bincount(orders[:, 0], minlength=8)
    assert np.abs(counts - 375).max() < 4.5 * np.sqrt(375 * 7 / 8)


def test_a_shared_draw_is_one_order_of_which_rows_take_the_first_ids():
    ids = np.asarray(draw(Randomized(40)).positions)
    longest = set(ids[1])
    for row, length in zip(ids, LENGTHS, strict=True):
        assert set(row[:length]) <= longest
    order = random_order(jax.random.key(0), 40)
    for row, length in zip(ids, LENGTHS, strict=True):
        np.testing.assert_array_equal(row[:length], np.sort(order[:length]))


def test_rows_with_draws_of_their_own_all_differ():
    lengths = np.full(8, 6)
    ids = draw(Randomized(64, per_sequence=True), lengths=lengths).positions
    assert len({tuple(row[:6]) for row in np.asarray(ids).tolist()}) == 8


def test_sharded_rows_equal_those_on_one_device():
    if jax.device_count() < 2:
        pytest.skip("needs several devices")
    devices = jax.device_count()
    mesh = jax.make_mesh((devices,), ("batch",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    lengths = jnp.full((2 * devices,), 6)
    scheme = Randomized(64, per_sequence=True)
    call = lambda rng, n: scheme(rng, n, num_tokens=8).positions
    one = jax.jit(call)(jax.random.key(5), lengths)
    many = jax.jit(call, out_shardings=rows)(
        jax.random.key(5), jax.device_put(lengths, rows)
    )
    np.testing.assert_array_equal(one, many)
    assert len({tuple(row) for row in np.asarray(many)[:, :6].tolist()}) == 2 * devices


def test_layers_draw_apart_and_their_number_changes_none():
    scheme = Randomized(64, per_layer=True)
    two, three = (draw(scheme, num_layers=n) for n in (2, 3))
    assert two.per_layer
    assert two.positions.shape == (2, 4, 12)
    np.testing.assert_array_equal(two.positions, three.positions[:2])
    assert (two.positions[0] != two.positions[1]).any()
    np.testing.assert_array_equal(two.tokens(12, layer=1).positions, two.positions[1])


@pytest.mark.parametrize("per_sequence", [False, True])
def test_distances_start_at_zero_and_increase_over_real_tokens(per_sequence):
    scheme = Randomized(30, distances=True, per_sequence=per_sequence)
    placement = draw(scheme)
    assert placement.positions is None
    table = np.asarray(placement.distances)
    assert table.shape == (4, 12)
    for row, length in zip(table, LENGTHS, strict=True):
        assert row[0] == 0
        assert (np.diff(row[:length]) > 0).all()
    assert table.max() < 30


def test_distances_are_uniform_over_the_nonzero_ones():
    scheme, trials = Randomized(9, distances=True), 3000
    keys = jax.random.split(jax.random.key(2), trials)
    tables = jax.jit(
        jax.vmap(lambda key: scheme(key, jnp.array([4]), num_tokens=4).distances[0])
    )(keys)
    counts = np.bincount(np.asarray(tables)[:, 1:].ravel(), minlength=9)
    share = 3 / 8
    assert counts[0] == 0
    spread = np.sqrt(trials * share * (1 - share))
    assert np.abs(counts[1:] - trials * share).max() < 4.5 * spread


def test_a_single_id_serves_a_single_token():
    assert draw(Randomized(1), lengths=np.array([1]), num_tokens=1).positions == 0
    scheme = Randomized(1, distances=True)
    assert draw(scheme, lengths=np.array([1]), num_tokens=1).distances == 0


def test_unsorted_draw_holds_the_same_ids_in_another_order():
    lengths = np.array([12, 7])
    ordered = np.asarray(draw(Randomized(40), lengths=lengths).positions)
    drawn = np.asarray(draw(Randomized(40, sort=False), lengths=lengths).positions)
    for a, b, length in zip(ordered, drawn, (12, 7), strict=True):
        np.testing.assert_array_equal(np.sort(b[:length]), a[:length])
    assert (np.diff(drawn[0]) < 0).any()


def test_first_of_order_refuses_more_tokens_than_ids():
    with pytest.raises(ValueError, match="5 tokens"):
        first_of_order(jnp.arange(5)[None], jnp.array([2]), 4)
