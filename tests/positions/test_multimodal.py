"""Positions of text with pictures: M-RoPE, RoPE-Tie, RoPE-TV."""

import pathlib

import numpy as np
import pytest

from ropejax.positions import (
    Text,
    Vision,
    mrope_positions,
    rope_tie_positions,
    rope_tv_positions,
)

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
IMAGE = (Text(5), Vision(2, 3), Text(4))
VIDEO = (Text(2), Vision(2, 3, frames=4), Text(2))


@pytest.mark.parametrize("count_frames", [True, False])
def test_mrope_equals_transformers_on_an_image(count_frames):
    # transformers 5.24.0 Qwen2VLModel.get_rope_index; 4 x 6 patches merged 2 x 2.
    layout = mrope_positions(IMAGE, count_frames=count_frames)
    with np.load(GOLDEN / "mrope_qwen2vl_image.npz") as golden:
        expected = np.moveaxis(golden["position_ids"], 0, -1)
        delta = golden["rope_delta"].item()
    np.testing.assert_array_equal(layout.positions, expected)
    assert layout.next_position == expected.shape[1] + delta


def test_mrope_rules_differ_after_a_long_video():
    whole, sides = (mrope_positions(VIDEO, count_frames=c) for c in (True, False))
    video = np.asarray(whole.positions)[0, 2:26]
    np.testing.assert_array_equal(video[0], [2, 2, 2])
    np.testing.assert_array_equal(video[-1], [5, 3, 4])
    np.testing.assert_array_equal(whole.positions[0, 26], [6, 6, 6])  # 2 + 4 frames
    np.testing.assert_array_equal(sides.positions[0, 26], [5, 5, 5])  # 2 + 3 columns
    assert (whole.next_position, sides.next_position) == (8, 7)


def test_frames_may_be_as_far_apart_as_time_says():
    """Qwen2.5-VL of transformers 5.24: 25 tokens a second, 2 seconds a frame."""
    timed = (Text(2), Vision(1, 2, frames=3, frame_step=25 * 2.0), Text(1))
    for whole, next_text, last in ((True, 2 + 101, 104), (False, 2 + 2, 103)):
        layout = mrope_positions(timed, count_frames=whole)
        at = np.asarray(layout.positions)[0]
        np.testing.assert_array_equal(at[2:8, 0], [2, 2, 52, 52, 102, 102])
        np.testing.assert_array_equal(at[2:8, 1:] - 2, [[0, 0], [0, 1]] * 3)
        np.testing.assert_array_equal(at[8], [next_text] * 3)
        # A generated token stands behind all others, as transformers' deltas have it.
        assert layout.next_position == last
    slow = mrope_positions((Vision(1, 1, frames=5, frame_step=0.5),))
    np.testing.assert_array_equal(slow.positions[0, :, 0], [0, 0, 1, 1, 2])
    assert mrope_positions((Vision(2, 2, frame_step=7.0),)).next_position == 2
    for place in (rope_tie_positions, rope_tv_positions):
        with pytest.raises(ValueError, match="frame_step is for M-RoPE"):
            place((Vision(1, 1, frame_step=2.0),))
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="frame_step must be finite"):
            mrope_positions((Vision(1, 1, frame_step=wrong),))


def gaps(layout, first, last):
    """First patch minus the text before it, and the text after minus the last patch."""
    at = np.asarray(layout.positions)[0]
    return at[first] - at[first - 1], at[last + 1] - at[last]


@pytest.mark.parametrize(
    "layout",
    [
        rope_tie_positions(IMAGE),
        rope_tie_positions(IMAGE, integer=False),
        rope_tv_positions(IMAGE),
        rope_tv_positions(IMAGE, num_axes=3),
    ],
)
def test_picture_is_equally_far_from_the_text_on_both_sides(layout):
    before, after = gaps(layout, 5, 10)
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_video_is_equally_far_from_the_text_on_both_sides():
    before, after = gaps(rope_tv_positions(VIDEO, num_axes=3), 2, 25)
    np.testing.assert_array_equal(before, after)


def test_rope_tie_by_hand():
    # L = 4, h = 2, w = 3: rows in steps of 4, columns in steps of 3, text on at 4 + 12.
    layout = rope_tie_positions(IMAGE)
    at = np.asarray(layout.positions)[0]
    assert at.dtype == np.int32
    np.testing.assert_array_equal(at[5], [8, 7])
    np.testing.assert_array_equal(at[10], [12, 13])
    np.testing.assert_array_equal(at[11], [16, 16])
    assert layout.next_position == 20


def test_real_rope_tie_by_hand():
    # Six patches are worth six tokens: text on at 4 + 7, steps 7/3 and 7/4.
    at = np.asarray(rope_tie_positions(IMAGE, integer=False).positions)[0]
    np.testing.assert_allclose(at[5], [4 + 7 / 3, 4 + 7 / 4], rtol=1e-6)
    np.testing.assert_allclose(at[10], [4 + 14 / 3, 4 + 21 / 4], rtol=1e-6)
    np.testing.assert_array_equal(at[11], [11, 11])


def test_rope_tv_by_hand():
    # Offsets 4 + (6 - 2) / 2 = 6 and 4 + (6 - 3) / 2 = 5.5, patches one apart.
    at = np.asarray(rope_tv_positions(IMAGE).positions)[0]
    np.testing.assert_array_equal(at[5], [7, 6.5])
    np.testing.assert_array_equal(at[6] - at[5], [0, 1])
    np.testing.assert_array_equal(at[10], [8, 8.5])
    np.testing.assert_array_equal(at[11], [11, 11])


@pytest.mark.parametrize(
    "place", [mrope_positions, rope_tie_positions, rope_tv_positions]
)
def test_text_alone_is_on_one_axis(place):
    layout = place((Text(3), Text(4)))
    at = np.asarray(layout.positions)[0]
    np.testing.assert_array_equal(at, np.repeat(np.arange(7)[:, None], at.shape[1], 1))
    assert layout.next_position == 7


@pytest.mark.parametrize("extra", [{"integer": False}, {}])
def test_a_picture_is_worth_its_patches(extra):
    place = rope_tie_positions if extra else rope_tv_positions
    blocks = (Vision(3, 5), Text(2), Vision(4, 4), Text(1))
    layout = place(blocks, **extra)
    assert layout.next_position == 15 + 2 + 16 + 1
    np.testing.assert_array_equal(layout.positions[0, 15], [15, 15])


def test_layouts_that_cannot_be_placed_are_refused():
    with pytest.raises(ValueError, match="use RoPE-TV"):
        rope_tie_positions(VIDEO)
    with pytest.raises(ValueError, match="num_axes=3"):
        rope_tv_positions(VIDEO)
    with pytest.raises(ValueError, match="2 or 3"):
        rope_tv_positions(IMAGE, num_axes=1)
    with pytest.raises(ValueError, match="at least 1"):
        mrope_positions((Text(0),))
