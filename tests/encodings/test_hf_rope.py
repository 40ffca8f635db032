"""Configs of Hugging Face models: both forms, and what is not known is refused."""

import copy
import dataclasses

import numpy as np
import pytest

from ropejax.encodings import LongRoPE, MRoPE, Rotary, YaRN, rotary_from_hf
from ropejax.encodings.angles import rotary_frequencies
from ropejax.encodings.hf_width import head_width
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


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LONG = {"rope_type": "longrope", "factor": 4.0}
GEMMA = LLAMA | {
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
MODERN = LLAMA | {"global_rope_theta": 160_000, "local_rope_theta": 10_000}


@pytest.mark.fast
@pytest.mark.parametrize("settings", [GEMMA, MODERN])
@pytest.mark.parametrize("layer_type", [None, "sliding_atention", "global", ["x"]])
def test_layers_that_differ_must_be_named(settings, layer_type):
    with pytest.raises(ValueError, match="layer_type.*sliding_attention"):
        rotary_from_hf(settings, layer_type=layer_type)


def test_a_near_name_of_a_kind_is_suggested():
    with pytest.raises(ValueError, match="Did you mean 'sliding_attention'"):
        rotary_from_hf(GEMMA, layer_type="sliding_atention")


def test_both_bases_of_a_model_are_read():
    plain = Rotary(max_wavelength=1e4, round_frequencies=True)
    assert rotary_from_hf(GEMMA, layer_type="sliding_attention") == plain
    full = rotary_from_hf(GEMMA, layer_type="full_attention")
    assert (full.max_wavelength, full.frequencies.scale) == (1e6, 8.0)
    assert rotary_from_hf(MODERN, layer_type="sliding_attention") == plain
    full = rotary_from_hf(MODERN, layer_type="full_attention")
    assert full == Rotary(max_wavelength=160_000.0, round_frequencies=True)
    half = {key: MODERN[key] for key in MODERN if key != "local_rope_theta"}
    with pytest.raises(ValueError, match="lacks 'local_rope_theta'"):
        rotary_from_hf(half, layer_type="sliding_attention")


def test_where_layers_are_alike_only_kinds_that_exist_are_accepted():
    plain = rotary_from_hf(LLAMA)
    assert rotary_from_hf(LLAMA, layer_type="full_attention") == plain
    for layer_type in ("bogus", "sliding_attention", 3):
        with pytest.raises(ValueError, match=f"layer_type={layer_type!r}.*drop it"):
            rotary_from_hf(LLAMA, layer_type=layer_type)
    kinds = LLAMA | {"layer_types": ["sliding_attention", "full_attention"]}
    assert rotary_from_hf(kinds, layer_type="sliding_attention") == plain


def test_the_text_model_within_a_config_is_read():
    inner = {"model_type": "llama4_text", "rope_theta": 5e5, "head_dim": 16}
    inner |= {"no_rope_layers": [1, 1]}
    outer = {"model_type": "llama4", "text_config": inner, "vision_config": {}}
    ours = rotary_from_hf(outer)
    assert ours == rotary_from_hf(inner)
    assert (ours.max_wavelength, ours.layout) == (5e5, "interleaved")
    assert rotary_from_hf(outer | {"rope_theta": 5e5}) == ours
    with pytest.raises(ValueError, match="rope_theta=1.*contradicts text_config"):
        rotary_from_hf(outer | {"rope_theta": 1e4})
    with pytest.raises(ValueError, match="pass config\\['llm_config'\\]"):
        rotary_from_hf({"llm_config": inner})


@pytest.mark.fast
@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("rope_theat", "rope_theta"),
        ("rop_theta", "rope_theta"),
        ("rope_scalling", "rope_scaling"),
        ("partial_rotary_facter", "partial_rotary_factor"),
        ("rope_ratio", "rope_"),
        ("rotary_percent", "rotary_pct"),
        ("original_max_position_embedings", "original_max_position_embeddings"),
        ("no_rope_layer", "no_rope_layers"),
    ],
)
def test_a_misspelt_key_is_refused_with_its_nearest_name(key, near):
    with pytest.raises(ValueError, match=f"'{key}'.*Did you mean.*'{near}"):
        rotary_from_hf(LLAMA | {key: 5e5})
    assert rotary_from_hf(LLAMA | {key: None}) == rotary_from_hf(LLAMA)


def test_keys_about_other_things_are_ignored():
    others = {
        "vocab_size": 9,
        "rms_norm_eps": 1e-5,
        "qk_nope_head_dim": 8,
        "logits_scaling": 2.0,
        "max_2d_position_embeddings": 5,
        "router_dim": 8,
        "rotary": True,
        "rope_interleaved": False,
        "quantization_config": {"bits": 4},
        7: "seven",
    }
    assert rotary_from_hf(LLAMA | others) == rotary_from_hf(LLAMA)
    for key in ("rotary", "rope_interleaved"):
        with pytest.raises(ValueError, match=key):
            rotary_from_hf(LLAMA | {key: not others[key]})


@pytest.mark.fast
@pytest.mark.parametrize(
    "settings",
    [
        {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default"}},
        {"rope_scaling": YARN, "rope_parameters": YARN | {"factor": 2.0}},
        {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}},
        {
            "rope_scaling": {"rope_theta": 1e4, "rope_type": "default"},
            "rope_parameters": {"rope_theta": 1e6},
        },
        {"rope_parameters": YARN | {"type": "linear"}},
    ],
)
def test_entries_that_contradict_each_other_are_refused(settings):
    with pytest.raises(ValueError, match="contradicts.*drop"):
        rotary_from_hf(LLAMA | settings)


@pytest.mark.fast
def test_a_contradiction_says_which_base_transformers_reads():
    inner, outer = {"rope_theta": 1e6}, {"rope_theta": 1e4}
    for within in ({"rope_parameters": inner}, {"rope_scaling": inner}):
        with pytest.raises(ValueError, match="reads the one within rope_parameters or"):
            rotary_from_hf(LLAMA | outer | within)
    with pytest.raises(ValueError, match="reads the one in rope_scaling"):
        rotary_from_hf(LLAMA | {"rope_parameters": inner, "rope_scaling": outer})


def test_two_forms_that_agree_are_one():
    both = {"rope_scaling": YARN, "rope_parameters": YARN | {"rope_theta": 1e6}}
    ours = rotary_from_hf(LLAMA | both | {"rope_theta": 1e6})
    assert ours == rotary_from_hf(config(**YARN, rope_theta=1e6))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *[({"rope_scaling": x}, "rope_scaling must be") for x in ("yarn", [1], 3)],
        ({"rope_parameters": [1]}, "rope_parameters must be a dict"),
        ({"text_config": 3}, "text_config must be a dict"),
        ({"rope_parameters": {"rope_type": ["yarn"]}}, r"rope_type must.*'yarn'"),
        ({"model_type": ["llama"]}, "model_type must be"),
        ({"rope_theta": "1e4"}, "rope_theta must be a number, got '1e4'"),
        ({"rope_theta": True}, "rope_theta must be a number"),
        ({"rope_theta": 1.0}, "max_wavelength must be"),
        ({"partial_rotary_factor": "0.5"}, "partial_rotary_factor must be a number"),
        ({"rotary_dim": 2.5}, "rotary_dim must be a whole number, got 2.5"),
        ({"rope_interleave": "true"}, "rope_interleave must be true or false"),
        ({"rope_parameters": YARN | {"truncate": "false"}}, "truncate must be true"),
        ({"rope_parameters": YARN | {"mscale": "0.7"}}, "mscale must be a number"),
        ({"rope_parameters": YARN | {"mscale_all_dim": 1.0}}, "mscale_all_dim=1.0"),
        ({"rope_parameters": YARN | {"beta_fast": 0}}, "beta_fast must be.*got 0"),
        (
            {"rope_parameters": YARN | {"attention_factor": "1.0"}},
            "attention_factor must be a number, got '1.0'",
        ),
        *[
            ({"rope_parameters": YARN | {"factor": x}}, "factor must be")
            for x in (float("inf"), float("nan"), -2.0, 0, "4", [4.0])
        ],
        *[
            (
                {"rope_parameters": YARN | {"original_max_position_embeddings": x}},
                f"original_max_position_embeddings must be.*got {x}",
            )
            for x in (0, -1, 32.5)
        ],
        (
            {"original_max_position_embeddings": 0, "rope_parameters": YARN},
            "original_max_position_embeddings must be",
        ),
        (
            {"rope_parameters": LONG | {"long_factor": 3, "short_factor": [1.0] * 8}},
            "long_factor must be a list",
        ),
        (
            {"rope_parameters": {"mrope_section": 8}},
            "mrope_section must be a list of numbers, got 8",
        ),
        ({"rope_parameters": {"type": "mrope"}}, "lacks 'mrope_section'"),
        ({"rope_parameters": {"a": {}, "rope_theta": 1e4}}, "move them into each"),
        ({"head_dim": "16", "rotary_dim": 8}, "head_dim must be a number"),
    ],
)
def test_entries_of_the_wrong_type_or_range_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        rotary_from_hf(LLAMA | settings)


@pytest.mark.parametrize("settings", [None, 3, "llama", [LLAMA]])
def test_what_is_no_config_is_refused(settings):
    with pytest.raises(ValueError, match="config must be a dict.*to_dict"):
        rotary_from_hf(settings)


def test_entries_must_fit_the_heads_that_the_config_implies():
    factors = {"long_factor": [2.0] * 8, "short_factor": [1.0] * 8}
    assert rotary_from_hf(config(**LONG, **factors)).frequencies.scale == 4.0
    for name in ("long_factor", "short_factor"):
        wrong = LONG | factors | {name: [1.0] * 7}
        with pytest.raises(ValueError, match=f"width 16.*{name}.*8 pairs, got 7"):
            rotary_from_hf(config(**wrong))
    half = config(**LONG, **factors) | {"partial_rotary_factor": 0.5}
    with pytest.raises(ValueError, match="width 16.*4 pairs, got 8"):
        rotary_from_hf(half)
    assert rotary_from_hf(half | {"head_dim": 32}).rotary_fraction == 0.5
    with pytest.raises(ValueError, match="width 16.*sections.*8 pairs"):
        rotary_from_hf(config(mrope_section=[2, 2, 2]))
    # Without a width the model says so later.
    assert rotary_from_hf({"rope_parameters": {"mrope_section": [2, 2, 2]}})


def test_part_of_the_channels_is_not_rounded_down():
    ours = rotary_from_hf({"head_dim": 44, "rotary_dim": 30})
    assert ours.rotary_width(44) == 30


def test_neighbours_are_paired_where_the_code_of_transformers_does():
    deepseek, ernie = ("deepseek_v2", "deepseek_v3"), ("ernie4_5", "ernie4_5_moe")
    for model_type in (*deepseek, *ernie, "helium", "llama4_text"):
        settings = LLAMA | {"model_type": model_type, "qk_rope_head_dim": 8}
        settings |= {"no_rope_layers": [1, 1]}
        assert rotary_from_hf(settings).layout == "interleaved"
        assert rotary_from_hf(settings, layout="half").layout == "half"
        assert head_width(settings) == 8
    plain = LLAMA | {"model_type": "deepseek_v3", "rope_interleave": False}
    assert rotary_from_hf(plain).layout == "half"
    assert rotary_from_hf(LLAMA | {"rope_interleave": True}).layout == "interleaved"


def test_a_weight_of_zero_counts_as_absent():
    usual = rotary_from_hf(config(**YARN))
    for weights in ({"mscale": 0.7, "mscale_all_dim": 0}, {"mscale": 0.7}):
        assert rotary_from_hf(config(**YARN, **weights)) == usual
    both = rotary_from_hf(config(**YARN, mscale=0.7, mscale_all_dim=0.5))
    expected = (0.07 * np.log(4.0) + 1) / (0.05 * np.log(4.0) + 1)
    np.testing.assert_allclose(both.frequencies.factor(), expected, 1e-12)


@pytest.mark.fast
@pytest.mark.parametrize("base", [1.0, 0.5, True, float("inf"), float("nan"), "1e4"])
@pytest.mark.parametrize("encoding", [Rotary, YaRN])
def test_bases_that_make_no_waves_are_refused(encoding, base):
    with pytest.raises(ValueError, match="max_wavelength must be"):
        encoding(max_wavelength=base)


@pytest.mark.fast
def test_a_trained_length_of_one_has_no_logarithm_to_divide_by():
    with pytest.raises(ValueError, match="train_length must exceed 1, got 1"):
        LongRoPE(train_length=1)
