"""Decoding under methods that follow the current length: one layer, its last row."""

import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    DynamicNTKRoPE,
    DynamicYaRN,
    LogScale,
    LongRoPE,
    Rotary,
    compose,
)
from tests.attention import cases
from tests.attention.test_cache import decoded

LENGTH, TRAINED = 8, 4
HALF = cases.DIMS.head_dim // 2
FOLLOWING = {
    "dynamic NTK": DynamicNTKRoPE(train_length=TRAINED),
    "dynamic YaRN": DynamicYaRN(train_length=TRAINED),
    "LongRoPE's switch": LongRoPE(
        long_factors=tuple(np.linspace(1, 4, HALF)),
        short_factors=(1.0,) * HALF,
        train_length=TRAINED,
    ),
    "log n of all tokens": compose(Rotary(), LogScale(train_length=2, count="all")),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_step_is_the_last_row_of_a_full_pass_and_no_other_row(name):
    """So one layer decodes exactly, and a deep model cannot: fault B04."""
    encoding = FOLLOWING[name]
    assert encoding.length_dependent
    arrays = cases.case(encoding, LENGTH).arrays
    steps = decoded(encoding, arrays, [1] * LENGTH)
    attention = cases.attention(encoding)
    for length in (TRAINED, LENGTH):
        cut = {name: arrays[name][:, :length] for name in "qkvx"}
        full = attention({**arrays, **cut})
        np.testing.assert_allclose(steps[:, length - 1], full[:, -1], atol=1e-5)
    early = slice(1, LENGTH - 1)  # the first row sees itself alone
    assert jnp.abs(steps[:, early] - full[:, early]).max() > 1e-3
