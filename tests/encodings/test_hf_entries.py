"""RoPE written as entries of a Hugging Face config is the RoPE that is read there."""

import dataclasses

import pytest

from ropejax.encodings import ALiBi, Rotary, encodings_from_hf
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.hf_entries import rope_entries
from ropejax.encodings.interpolation import (
    Llama3Scaling,
    NTKAware,
    PositionInterpolation,
)
from ropejax.encodings.length_scaling import DynamicNTK, LongRoPEScaling
from ropejax.encodings.yarn_map import YaRNScaling

pytestmark = pytest.mark.fast

MODEL = {"model_type": "phi3", "num_hidden_layers": 1, "head_dim": 8}


@pytest.mark.parametrize(
    "frequencies",
    [
        FrequencyMap(),
        PositionInterpolation(4.0),
        DynamicNTK(2.0, 64),
        YaRNScaling(scale=8.0, train_length=64),
        YaRNScaling(scale=8.0, train_length=64, truncate=False, attention_factor=1.1),
        YaRNScaling(scale=8.0, train_length=64, mscale=0.7, mscale_all_dim=0.7),
        YaRNScaling(scale=8.0, train_length=64, beta_fast=16.0, beta_slow=2.0),
        Llama3Scaling(scale=4.0, train_length=64, low=1.0, high=3.0),
        LongRoPEScaling((1.0, 2.0, 3.0, 4.0), (1.0,) * 4, train_length=64, scale=4.0),
    ],
)
def test_what_is_written_is_read_again(frequencies):
    rope = Rotary(max_wavelength=5e5, frequencies=frequencies)
    (found,) = encodings_from_hf(MODEL | rope_entries(rope))
    assert dataclasses.replace(found, round_frequencies=False) == rope


def test_what_no_entry_says_is_refused():
    with pytest.raises(ValueError, match="ALiBi is no entry of a Hugging Face config"):
        rope_entries(ALiBi())
    with pytest.raises(ValueError, match="NTKAware.*which knows FrequencyMap, Posit"):
        rope_entries(Rotary(frequencies=NTKAware(2.0)))
