"""Configs of Hugging Face models: both forms, and what is not known is refused."""

import copy
import dataclasses

import numpy as np
import pytest

from ropejax.encodings import MRoPE, Rotary, rotary_from_hf
from ropejax.encodings.angles import rotary_frequencies
from ropejax.encodings.hf_rope import head_width
from tests.encodings.rotary_cases import golden, index, names

LLAMA = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}


def config(**rope) -> dict:
    return LLAMA | {"rope_parameters": rope}


@pytest.mark.parametrize("name", names("ropetype_"))
def test_both_forms_of_a_config_mean_the_same(name):
    params = index()[name]["params"]
    new, old = params["config"], params["config_legacy_form"]
    assert rotary_from_hf(new) == rotary_from_hf(old)
    assert head_width(new) == params["head_dim"]


def test_round_frequencies_are_those_of_the_source():
    arrays, params, _ = golden("ropetype_default_llama2")
    ours = rotary_from_hf(params["config"]).frequencies_of_pairs({}, 128)
    np.testing.assert_array_equal(ours, arrays["inv_freq"][0])


@pytest.mark.fast
@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "yarm", "factor": 2.0}, "'yarn'"),
        ({"type": "llama_3", "factor": 2.0}, "'llama3'"),
        ({"rope_type": "linear", "factr": 2.0}, "'factor'"),
        ({"rope_type": "yarn", "factor": 2.0, "betafast": 32}, "'beta_fast'"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 32}, "beta_fast"),
        ({"rope_type": "linear"}, "lacks 'factor'"),
        ({"rope_type": "longrope", "long_factor": [1.0]}, "lacks 'short_factor'"),
        ({"full_attention": {}, "sliding_attention": {}}, "layer_type"),
    ],
)
def test_unknown_and_missing_entries_are_refused_by_name(rope, message):
    with pytest.raises(ValueError, match=message):
        rotary_from_hf(config(**rope))


def test_null_means_default():
    plain = rotary_from_hf(LLAMA | {"rope_scaling": None, "rope_theta": 5e5})
    assert plain == Rotary(max_wavelength=5e5, round_frequencies=True)
    assert rotary_from_hf(LLAMA) == Rotary(round_frequencies=True)


def test_kinds_of_layers_have_their_own():
    gemma = config(
        full_attention={"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        sliding_attention={"rope_type": "default", "rope_theta": 1e4},
    )
    full = rotary_from_hf(gemma, layer_type="full_attention")
    assert full.max_wavelength == 1e6
    assert full.frequencies.scale == 8.0
    sliding = rotary_from_hf(gemma, layer_type="sliding_attention")
    assert sliding == Rotary(max_wavelength=1e4, round_frequencies=True)
    old = LLAMA | {"rope_theta": 1e6, "rope_local_base_freq": 1e4}
    assert rotary_from_hf(old, layer_type="sliding_attention") == sliding
    assert rotary_from_hf(old, layer_type="full_attention").max_wavelength == 1e6


def test_older_names_of_the_same_things():
    neox = LLAMA | {"rotary_pct": 0.25, "rotary_emb_base": 500.0}
    ours = rotary_from_hf(neox)
    assert (ours.rotary_fraction, ours.max_wavelength) == (0.25, 500.0)
    gptj = {"model_type": "gptj", "head_dim": 16, "rotary_dim": 8}
    ours = rotary_from_hf(gptj)
    assert (ours.rotary_fraction, ours.layout) == (0.5, "interleaved")
    su = copy.deepcopy(index()["ropetype_longrope_phi3style"]["params"])
    renamed = su["config"] | {
        "rope_parameters": su["config"]["rope_parameters"] | {"rope_type": "su"}
    }
    assert rotary_from_hf(renamed) == rotary_from_hf(su["config"])


def test_sections_make_a_multimodal_rotation():
    expected = MRoPE(sections=(2, 3, 3), round_frequencies=True)
    for kind in ("mrope", "default"):
        rope = {"type": kind, "mrope_section": [2, 3, 3]}
        assert rotary_from_hf(config(**rope)) == expected
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    dealt = {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
    both = rotary_from_hf(config(**yarn, **dealt))
    assert (both.sections, both.interleaved) == ((4, 2, 2), True)
    np.testing.assert_array_equal(
        both.frequencies_of_pairs({}, 16),
        rotary_from_hf(config(**yarn)).frequencies_of_pairs({}, 16),
    )


def test_extension_defaults_to_the_ratio_of_lengths():
    ours = rotary_from_hf(config(rope_type="yarn", original_max_position_embeddings=32))
    assert ours.frequencies.scale == 4.0
    given = rotary_from_hf(
        config(rope_type="yarn", original_max_position_embeddings=32, factor=2.0)
    )
    assert given.frequencies == dataclasses.replace(ours.frequencies, scale=2.0)


def test_proportional_may_be_interpolated_besides():
    ours = rotary_from_hf(
        config(rope_type="proportional", partial_rotary_factor=0.5, factor=2.0)
    )
    frequencies = ours.frequencies_of_pairs({}, 16)
    np.testing.assert_allclose(frequencies[:4], rotary_frequencies(16)[:4] / 2, 1e-6)
    assert not frequencies[4:].any()
