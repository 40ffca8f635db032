"""Which draw of randomized positions goes with an encoding, for relatives as well."""

import pytest

from configs import che
from experiments.building.methods import make_positions
from experiments.building.published_draws import PUBLISHED, published_draw
from ropejax.encodings import (
    DAPE,
    ENCODINGS,
    FIRE,
    ALiBi,
    Learned,
    LogScale,
    Rotary,
    T5Bias,
    compose,
)
from ropejax.positions import Randomized

pytestmark = pytest.mark.fast

LAYERS = {"per_layer": True}
DISTANCES = {"per_layer": True, "distances": True}


@pytest.mark.parametrize(
    ("names", "draw"),
    [
        (("sinusoidal", "learned"), {}),
        (("rope", "yarn", "xpos", "rerope", "rope_bias", "vo_rope"), LAYERS),
        (("transformer_xl", "xlnet", "alibi"), DISTANCES),
        (("none", "t5", "kerple", "fire", "shaw"), {}),  # not in the paper
    ],
)
def test_relatives_are_drawn_for_as_what_they_are(names, draw):
    for name in names:
        assert published_draw(ENCODINGS[name]()) == draw, name


@pytest.mark.parametrize(
    ("encoding", "draw"),
    [
        (compose(rope=Rotary(), scale=LogScale()), LAYERS),
        (compose(inner=compose(rope=Rotary()), scale=LogScale()), LAYERS),
        (compose(bias=ALiBi(), scale=LogScale()), DISTANCES),
        (compose(bias=ALiBi(), more=T5Bias()), DISTANCES),
        (DAPE(inner=ALiBi()), DISTANCES),
        # One draw has to serve all parts: positions where one of them needs them.
        (compose(bias=ALiBi(), rope=Rotary()), LAYERS),
        (compose(bias=ALiBi(), fire=FIRE()), LAYERS),
        (compose(table=Learned(), rope=Rotary()), {}),
        # A table of digits' ids reads no positions.
        (compose(digits=Learned(stream="digit"), rope=Rotary()), LAYERS),
    ],
)
def test_encodings_put_together_are_drawn_for_as_their_parts(encoding, draw):
    assert published_draw(encoding) == draw


def test_a_config_of_parts_is_drawn_as_published_unless_it_says_otherwise():
    config = che.get_config("encoding=compose")
    config.encoding.options = "rope=Rotary(), scale=LogScale()"
    assert make_positions(config) == Randomized(per_layer=True)
    config.positions.options = "per_layer=False"
    assert make_positions(config) == Randomized()
    config.positions.options = ""
    config.positions.as_published = False
    assert make_positions(config) == Randomized()


def test_published_draws_are_settings_of_the_scheme():
    for cls, draw in PUBLISHED.items():
        assert issubclass(cls, ENCODINGS["none"])
        assert Randomized(**draw).max_position == 2048
