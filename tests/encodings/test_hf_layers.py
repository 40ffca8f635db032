"""Layers of Hugging Face models that differ: which have no RoPE, or another base.

What is expected was read in transformers 5.24, where its attention turns.
"""

import pytest

from ropejax.encodings import (
    Encoding,
    LogScale,
    Rotary,
    encodings_from_hf,
    rotary_from_hf,
    softmax_factor_from_hf,
)

pytestmark = pytest.mark.fast

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
KINDS = [SLIDING, SLIDING, SLIDING, FULL]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def config(model_type=None, number=None, **entries):
    number = {} if number is None else {"num_hidden_layers": number}
    return SIZES | {"model_type": model_type} | number | entries


def bases(encodings):
    """The base of each layer, 0 for none."""
    return [0 if each == Encoding() else each.max_wavelength for each in encodings]


@pytest.mark.parametrize(
    "model_type",
    [
        *("afmoe", "cohere2", "cohere2_moe", "flint", "lara_mini"),
        *("exaone4", "exaone4_5_text", "exaone_moe", "kolibri1"),
    ],
)
def test_layers_of_full_attention_have_no_rope_between_sliding_ones(model_type):
    settings = config(model_type, layer_types=KINDS, sliding_window=16, rope_theta=5e4)
    assert bases(encodings_from_hf(settings)) == [5e4, 5e4, 5e4, 0]
    assert rotary_from_hf(settings, layer_type=FULL) == Encoding()
    near = rotary_from_hf(settings, layer_type=SLIDING)
    assert isinstance(near, Rotary)
    assert encodings_from_hf(settings)[0] == near
    with pytest.raises(ValueError, match=r"layers \[3\].*encodings_from_hf.*'sliding_"):
        rotary_from_hf(settings)
    near_only = settings | {"layer_types": [SLIDING, SLIDING]}
    assert rotary_from_hf(near_only) == near
    assert softmax_factor_from_hf(settings) == 1


@pytest.mark.parametrize("model_type", ["exaone4", "exaone_moe", "kolibri1"])
def test_without_a_window_all_layers_turn(model_type):
    settings = config(model_type, layer_types=[FULL] * 3, sliding_window=None)
    assert bases(encodings_from_hf(settings)) == [1e4] * 3
    assert isinstance(rotary_from_hf(settings), Rotary)


def test_kinds_that_no_list_names_must_be_named():
    settings = config("cohere2", rope_theta=5e4)
    with pytest.raises(
        ValueError, match=f"layer_type must be one of {FULL}, {SLIDING}"
    ):
        rotary_from_hf(settings)
    assert rotary_from_hf(settings, layer_type=FULL) == Encoding()
    assert bases([rotary_from_hf(settings, layer_type=SLIDING)]) == [5e4]
    with pytest.raises(ValueError, match=f"'bogus'.*{FULL}.*{SLIDING}"):
        rotary_from_hf(settings, layer_type="bogus")


@pytest.mark.parametrize(
    ("model_type", "entries", "expected"),
    [
        ("smollm3", {}, [2e6, 2e6, 2e6, 0, 2e6, 2e6]),
        ("smollm3", {"no_rope_layer_interval": 2}, [2e6, 0] * 3),
        ("smollm3", {"no_rope_layers": [0, 1, 1, 1, 0, 1]}, [0, *[2e6] * 3, 0, 2e6]),
        ("cohere2", {}, [1e4, 1e4, 1e4, 0, 1e4, 1e4]),
        ("cohere2", {"sliding_window_pattern": 3}, [1e4, 1e4, 0] * 2),
        ("afmoe", {"global_attn_every_n_layers": 2}, [1e4, 0] * 3),
        ("kolibri1", {}, [1e4, 1e4, 1e4, 1e4, 0, 1e4]),
        ("exaone4", {"sliding_window": None}, [1e4] * 6),
        ("muse_spark_text", {"rope_theta": 5e5}, [5e5, 0, 5e5, 5e5, 5e5, 0]),
        ("cohere2_moe", {"first_k_dense_replace": 2}, [*[1e4] * 5, 0]),
        (
            "cohere2_moe",
            {"first_k_dense_replace": 3, "prefix_dense_sliding_window_pattern": 3},
            [1e4, 1e4, 0, 1e4, 1e4, 1e4],
        ),
        ("gemma3_text", {}, [*[1e4] * 5, 1e6]),
        ("gemma3_text", {"sliding_window_pattern": 2}, [1e4, 1e6] * 3),
        ("gemma3n_text", {"rope_theta": 3e6}, [*[1e4] * 4, 3e6, 1e4]),
        ("modernbert", {}, [16e4, 1e4, 1e4] * 2),
        ("qwen3_next", {}, [0, 0, 0, 1e4, 0, 0]),
        ("minimax", {}, [1e6, 0] * 3),
        ("mllama_text_model", {}, [5e5, 5e5, 5e5, 0, 5e5, 5e5]),
        ("mllama_text_model", {"cross_attention_layers": [0]}, [0, *[5e5] * 5]),
        ("bamba", {"attn_layer_indices": [1, 4]}, [0, 1e4, 0, 0, 1e4, 0]),
        ("lfm2", {"full_attn_idxs": [2]}, [0, 0, 1e6, 0, 0, 0]),
        ("lfm2", {}, [1e6] * 6),
        ("recurrent_gemma", {}, [0, 0, 1e4] * 2),
        ("llama", {"rope_theta": 5e5}, [5e5] * 6),
        (None, {"no_rope_layers": [1, 1, 0, 1, 1, 0]}, [1e4, 1e4, 0] * 2),
        ("granite_swa", {"layer_rope_theta": [0, 5e4, 1e4] * 2}, [0, 5e4, 1e4] * 2),
        ("granite_swa", {"rope_theta": 5e4}, [5e4] * 6),
    ],
)
def test_six_layers_are_those_of_the_models_code(model_type, entries, expected):
    assert bases(encodings_from_hf(config(model_type, 6, **entries))) == expected


def test_layers_of_one_kind_that_differ_are_not_given_one_encoding():
    settings = config("smollm3", 8, layer_types=[FULL] * 8)
    for kind in (None, FULL):
        with pytest.raises(ValueError, match=r"layers \[3, 7\].*encodings_from_hf"):
            rotary_from_hf(settings, layer_type=kind)
    assert isinstance(rotary_from_hf(settings | {"no_rope_layers": [1] * 8}), Rotary)
    assert rotary_from_hf(settings | {"no_rope_layers": [0] * 8}) == Encoding()
    two = config("granite_swa", 2, layer_rope_theta=[1e4, 5e4])
    with pytest.raises(ValueError, match=r"bases are \[10000.0, 50000.0\]"):
        rotary_from_hf(two)
    with pytest.raises(ValueError, match="add no_rope_layers.* or num_hidden_layers"):
        rotary_from_hf(config("smollm3"))


def test_a_layers_own_base_keeps_the_extension():
    settings = config("granite_swa", 3, layer_rope_theta=[1e4, 0, 5e4])
    near, still, far = encodings_from_hf(settings | {"rope_scaling": YARN})
    assert (near.max_wavelength, far.max_wavelength) == (1e4, 5e4)
    assert near.frequencies == far.frequencies
    assert near.frequencies.scale == 4.0
    assert still == Encoding()


def test_llama_4_sharpens_the_layers_that_it_does_not_turn():
    """`1 + attn_scale ln(1 + floor(n / floor_scale))`, n its keys; 8192 and 0.1."""
    settings = config("llama4_text", 4)
    *turned, still = encodings_from_hf(settings)
    assert still == LogScale(form="steps", train_length=8192, weight=0.1)
    assert bases(turned) == [5e5] * 3
    assert rotary_from_hf(settings, layer_type=FULL) == still
    assert rotary_from_hf(settings, layer_type="chunked_attention") == turned[0]
    own = {"floor_scale": 4, "attn_scale": 0.5}
    expected = LogScale(form="steps", train_length=4, weight=0.5)
    assert encodings_from_hf(settings | own)[-1] == expected
    plain = settings | {"attn_temperature_tuning": False}
    assert encodings_from_hf(plain)[-1] == Encoding()


def test_an_extension_of_full_layers_is_theirs_alone():
    olmo = encodings_from_hf(config("olmo3", 4, rope_theta=5e5, rope_scaling=YARN))
    assert olmo[:3] == (Rotary(max_wavelength=5e5, round_frequencies=True),) * 3
    assert olmo[3].frequencies.scale == 4.0


def test_layers_without_attention_have_nothing_to_turn():
    kinds = ["mamba", "attention", "conv"]
    settings = config("llama", layer_types=kinds)
    rope = rotary_from_hf(settings)
    assert encodings_from_hf(settings) == (Encoding(), rope, Encoding())
    assert rotary_from_hf(settings, layer_type="mamba") == Encoding()
    assert rotary_from_hf(settings, layer_type=FULL) == rope


def test_a_kind_with_null_for_its_settings_has_no_rope():
    """Not so Gemma 3 and Olmo 3, whose code fills them in."""
    rope = {FULL: None, SLIDING: {"rope_theta": 1e4}}
    compass = config("cohere_compass_text", layer_types=KINDS, rope_parameters=rope)
    assert bases(encodings_from_hf(compass)) == [1e4, 1e4, 1e4, 0]
    assert rotary_from_hf(compass, layer_type=FULL) == Encoding()
    gemma = compass | {"model_type": "gemma3_text"}
    assert bases(encodings_from_hf(gemma)) == [1e4, 1e4, 1e4, 1e6]
    with pytest.raises(ValueError, match="layer_type must be one of full_attention"):
        rotary_from_hf(config(rope_parameters={FULL: None}))
    with pytest.raises(ValueError, match="'beam' multiplies queries"):
        encodings_from_hf(compass | {"model_type": "beam"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (config("llama"), "lacks 'num_hidden_layers'"),
        (config("lfm2_moe", 4), "add layer_types"),
        (config("gemma3_text"), "add layer_types"),
        (config("x", 4, rope_local_base_freq=1e4), "add layer_types"),
        (config("cohere2", 3, layer_types=KINDS), "'layer_types': 4, 'num_hidden_lay"),
        (config("llama", 2, layer_types="full"), "layer_types must be a list of names"),
        (config("llama", 2, layer_types=[1, 2]), "layer_types must be a list of names"),
        *[
            (config("smollm3", 2, no_rope_layers=wrong), "list of 0 and 1, got")
            for wrong in ([1, 2], [1.0, 0.0], ["1", "0"], 1, "10")
        ],
        (config("bamba", 2, attn_layer_indices=[2]), "from 0, of which there are 2"),
        (config("x", 2, rope_parameters={FULL: None}), "add layer_types"),
        (
            config("cohere2_moe", 4, layer_types=KINDS, mlp_layer_types=["dense"]),
            "mlp_layer_types has 1 entries for 4 layers",
        ),
        (config("smollm3", 4, no_rope_layer_interval=0), "must be finite and positive"),
        (config("granite_swa", 1, layer_rope_theta=[-1]), "zero or positive, got -1"),
        (config("granite_swa", 1, layer_rope_theta=[True]), "must be a number"),
    ],
)
def test_layers_that_are_not_known_are_not_guessed(settings, message):
    with pytest.raises(ValueError, match=message):
        encodings_from_hf(settings)
