"""Rotations by several axes: golden cases, and what they are on equal positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import AxialRotary, Dims, MRoPE, Rotary
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import (
    golden,
    logits,
    placed,
    random,
    swapped,
    turned,
)


def grid(height, width):
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    return np.stack([rows.reshape(-1), columns.reshape(-1)], -1)


def assert_rotates(encoding, positions, arrays, tolerance, order=swapped):
    where = placed(positions)
    for name, side in (("q", 0), ("k", 1)):
        ours = turned(encoding, order(arrays[name]), where)[side]
        expected = order(arrays[f"{name}_rot"])
        np.testing.assert_allclose(ours, expected, **tolerance)


@pytest.mark.fast
@pytest.mark.parametrize("encoding", [AxialRotary(), MRoPE()])
def test_constant_positions_in_another_order_turn_alike_compiled(encoding):
    """XLA folded two gathers of constants and a change of type to another order."""
    axes = encoding.num_axes
    positions = jnp.asarray(np.arange(8 * axes).reshape(1, 8, axes) % 7)
    where = tokens(8, positions=positions)
    order = jnp.array([2, 1, 0, 7, 6, 5, 4, 3])
    x = random(2, 8, 2, 8 * axes)

    def keys(x):
        key = where.permuted(order)
        return encoding.keys({}, jnp.take(x, order, axis=1), key)[0]

    wanted = encoding.keys({}, x, where)[0][:, order]
    np.testing.assert_allclose(jax.jit(keys)(x), wanted, atol=1e-5)


def test_dinov3():
    arrays, params, tolerance = golden("rope2d_dinov3_4x5")
    height, width = params["grid_hw"]
    centres = (grid(height, width) + 0.5) / (height, width) * 2 - 1
    prefix = arrays["q"].shape[2] - height * width
    patches = {name: x[:, :, prefix:] for name, x in arrays.items() if x.ndim == 4}
    encoding = AxialRotary(max_wavelength=params["theta"], form="block")
    positions = np.float32(2 * np.pi * centres)[None]
    assert_rotates(encoding, positions, patches, tolerance)
    np.testing.assert_array_equal(arrays["q"][:, :, 0], arrays["q_rot"][:, :, 0])


def test_pixtral():
    arrays, params, tolerance = golden("rope2d_pixtral_4x5")
    encoding = AxialRotary(max_wavelength=params["theta"], form="split")
    assert_rotates(encoding, arrays["positions"][None], arrays, tolerance)
    np.testing.assert_allclose(
        encoding.frequencies_of_pairs({}, 16), arrays["inv_freq"], rtol=1e-6
    )


def test_qwen2_vl_vision():
    arrays, params, tolerance = golden("rope2d_qwen2vl_vision")
    encoding = AxialRotary(max_wavelength=params["theta"], form="block")
    alone = lambda x: jnp.asarray(x)[None]
    assert_rotates(encoding, arrays["positions"][None], arrays, tolerance, alone)


@pytest.mark.parametrize(
    ("name", "interleaved"),
    [("mrope_qwen2vl_image", False), ("mrope_qwen3vl_interleaved_image", True)],
)
def test_m_rope(name, interleaved):
    arrays, params, tolerance = golden(name)
    encoding = MRoPE(
        max_wavelength=params["theta"],
        sections=params["mrope_section"],
        interleaved=interleaved,
    )
    positions = np.moveaxis(arrays["position_ids"], 0, -1)
    assert_rotates(encoding, positions, arrays, tolerance)


@pytest.mark.fast
def test_alternating_axes_on_the_diagonal_are_rope():
    q, k = random(1, 6, 2, 16), random(1, 6, 2, 16, seed=1)
    diagonal = placed(np.stack([np.arange(6) * 7] * 2, -1)[None])
    line = placed(np.arange(6) * 7)
    rope = logits(Rotary(), q, k, line)
    alternating = AxialRotary(form="alternating")
    np.testing.assert_array_equal(logits(alternating, q, k, diagonal), rope)
    # Plain positions stand for equal ones on all axes, here and in M-RoPE.
    np.testing.assert_array_equal(logits(alternating, q, k, line), rope)
    np.testing.assert_array_equal(logits(MRoPE(), q, k, line), rope)
    three = placed(np.stack([np.arange(6) * 7] * 3, -1)[None])
    np.testing.assert_array_equal(logits(MRoPE(), q, k, three), rope)
    # Blocks have each axis start at the highest frequency, so they differ.
    assert np.abs(logits(AxialRotary(), q, k, diagonal) - rope).max() > 0.1


def test_split_is_alternating_with_pairs_sorted_by_axis():
    x = random(1, 6, 1, 16)
    at = placed(random(1, 6, 2, seed=1) * 9)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    channels = np.array(order + [8 + r for r in order])
    sorted_first, _ = turned(AxialRotary(form="split"), x[..., channels], at)
    ours, _ = turned(AxialRotary(form="alternating"), x, at)
    np.testing.assert_allclose(sorted_first, ours[..., channels], atol=1e-6)


@pytest.mark.parametrize("form", ["block", "alternating", "split"])
def test_logits_depend_on_differences_along_each_axis(form):
    encoding = AxialRotary(axes=3, form=form)
    q, k = random(1, 5, 1, 12), random(1, 5, 1, 12, seed=1)
    positions = np.random.default_rng(2).integers(0, 50, (1, 5, 3))
    here = logits(encoding, q, k, placed(positions))
    moved = logits(encoding, q, k, placed(positions + [100, -3, 7]))
    np.testing.assert_allclose(here, moved, atol=1e-4)
    for axis in range(3):
        bent = positions.copy()
        bent[0, 0, axis] += 1
        assert np.abs(logits(encoding, q, k, placed(bent)) - here).max() > 1e-3


def test_blocks_of_two_axes_are_two_ropes_of_half_the_width():
    encoding = AxialRotary(layout="interleaved")
    q, k = random(1, 4, 1, 16), random(1, 4, 1, 16, seed=1)
    positions = np.random.default_rng(0).integers(0, 50, (1, 4, 2))
    total = 0.0
    for axis in range(2):
        part = slice(8 * axis, 8 * axis + 8)
        at = placed(positions[..., axis])
        rope = Rotary(layout="interleaved")
        total = total + logits(rope, q[..., part], k[..., part], at)
    np.testing.assert_allclose(
        logits(encoding, q, k, placed(positions)), total, atol=1e-5
    )


def test_default_sections_are_those_of_qwen2_vl():
    axis = MRoPE().pairs(128).axis
    assert np.bincount(axis).tolist() == [16, 24, 24]


def test_default_sections_interleave_at_every_width():
    """Those of Qwen3-VL, whose config says (24, 20, 20) for a width of 128."""
    deals = {
        width: np.bincount(MRoPE(interleaved=True).pairs(width).axis, minlength=3)
        for width in range(2, 258, 2)
    }
    assert deals[128].tolist() == [24, 20, 20]
    assert deals[64].tolist() == [12, 10, 10]
    assert deals[16].tolist() == [4, 2, 2]
    for width, (time, height, across) in deals.items():
        assert time + height + across == width // 2
        assert height == across
        assert min(width // 6, width // 2 - 2 * height) <= time
    axis = MRoPE(interleaved=True).pairs(128).axis
    assert axis.tolist() == [0, 1, 2] * 20 + [0] * 4


def test_what_does_not_fit_is_refused():
    counts = lambda numbers: tuple(np.array(numbers))  # shown as plain ones
    with pytest.raises(ValueError, match="multiple of 4"):
        AxialRotary().check(Dims(1, 1, 6, 6))
    with pytest.raises(ValueError, match="2 axes"):
        AxialRotary().queries({}, random(1, 2, 1, 8), placed(jnp.zeros((1, 2, 3), int)))
    with pytest.raises(ValueError, match="block"):
        AxialRotary(form="blok")
    with pytest.raises(ValueError, match="add up to 4"):
        MRoPE(sections=(1, 1, 1)).check(Dims(1, 1, 8, 8))
    with pytest.raises(ValueError, match="three counts"):
        MRoPE(sections=(4, 4))
    with pytest.raises(ValueError, match=r"interleave as \(3, 3, 2\), not as \(2, 3"):
        MRoPE(sections=counts([2, 3, 3]), interleaved=True).check(Dims(1, 1, 16, 16))
    with pytest.raises(ValueError, match=r"sections \(4, 4, 4\) of"):
        MRoPE(sections=counts([4, 4, 4])).check(Dims(1, 1, 16, 16))
    assert tokens(2).length == 2
