"""Entries that configs leave out, or have that few others do, as their models' code."""

import math

import numpy as np
import pytest

from ropejax.encodings import (
    LogScale,
    NTKRoPE,
    Rotary,
    YaRN,
    compose,
    rotary_from_hf,
    softmax_factor_from_hf,
)
from ropejax.encodings.interpolation import Llama3Scaling

pytestmark = pytest.mark.fast

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def plain(**settings):
    return Rotary(round_frequencies=True, **settings)


def read(model_type, layer_type=None, **entries):
    config = SIZES | {"model_type": model_type} | entries
    return rotary_from_hf(config, layer_type=layer_type)


@pytest.mark.parametrize(
    ("model_type", "base", "part"),
    [
        ("llama", 1e4, 1.0),
        ("mixtral", 1e6, 1.0),
        ("qwen3_vl_text", 5e5, 1.0),
        ("smollm3", 2e6, 1.0),
        ("nomic_bert", 1e3, 1.0),
        ("gpt_neox", 1e4, 0.25),
        ("phi", 1e4, 0.5),
        ("qwen3_5_text", 1e4, 0.25),
    ],
)
def test_what_is_left_out_is_what_the_models_code_has(model_type, base, part):
    """As `default_theta` and `partial_rotary_factor` of the configs of 5.24."""
    expected = plain(max_wavelength=base, rotary_fraction=part)
    turning = {"no_rope_layers": [1, 1]}
    assert read(model_type, **turning) == expected
    stated = {"rope_theta": 123.0, "partial_rotary_factor": 0.75}
    stated = read(model_type, **stated, **turning)
    assert stated == plain(max_wavelength=123.0, rotary_fraction=0.75)


def test_sizes_may_have_older_names():
    """GPT-J's released config; its code has 64 channels where no number is stated."""
    gptj = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_positions": 2048}
    expected = plain(layout="interleaved", rotary_fraction=0.25)
    assert rotary_from_hf(gptj | {"rotary": True, "rotary_dim": 64}) == expected
    assert rotary_from_hf(gptj) == expected
    dynamic = {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    assert rotary_from_hf(gptj | dynamic).frequencies.train_length == 2048


def test_released_configs_with_names_of_their_own():
    """Nomic BERT's, MiMo-V2-Flash's and Yarn-Llama-2's."""
    nomic = {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12}
    nomic |= {"rotary_emb_base": 1000, "rotary_emb_fraction": 0.5}
    expected = plain(max_wavelength=1000.0, rotary_fraction=0.5)
    assert rotary_from_hf(nomic | {"rotary_emb_interleaved": False}) == expected
    assert rotary_from_hf(nomic | {"rotary_emb_interleaved": True}).layout == (
        "interleaved"
    )
    mimo = {"head_dim": 192, "partial_rotary_factor": 0.334, "rope_theta": 5e6}
    mimo |= {"swa_rope_theta": 1e4}
    near = read("mimo_v2_flash", "sliding_attention", **mimo)
    assert near == plain(rotary_fraction=0.334)
    full = read("mimo_v2_flash", "full_attention", **mimo)
    assert full == plain(max_wavelength=5e6, rotary_fraction=0.334)
    with pytest.raises(ValueError, match="layer_type must be one of"):
        read("mimo_v2_flash", **mimo)
    with pytest.raises(ValueError, match="swa_rope_theta beside an extension"):
        read("mimo_v2_flash", "full_attention", rope_scaling=YARN, **mimo)
    assert read("llama", rope_scaling=YARN | {"finetuned": True}) == (
        read("llama", rope_scaling=YARN)
    )


@pytest.mark.parametrize("model_type", ["gpt_oss", "gemma4_text", "ministral3", "cwm"])
def test_an_extension_that_only_the_code_knows_is_not_taken_for_none(model_type):
    with pytest.raises(ValueError, match=f"no rope_parameters.*'{model_type}'.*to_di"):
        read(model_type, rope_theta=1e6)
    read(model_type, rope_parameters={"rope_type": "default", "rope_theta": 1e6})


def test_an_extension_of_full_layers_is_not_one_of_sliding_layers():
    """Olmo 3 states it once; its code gives it to layers of full attention alone."""
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "rope_theta": 5e5}
    extended = kinds | {"rope_scaling": YARN}
    with pytest.raises(ValueError, match="layer_type must be one of"):
        read("olmo3", **extended)
    near = read("olmo3", "sliding_attention", **extended)
    assert near == plain(max_wavelength=5e5)
    full = read("olmo3", "full_attention", **extended)
    assert (full.frequencies.scale, full.max_wavelength) == (4.0, 5e5)
    assert read("llama", "sliding_attention", **extended) == full
    assert read("olmo3", "sliding_attention", **kinds) == near


def test_kinds_without_rope_are_told_from_kinds_that_do_not_exist():
    rope = {"full_attention": None, "sliding_attention": {"rope_theta": 1e4}}
    assert read("beam", "sliding_attention", rope_parameters=rope) == plain()
    with pytest.raises(ValueError, match="null for layer_type='full_attention'"):
        read("beam", "full_attention", rope_parameters=rope)


@pytest.mark.parametrize(
    ("model_type", "base"), [("gemma3_text", 1e6), ("modernbert", 16e4)]
)
def test_two_bases_that_are_left_out_are_those_of_the_code(model_type, base):
    """Released configs of Gemma 3 state an extension alone, which full layers have."""
    with pytest.raises(ValueError, match="layer_type must be one of"):
        read(model_type)
    kinds = {"full_attention": base, "sliding_attention": 1e4}
    for kind, own in kinds.items():
        assert read(model_type, kind) == plain(max_wavelength=own)
        nested = {"rope_parameters": {name: {"rope_type": "default"} for name in kinds}}
        assert read(model_type, kind, **nested) == plain(max_wavelength=own)
    scaling = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert read(model_type, "full_attention", **scaling).frequencies.scale == 8.0
    near = read(model_type, "sliding_attention", **scaling)
    assert (near == plain()) == (model_type == "gemma3_text")
    stated = read("gemma3_text", "full_attention", rope_theta=5e5)
    assert stated == plain(max_wavelength=5e5)


def test_mistrals_factor_on_queries_comes_with_the_rotation():
    """Ministral 3 of transformers 5.24: `1 + beta ln(1 + floor(position / N))`."""
    rope = YARN | {"rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0}
    both = rope | {"llama_4_scaling_beta": 0.2, "max_position_embeddings": 128}
    steps = LogScale(form="steps", train_length=32, weight=0.2, count="earlier")
    alone = read("ministral3", rope_parameters=rope)
    assert alone.frequencies.factor() == 1
    ours = read("ministral3", rope_parameters=both)
    assert ours == compose(rope=alone, log_scale=steps)
    assert read("ministral3", rope_parameters=both | {"llama_4_scaling_beta": 0}) == (
        alone
    )
    with pytest.raises(ValueError, match="=64 among .* contradicts 128"):
        read("ministral3", rope_parameters=both | {"max_position_embeddings": 64})


def test_a_part_of_a_whole_head_is_all_of_deepseeks_part():
    """Mistral 4 states both; half of its head is what `qk_rope_head_dim` says."""
    heads = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
    rope = YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "partial_rotary_factor": 0.5}
    config = SIZES | heads | {"model_type": "mistral4", "rope_parameters": rope}
    factor = softmax_factor_from_hf(config)
    assert factor == pytest.approx((0.1 * math.log(4) + 1) ** 2, rel=1e-12)
    ours = rotary_from_hf(config, softmax_factor=factor)
    assert (ours.rotary_fraction, ours.layout) == (1.0, "interleaved")
    for wrong in ({"qk_nope_head_dim": 24}, {"qk_nope_head_dim": None}):
        with pytest.raises(ValueError, match="=0.5 contradicts qk_rope_head_dim=8"):
            rotary_from_hf(config | wrong, softmax_factor=factor)


def test_a_fixed_alpha_is_no_dynamic_extension():
    """Hunyuan: base times `alpha ** (d / (d - 2))`, whatever the length."""
    beside = {"beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.0}
    rope = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0} | beside
    ours = read("hunyuan_v1_dense", rope_scaling=rope)
    assert not ours.length_dependent
    frequencies = (1e4 * 1000.0 ** (16 / 14)) ** (-np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(
        ours.frequencies_of_pairs({}, 16), frequencies, rtol=1e-6
    )
    assert ours.frequencies == NTKRoPE(scale=1000.0).frequencies
    for wrong, message in (
        (rope | {"factor": 2.0}, "alpha=1000.0 leaves factor=2.0"),
        ({"type": "dynamic", "factor": 2.0, "beta_fast": 32}, "'beta_fast' means noth"),
    ):
        with pytest.raises(ValueError, match=message):
            read("hunyuan_v1_dense", rope_scaling=wrong)


def test_a_dynamic_extension_has_one_trained_length():
    """There, transformers looks at `max_position_embeddings` alone."""
    rope = {"type": "dynamic", "factor": 2.0}
    ours = read("llama", rope_scaling=rope | {"original_max_position_embeddings": 128})
    assert ours == read("llama", rope_scaling=rope)
    with pytest.raises(ValueError, match="=64 contradicts max_position_embeddings=128"):
        read("llama", rope_scaling=rope | {"original_max_position_embeddings": 64})


def test_ramps_may_have_no_width():
    """Kimi K2 has both ends at one turn, Llama 4 Scout both factors at 1."""
    kimi = SIZES | {"rope_scaling": YARN | {"beta_fast": 1.0, "beta_slow": 1.0}}
    kept = rotary_from_hf(kimi).frequencies_of_pairs({}, 16)
    # 8 pairs; that which turns once in 32 tokens lies between pairs 1 and 2.
    usual = 1e4 ** (-np.arange(0, 16, 2) / 16)
    ratios = np.where(np.arange(8) < 2, 1.0, 0.25)
    np.testing.assert_allclose(kept, usual * ratios, rtol=1e-6)
    by_turns = YaRN(scale=4.0, train_length=32, beta_fast=1, beta_slow=1, form="paper")
    np.testing.assert_allclose(
        by_turns.frequencies_of_pairs({}, 16), usual * ratios, rtol=1e-6
    )
    scout = Llama3Scaling(scale=16.0, train_length=8192, low=1.0, high=1.0)
    turns = np.array([1.5, 1.0, 0.5]) * 2 * np.pi / 8192
    np.testing.assert_array_equal(scout.ratios(turns, 5e5), [1, 1, 1 / 16])
    for settings in ({"beta_fast": 1.0, "beta_slow": 2.0}, {"beta_fast": 0.5}):
        with pytest.raises(ValueError, match="beta_fast=.*at least"):
            YaRN(**settings)
    with pytest.raises(ValueError, match="high=0.5 must be at least low=1.0"):
        Llama3Scaling(high=0.5)


def test_longropes_factor_may_be_stated_for_both_lengths_alike():
    """Phi-3.5-MoE has `short_mscale` and `long_mscale`, of one value."""
    factors = {"long_factor": [2.0] * 8, "short_factor": [1.0] * 8}
    rope = {"type": "longrope", "original_max_position_embeddings": 32} | factors
    both = {"short_mscale": 1.25, "long_mscale": 1.25}
    ours = read("phimoe", rope_scaling=rope | both)
    assert ours == read("phimoe", rope_scaling=rope | {"attention_factor": 1.25})
    for wrong in (both | {"long_mscale": 1.5}, {"short_mscale": 1.25}):
        with pytest.raises(ValueError, match="must be one number"):
            read("phimoe", rope_scaling=rope | wrong)


def test_sections_are_interleaved_by_either_name():
    """Qwen3-Omni has both of them."""
    rope = {"rope_type": "default", "mrope_section": [4, 2, 2]}
    names = ("mrope_interleaved", "interleaved")
    both = read("x", rope_scaling=rope | dict.fromkeys(names, True))
    assert both.interleaved
    for name in names:
        assert read("x", rope_scaling=rope | {name: True}) == both
    with pytest.raises(ValueError, match="contradict each other"):
        read("x", rope_scaling=rope | dict(zip(names, (True, False), strict=True)))
