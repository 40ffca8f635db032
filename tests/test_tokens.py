"""Tokens, and the differences of their positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.tokens import relative_positions, signed_offsets, tokens

TABLE = jnp.array([[0, 2, 3, 7, 11]])


def test_relative_positions_are_key_minus_query():
    query = tokens(2, positions=jnp.array([[5, 9]]))
    key = tokens(3, positions=jnp.array([[5, 6, 20]]))
    got = relative_positions(query, key)
    np.testing.assert_array_equal(got, [[[0, 1, 15], [-4, -3, 11]]])
    assert got.dtype == jnp.int32


def test_relative_positions_on_one_of_several_axes():
    at = jnp.array([[[0, 10], [1, 30]]])
    side = tokens(2, positions=at)
    np.testing.assert_array_equal(
        relative_positions(side, side, axis=0)[0], [[0, 1], [-1, 0]]
    )
    np.testing.assert_array_equal(
        relative_positions(side, side, axis=1)[0], [[0, 20], [-20, 0]]
    )
    np.testing.assert_array_equal(
        relative_positions(side, side, axis=-1), relative_positions(side, side, axis=1)
    )
    with pytest.raises(ValueError, match=r"positions on one axis.*\(1, 2, 2\)"):
        relative_positions(side, side)


@pytest.mark.fast
def test_an_axis_that_does_not_exist_is_refused():
    """An array would answer with its last one."""
    grid = tokens(2, positions=jnp.array([[[0, 10], [1, 30]]]))
    line, table = tokens(2), tokens(2, distances=jnp.array([[0, 5]]))
    for side, axis, message in (
        (grid, 7, "axis=7 does not exist: positions have 2 of them, 0 to 1"),
        (grid, -3, "axis=-3 does not exist"),
        (grid, True, "axis must be a whole number, got True"),
        (grid, 0.0, "axis must be a whole number, got 0.0"),
        (line, 1, "axis=1 does not exist: positions have 1 of them.*leave axis None"),
        (line, False, "axis must be a whole number, got False"),
        (table, 1, "axis=1 does not exist: distances have 1 of them"),
    ):
        with pytest.raises(ValueError, match=message):
            relative_positions(side, side, axis=axis)
    for axis in (0, -1, np.int64(0)):
        got = relative_positions(line, line, axis=axis)
        np.testing.assert_array_equal(got, relative_positions(line, line))
    # Keys at [batch, length] would have a token taken for an axis.
    with pytest.raises(ValueError, match=r"same axes, got shapes \(1, 2, 2\) and"):
        relative_positions(grid, line, axis=1)


def test_distances_tell_every_offset_of_both_signs_apart():
    # google-deepmind/randomized_positional_encodings issue 2: there, all offsets to one
    # side met the same row.
    side = tokens(5, distances=TABLE)
    got = np.asarray(relative_positions(side, side))[0]
    i, j = np.indices((5, 5))
    np.testing.assert_array_equal(
        got, np.sign(j - i) * np.asarray(TABLE)[0][np.abs(j - i)]
    )
    assert len(set(got.ravel().tolist())) == 9


def test_distances_go_by_index_whatever_the_positions_and_the_storage_order():
    side = tokens(5, distances=TABLE, positions=jnp.array([[40, 3, 7, 7, 0]]))
    plain = relative_positions(side, side)
    order = jnp.array([4, 2, 0, 1, 3])
    moved = side.permuted(order)
    np.testing.assert_array_equal(relative_positions(side, moved), plain[:, :, order])
    later = tokens(2, offset=3, distances=TABLE)  # decoding: the last two queries
    np.testing.assert_array_equal(relative_positions(later, side), plain[:, 3:])


def test_each_row_may_have_distances_of_its_own():
    table = jnp.concatenate([TABLE, 2 * TABLE])
    side = tokens(5, distances=table)
    got = relative_positions(side, side)
    np.testing.assert_array_equal(got[1], 2 * got[0])
    assert got.shape == (2, 5, 5)


def test_signed_offsets_mirror_a_table():
    got = np.asarray(signed_offsets(TABLE))
    np.testing.assert_array_equal(got, [[-11, -7, -3, -2, 0, 2, 3, 7, 11]])
    np.testing.assert_array_equal(signed_offsets(jnp.array([[0]])), [[0]])


def test_sinusoids_of_signed_offsets_differ_on_both_sides():
    # Faulty tables give every offset from 0 up the row of offset 7. Right for offset 3,
    # width 4, sines then cosines: 0.1411, 0.0300, -0.9900, 0.9996; signs flip for -3.
    offsets = np.asarray(signed_offsets(jnp.arange(8)[None]), np.float64)[0]
    angle = offsets[:, None] * np.array([1.0, 0.01])
    rows = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    np.testing.assert_allclose(rows[7], [0, 0, 1, 1])
    right = np.array([0.141120008, 0.029995500, -0.989992497, 0.999550034])
    np.testing.assert_allclose(rows[7 + 3], right, atol=1e-8)
    np.testing.assert_allclose(rows[7 - 3], right * [-1, -1, 1, 1], atol=1e-8)


def test_blocks_equal_slices_of_the_whole():
    key = tokens(6, positions=jnp.array([[0, 3, 4, 9, 12, 13]]))
    whole = relative_positions(key, key)
    block = jax.jit(lambda start: relative_positions(key.block(start, 2), key))(2)
    np.testing.assert_array_equal(block, whole[:, 2:4])


def test_arrays_of_the_wrong_length_are_refused():
    with pytest.raises(ValueError, match="positions must be"):
        tokens(3, positions=jnp.zeros((1, 4)))
    with pytest.raises(ValueError, match="digit must be"):
        tokens(3, streams={"digit": jnp.zeros((1, 4))})


@pytest.mark.fast
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"positions": jnp.zeros((1, 3, 2, 2))}, r"positions must be \[B or 1, 3, ..."),
        ({"segments": jnp.zeros((1, 3, 1), int)}, r"segments must be \[B or 1, 3\]"),
        ({"distances": jnp.arange(3)}, "distances must be .* got shape"),
        ({"distances": [[1, 2, 3]]}, "distances must begin with 0, .* got .1 2 3"),
        (
            {"positions": np.zeros((2, 3), int), "valid": np.ones((3, 3), bool)},
            "single one for all, got rows {'positions': 2, 'valid': 3}",
        ),
        (
            {"offset": np.zeros((2, 1), int), "valid": np.ones((3, 3), bool)},
            "single one for all, got rows {'valid': 3, 'offset': 2}",
        ),
        ({"offset": np.arange(3)}, r"offset must be .* offset\[:, None\]"),
        ({"offset": np.zeros((2, 3), int)}, r"offset must be .* shape \(2, 3\)"),
        ({"positions": [[2**64, 0, 1]]}, "positions must be numbers within int32"),
        ({"positions": [[0, None, 1]]}, "positions must be numbers"),
        ({"streams": {"digit": [["a", "b", "c"]]}}, "digit must be numbers"),
        ({"positions": [[0, 1, 2], [0]]}, "positions has rows of unlike lengths"),
    ],
)
def test_arrays_of_another_kind_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        tokens(3, **given)


@pytest.mark.fast
def test_each_row_may_start_at_an_index_of_its_own():
    """One for each of B tokens in a row would leave a gap in consecutive order."""
    starts, start_at = jnp.array([[3], [5]]), lambda offset: tokens(2, offset=offset)
    for side in (start_at(starts), jax.jit(start_at)(starts)):
        np.testing.assert_array_equal(side.index, [[3, 4], [5, 6]])
        np.testing.assert_array_equal(side.positions, [[3, 4], [5, 6]])
    with pytest.raises(ValueError, match="offset must be one number"):
        jax.jit(start_at)(starts[:, 0])


@pytest.mark.fast
def test_lists_serve_as_arrays_and_lengths_are_whole():
    listed = {"positions": [[0, 5, 7]], "valid": [[True, True, False]]}
    listed |= {"segments": [[0, 0, 1]], "streams": {"digit": [[1, 2, 3]]}}
    arrays = jax.tree.map(
        jnp.asarray, listed, is_leaf=lambda given: isinstance(given, list)
    )
    ours, wanted = tokens(3, **listed), tokens(3, **arrays)
    jax.tree.map(np.testing.assert_array_equal, ours, wanted)
    assert ours.positions.dtype == np.int32
    traced = jax.jit(lambda at: tokens(2, positions=[[at, at + 4]]).positions)(3)
    np.testing.assert_array_equal(traced, [[3, 7]])
    for length in (3.0, True, -1):
        with pytest.raises(ValueError, match="length must be"):
            tokens(length)


def test_only_default_positions_are_promised_to_be_consecutive():
    assert tokens(3, offset=4).consecutive_positions
    assert not tokens(3, positions=jnp.zeros((1, 3))).consecutive_positions
    moved = tokens(3).permuted(jnp.array([2, 0, 1]))
    assert not moved.consecutive_index
    assert not moved.consecutive_positions


def test_padding_on_the_left_is_declared_or_refused():
    """Fault B07: counting places gives one prompt other positions in every batch."""
    valid = jnp.array([[False, False, True, True, True], [True] * 5])
    side = tokens(5, valid=valid, left_padded=True)
    np.testing.assert_array_equal(side.index, [[-2, -1, 0, 1, 2], [0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(side.positions, [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    with pytest.raises(ValueError, match="left_padded=True"):
        tokens(5, valid=valid)
    with pytest.raises(ValueError, match="needs valid"):
        tokens(5, left_padded=True)
    tokens(5, valid=valid[:, ::-1])


@pytest.mark.parametrize("left", [False, True])
def test_padding_between_tokens_asks_for_positions(left):
    """Fault B07: it may be counted or not, and only who made it knows."""
    valid = jnp.array([[not left, True, False, True]])
    with pytest.raises(ValueError, match=r"count_real\(valid\) leave it out"):
        tokens(4, valid=valid, left_padded=left)
    places = jnp.arange(4)[None]
    side = tokens(4, valid=valid, left_padded=left, positions=places)
    np.testing.assert_array_equal(side.positions, places)
    np.testing.assert_array_equal(side.index, places - left)
