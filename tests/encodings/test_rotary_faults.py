"""Faults that users of other libraries met with rotary encodings, as tests.

Inputs and right values are those of the reports, computed in float64, and more inputs
of the same kinds. B02 and B04 are in `test_rope_extensions.py`, B03 in
`test_log_scale.py`, B13 in `test_xpos.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    ENCODINGS,
    AxialRotary,
    Dims,
    Encoding,
    LeakyReRoPE,
    ReRoPE,
    Rotary,
    VORotary,
    XPos,
)
from ropejax.encodings.angles import rotary_frequencies, rotation_angles
from ropejax.encodings.rotation import rotate
from tests.encodings.rotary_cases import logits, ones, placed, random, turned

PAIRS = [(257, 256), (1001, 1000), (15_963, 15_962), (2**20 + 1, 2**20)]


@pytest.mark.fast
@pytest.mark.parametrize(("query", "key"), PAIRS)
@pytest.mark.parametrize("trainable", ["none", "layer"])
def test_bfloat16_models_tell_neighbours_apart_at_any_position(query, key, trainable):
    """B01: positions and frequencies are never in the model's dtype."""
    rope = Rotary(trainable=trainable)
    params = rope.init_layer(jax.random.key(0), Dims(1, 1, 8, 8))
    x = ones(1, dtype=jnp.bfloat16)
    ours = logits(rope, x, x, placed([query]), params, key=placed([key]))
    np.testing.assert_allclose(ours[0, 0, 0, 0], 7.0705, atol=0.05)


def test_the_fastest_pair_at_256_and_257():
    cosines = jnp.cos(rotation_angles(jnp.array([256, 257]), rotary_frequencies(8)))
    np.testing.assert_allclose(cosines[:, 0], [-0.039790760, 0.819305529], atol=1e-6)


@pytest.mark.fast
def test_interleaved_and_half_split_are_not_confused():
    """B11, with the numbers of the report."""
    x = jnp.array([[[[1.0, 2.0, 3.0, 4.0]]]])
    half, _ = turned(Rotary(), x, placed([1]))
    neighbours, _ = turned(Rotary(layout="interleaved"), x, placed([1]))
    expected = [-1.984110649, 1.959900667, 2.462377902, 4.019799668]
    np.testing.assert_allclose(half[0, 0, 0], expected, rtol=1e-6)
    expected = [-1.142639664, 1.922075597, 2.959850668, 4.029799502]
    np.testing.assert_allclose(neighbours[0, 0, 0], expected, rtol=1e-6)
    q = jnp.arange(1.0, 9.0).reshape(1, 1, 1, 8)
    k = jnp.array([0.5, -1, 2, 0.25, 1.5, -0.5, 0.75, 3]).reshape(1, 1, 1, 8)
    for layout, value in (("half", 27.887257374), ("interleaved", 37.774795641)):
        ours = logits(Rotary(layout=layout), q, k, placed([3]), key=placed([1]))
        np.testing.assert_allclose(ours[0, 0, 0, 0], value, rtol=1e-6)


@pytest.mark.parametrize("width", [4, 8, 14])
def test_layouts_are_one_permutation_apart(width):
    x = random(2, 5, 3, width)
    angles = rotation_angles(jnp.arange(5)[None], rotary_frequencies(width))
    order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
    neighbours = rotate(x, angles, layout="interleaved")
    np.testing.assert_allclose(
        rotate(x[..., order], angles), neighbours[..., order], atol=1e-6
    )


@pytest.mark.parametrize("method", [Rotary, XPos, ReRoPE, LeakyReRoPE, VORotary])
@pytest.mark.parametrize("head_dim", [5, 1, 7])
def test_odd_widths_are_refused_when_a_model_is_built(method, head_dim):
    """B12: by name, before anything is computed."""
    with pytest.raises(ValueError, match=f"head_dim={head_dim}"):
        method().check(Dims(8, 8, head_dim, 8 * head_dim))


def test_odd_widths_are_refused_on_direct_use_too():
    x = random(1, 3, 2, 5)
    with pytest.raises(ValueError, match="head_dim=5"):
        turned(Rotary(), x, placed([0, 1, 2]))
    with pytest.raises(ValueError, match="head width"):
        rotary_frequencies(5)
    with pytest.raises(ValueError, match="need 6 channels"):
        rotate(x, jnp.zeros((1, 3, 3)))


def test_odd_parts_of_a_head_are_refused():
    with pytest.raises(ValueError, match="rotary_fraction"):
        Rotary(rotary_fraction=0.3).check(Dims(1, 1, 10, 10))
    with pytest.raises(ValueError, match="multiple"):
        AxialRotary(axes=3).check(Dims(1, 1, 8, 8))


def test_every_rotary_name_refuses_an_odd_width():
    """Whatever rotates and stands in the catalogue."""
    rotary = [
        name
        for name, make in ENCODINGS.items()
        if make.__module__.startswith("ropejax.encodings.rotary")
    ]
    assert len(rotary) >= 18
    for name in rotary:
        with pytest.raises(ValueError, match="head_dim=7"):
            ENCODINGS[name]().check(Dims(1, 1, 7, 7))


@pytest.mark.parametrize(
    "make",
    [Rotary, ReRoPE, VORotary, XPos],
)
def test_settings_cannot_be_given_by_place(make):
    """`ReRoPE(512)` must not set the wavelength."""
    with pytest.raises(TypeError):
        make(512)
    assert issubclass(make, Encoding)
