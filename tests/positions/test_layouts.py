"""Packed and padded rows, a rolling cache, and grids."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import (
    count_real,
    grid_positions,
    left_padded,
    packed_positions,
    patch_centres,
    right_padded,
    segments_from_lengths,
    streaming_positions,
)

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


def test_packed_positions_restart_in_each_segment():
    segments = jnp.array([[0, 0, 0, 1, 1, 2], [5, 5, 3, 3, 3, 3]])
    np.testing.assert_array_equal(
        packed_positions(segments), [[0, 1, 2, 0, 1, 0], [0, 1, 0, 1, 2, 3]]
    )


def test_segments_from_traced_lengths():
    lengths = jnp.array([[2, 3, 0], [1, 0, 4]])
    segments, valid = jax.jit(segments_from_lengths, static_argnums=1)(lengths, 6)
    np.testing.assert_array_equal(segments, [[0, 0, 1, 1, 1, 3], [0, 2, 2, 2, 2, 3]])
    np.testing.assert_array_equal(valid, np.asarray(segments) < 3)
    with pytest.raises(ValueError, match="sum to 5, but rows hold num_tokens=4"):
        segments_from_lengths(lengths, 4)
    with pytest.raises(ValueError, match="at least 0"):
        segments_from_lengths(jnp.array([[3, -1]]), 4)


def test_positions_of_padded_rows_count_real_tokens():
    # huggingface/transformers issue 22161: a prompt alone, and padded on the left.
    lengths = jnp.array([3, 5])
    left = left_padded(lengths, 5)
    np.testing.assert_array_equal(left[0], [False, False, True, True, True])
    np.testing.assert_array_equal(count_real(left), [[0, 0, 0, 1, 2], range(5)])
    right = right_padded(lengths, 5)
    np.testing.assert_array_equal(count_real(right), [[0, 1, 2, 2, 2], range(5)])
    holes = jnp.array([[True, False, True, False, True]])
    np.testing.assert_array_equal(count_real(holes)[holes], [0, 1, 2])


def rolling_cache(num_tokens, num_sinks, window):
    """Positions a query and its cached keys have, by running an actual cache."""
    cache, seen = [], []
    for token in range(num_tokens):
        cache.append(token)
        if len(cache) > num_sinks + window:
            del cache[num_sinks]  # the oldest one that is no sink
        seen.append({key: place for place, key in enumerate(cache)})
    return seen


@pytest.mark.parametrize(("num_sinks", "window"), [(2, 3), (0, 4), (4, 1)])
def test_streaming_positions_equal_those_of_a_running_cache(num_sinks, window):
    index = jnp.arange(12)[None]
    query, key, kept = jax.jit(
        lambda index: streaming_positions(
            index, index, num_sinks=num_sinks, window=window
        )
    )(index)
    for token, cache in enumerate(rolling_cache(12, num_sinks, window)):
        assert query[0, token] == cache[token]
        visible = np.flatnonzero(kept[0, token])
        np.testing.assert_array_equal(visible, sorted(cache))
        for cached in visible:
            assert key[0, token, cached] == cache[cached]


def test_streaming_refuses_an_empty_window():
    with pytest.raises(ValueError, match="window=0"):
        streaming_positions(
            jnp.zeros((1,), int), jnp.zeros((1,), int), num_sinks=4, window=0
        )


def test_grid_equals_those_of_vision_encoders():
    # transformers 5.24.0: pixtral (4 x 5 patches) and qwen2_vl's encoder (by 2 x 2).
    with np.load(GOLDEN / "rope2d_pixtral_4x5.npz") as golden:
        np.testing.assert_array_equal(grid_positions(4, 5)[0], golden["positions"])
    with np.load(GOLDEN / "rope2d_qwen2vl_vision.npz") as golden:
        _, height, width = golden["grid_thw"][0].tolist()
        np.testing.assert_array_equal(
            grid_positions(height, width, merge=2)[0], golden["positions"]
        )


def test_grid_has_any_number_of_axes():
    got = np.asarray(grid_positions(2, 3, 4))
    assert got.shape == (1, 24, 3)
    np.testing.assert_array_equal(got[0] @ [12, 4, 1], np.arange(24))
    blocks = np.asarray(grid_positions(2, 2, 4, merge=2))[0]
    np.testing.assert_array_equal(blocks[:4] @ [8, 4, 1], [0, 1, 4, 5])
    np.testing.assert_array_equal(blocks[:, 0], np.repeat([0, 1], 8))


def test_grid_refuses_empty_axes_and_blocks_that_do_not_fit():
    with pytest.raises(ValueError, match="at least 1"):
        grid_positions(3, 0)
    with pytest.raises(ValueError, match=r"merge=2 must divide.*\(4, 5\)"):
        grid_positions(4, 5, merge=2)


def test_patch_centres_give_the_angles_of_dinov3():
    # transformers 5.24.0: cos of 2 pi * coordinate at wavelength 1, rows then columns.
    with np.load(GOLDEN / "rope2d_dinov3_4x5.npz") as golden:
        cos, sin = golden["cos"], golden["sin"]
    angle = 2 * np.pi * np.asarray(patch_centres(4, 5)[0], np.float64)
    np.testing.assert_allclose(np.cos(angle), cos[:, [0, 4]], atol=2e-6)
    np.testing.assert_allclose(np.sin(angle), sin[:, [0, 4]], atol=2e-6)
