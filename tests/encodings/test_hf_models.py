"""What the type of a Hugging Face model decides, beside what its config says."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import rotary_from_hf, softmax_factor_from_hf
from ropejax.tokens import tokens

pytestmark = pytest.mark.fast

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "qk_rope_head_dim": 8}
YARN = {
    "type": "yarn",
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


def deepseek(model_type="deepseek_v3", **rope):
    return SIZES | {"model_type": model_type, "rope_scaling": YARN | rope}


KIN = [
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "longcat_flash"),
    *("axk1", "axk2", "bailing_hybrid", "glm4_moe_lite", "glm_moe_dsa", "youtu"),
    *("hy_v4_vl_text", "mistral4", "sarvam_mla"),
]


@pytest.mark.parametrize("model_type", KIN)
def test_deepseeks_factor_on_the_softmax_scale_is_not_lost(model_type):
    """Fault B02: its code has `mscale(40, 1) ** 2`, where RoPE's own factor is 1."""
    config = deepseek(model_type)
    factor = softmax_factor_from_hf(config)
    assert factor == pytest.approx((0.1 * math.log(40) + 1) ** 2, rel=1e-12)
    assert factor == pytest.approx(1.8738542, rel=1e-7)
    with pytest.raises(ValueError, match=r"by 1.873854 .*softmax_factor_from_hf"):
        rotary_from_hf(config)
    rope = rotary_from_hf(config, softmax_factor=factor)
    assert rope.frequencies.factor() == 1
    assert rope.layout == "interleaved"


@pytest.mark.parametrize("model_type", ["hy_v4", "minicpm3"])
def test_two_models_have_the_factor_and_pair_halves(model_type):
    config = deepseek(model_type)
    factor = softmax_factor_from_hf(config)
    assert factor == pytest.approx((0.1 * math.log(40) + 1) ** 2, rel=1e-12)
    assert rotary_from_hf(config, softmax_factor=factor).layout == "half"


@pytest.mark.parametrize(
    "config",
    [
        deepseek("llama"),
        deepseek(mscale_all_dim=0),
        SIZES | {"model_type": "deepseek_v3"},
    ],
)
def test_others_have_none_and_a_factor_that_is_not_the_models_is_refused(config):
    assert softmax_factor_from_hf(config) == 1
    rotary_from_hf(config)
    for wrong in (1.8738542, None, float("nan")):
        with pytest.raises(ValueError, match="softmax scale by 1 besides"):
            rotary_from_hf(config, softmax_factor=wrong)


def test_the_factor_makes_the_models_logits():
    """Whole heads of 12 channels, of which 8 turn; logits written out in float64."""
    config = deepseek(mscale=0.707, mscale_all_dim=0.707)
    factor = softmax_factor_from_hf(config)
    rope = rotary_from_hf(config, softmax_factor=factor)
    draw = np.random.default_rng(0)
    q, k, v = draw.normal(size=(3, 1, 5, 1, 8))
    still_q, still_k = draw.normal(size=(2, 1, 5, 1, 4))
    turned_q = np.asarray(rope.queries({}, jnp.float32(q), tokens(5))[0], np.float64)
    turned_k = np.asarray(rope.keys({}, jnp.float32(k), tokens(5))[0], np.float64)
    whole = lambda turning, still: jnp.float32(np.concatenate([turning, still], -1))
    out = attend(
        whole(q, still_q),
        whole(k, still_k),
        jnp.float32(v),
        encoding=dataclasses.replace(rope, rotary_fraction=8 / 12),
        query=tokens(5),
        key=tokens(5),
        scale=factor * 12**-0.5,
        implementation="dense",
    )
    mscale = 0.1 * 0.707 * math.log(40) + 1
    logits = turned_q[0, :, 0] @ turned_k[0, :, 0].T
    logits = (logits + still_q[0, :, 0] @ still_k[0, :, 0].T) * 12**-0.5 * mscale**2
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(out[0, :, 0], weights @ v[0, :, 0], atol=1e-5)


@pytest.mark.parametrize(
    "model_type",
    [
        *("gptj", "codegen", "roformer", "cohere", "cohere2", "glm", "glm4"),
        *("glm4v_text", "glm_ocr_text", "moonshine", "moonshine_streaming", "helium"),
        *("ernie4_5", "ernie4_5_moe", "llama4_text", "cohere2_moe", "blt", "chatglm"),
        *("openai_privacy_filter", *KIN),
    ],
)
def test_neighbours_are_paired_where_the_models_code_does(model_type):
    plain = {"rope_parameters": {"rope_type": "default"}}
    turning = {"no_rope_layers": [1], "layer_types": ["sliding_attention"]}
    config = {"head_dim": 160, "model_type": model_type} | plain | turning
    assert rotary_from_hf(config).layout == "interleaved"
    assert rotary_from_hf(config, layout="half").layout == "half"
    assert rotary_from_hf(config | {"rope_interleave": False}).layout == "half"


@pytest.mark.parametrize("model_type", ["llama", "glm4_moe", "glm4v_moe_text", None])
def test_all_others_pair_halves(model_type):
    assert rotary_from_hf(SIZES | {"model_type": model_type}).layout == "half"


@pytest.mark.parametrize(
    ("entries", "key"),
    [
        ({"model_type": "falcon", "alibi": True}, "alibi=True"),
        ({"attn_config": {"alibi": True}}, "alibi=True"),
        ({"model_type": "mpt"}, "model_type='mpt'"),
        ({"model_type": "bloom"}, "model_type='bloom'"),
        ({"model_type": "t5"}, "model_type='t5'"),
        ({"model_type": "gpt2"}, "model_type='gpt2'"),
        ({"relative_attention_num_buckets": 32}, "relative_attention_num_buckets=32"),
        ({"position_embedding_type": "absolute"}, "position_embedding_type='absolute'"),
        (
            {"position_embedding_type": "nope", "rope_theta": 1e4},
            "position_embedding_type='nope'",
        ),
        ({"alibi": True, "rope_theta": 1e4}, "alibi=True"),
        ({"model_type": "ernie4_5_vl_moe_text"}, "'ernie4_5_vl_moe_text' deals"),
        ({"model_type": "deepseek_v4", "rope_theta": 1e4}, "turns the last channels"),
        ({"model_type": "mistral_large4_text"}, "learns a factor on each frequency"),
        ({"model_type": "nemotron_h", "rope_theta": 1e4}, "model_type='nemotron_h'"),
        ({"model_type": "kimi_linear", "rope_theta": 1e4}, "model_type='kimi_linear'"),
        ({"model_type": "zamba2", "rope_theta": 1e4}, "use_mem_rope"),
        ({"model_type": "granitemoehybrid", "rope_theta": 1e4}, "is None, not 'rope'"),
        (
            {"model_type": "esm", "position_embedding_type": "absolute"}
            | {"rope_parameters": {"rope_theta": 1e4}},
            "is 'absolute', not 'rotary'",
        ),
        (
            {"model_type": "olmo_hybrid", "rope_parameters": {"rope_theta": None}},
            "states no rope_theta",
        ),
        ({"use_dynamic_ntk": True}, "use_dynamic_ntk=True"),
        ({"use_logn_attn": True}, "use_logn_attn=True"),
    ],
)
def test_a_model_without_rope_is_refused_by_the_key_that_says_so(entries, key):
    """Plain RoPE would load without an error, and compute something else."""
    for read in (rotary_from_hf, softmax_factor_from_hf):
        with pytest.raises(ValueError, match=key):
            read(SIZES | entries)


@pytest.mark.parametrize(
    "entries",
    [
        {"model_type": "falcon", "alibi": False},
        {"position_embedding_type": "rope"},
        {"position_embedding_type": "rotary"},
        {"position_embedding_type": None, "alibi": None},
        {"position_embedding_type": "absolute", "rope_theta": 1e4},
        {"rotary_value": False},
        {"model_type": "zamba2", "use_mem_rope": True},
        {"model_type": "granitemoehybrid", "position_embedding_type": "rope"},
        {"model_type": "esm", "position_embedding_type": "rotary"},
        {"model_type": "olmo_hybrid", "rope_parameters": {"rope_theta": 1e4}},
        {"model_type": "qwen", "use_dynamic_ntk": False},
    ],
)
def test_a_model_that_says_it_has_rope_is_read(entries):
    assert rotary_from_hf(SIZES | entries) == rotary_from_hf(SIZES)
