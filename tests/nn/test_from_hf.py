"""Checkpoints of Hugging Face give the logits of a float64 model written apart.

No real checkpoint is loaded: arrays are random, and small.
"""

import dataclasses
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ropejax.encodings import Rotary
from ropejax.encodings.distance_maps import Rectified
from ropejax.masks import Causal, Window
from ropejax.nn import RMSNorm, TiedReadout
from ropejax.nn.from_hf import decoder_from_hf, open_checkpoint, spec_from_hf
from ropejax.nn.patterns import with_encodings, with_masks
from ropejax.positions import Consecutive
from tests.nn import hf_oracle

VOCAB, LENGTH = 13, 9
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 100.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 32,
    "torch_dtype": "bfloat16",
}
CONFIGS = {
    "llama": {
        **{"attention_bias": True, "mlp_bias": True, "hidden_act": "silu"},
        **{"tie_word_embeddings": False, "num_key_value_heads": 1},
    },
    "mistral": {"sliding_window": 3, "head_dim": 6},
    "qwen2": {
        **{"tie_word_embeddings": True, "use_sliding_window": True},
        **{"sliding_window": 4, "max_window_layers": 1},
    },
    "qwen3": {"head_dim": 6, "use_sliding_window": False, "sliding_window": 4},
    "gemma": {"head_dim": 6, "hidden_act": "gelu", "hidden_activation": None},
    "smollm3": {"num_hidden_layers": 4, "hidden_size": 8},
}


def config_of(model_type, **changes):
    own = CONFIGS[model_type]
    return {"model_type": model_type, **COMMON, **own, **changes}


def checkpoint_of(config, seed=0):
    """Random arrays under the names of a checkpoint; no gain is one, no bias zero."""
    rng = np.random.default_rng(seed)
    kind, width, hidden = (
        config[key] for key in ("model_type", "hidden_size", "intermediate_size")
    )
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim", width // heads)
    qkv = kind == "qwen2" or config.get("attention_bias", False)
    out, mlp = config.get("attention_bias", False), config.get("mlp_bias", False)
    shapes = {
        "model.embed_tokens.weight": (VOCAB, width),
        "model.norm.weight": (width,),
    }
    tied = config.get("tie_word_embeddings", kind in ("gemma", "smollm3"))
    if not tied:
        shapes["lm_head.weight"] = (VOCAB, width)
    for at in range(config["num_hidden_layers"]):
        linear = {
            "self_attn.q_proj": ((heads * head, width), qkv),
            "self_attn.k_proj": ((groups * head, width), qkv),
            "self_attn.v_proj": ((groups * head, width), qkv),
            "self_attn.o_proj": ((width, heads * head), out),
            "mlp.gate_proj": ((hidden, width), mlp),
            "mlp.up_proj": ((hidden, width), mlp),
            "mlp.down_proj": ((width, hidden), mlp),
        }
        own = {f"{name}.weight": shape for name, (shape, _) in linear.items()}
        own |= {f"{name}.bias": s[:1] for name, (s, biased) in linear.items() if biased}
        own |= {"input_layernorm.weight": (width,)}
        own |= {"post_attention_layernorm.weight": (width,)}
        if kind == "qwen3":
            own |= {f"self_attn.{one}_norm.weight": (head,) for one in "qk"}
        shapes |= {f"model.layers.{at}.{name}": shape for name, shape in own.items()}
    # Of normalized queries and keys, gains alone make weights differ.
    size = lambda name: (
        2.5 if name.endswith(("q_norm.weight", "k_norm.weight")) else 0.4
    )
    return {
        name: (rng.normal(size=shape) * size(name)).astype(np.float32)
        for name, shape in shapes.items()
    }


TOKENS = np.random.default_rng(1).integers(0, VOCAB, (2, LENGTH))


def placed(length=LENGTH, rows=2):
    lengths = jnp.full((rows,), length)
    return Consecutive()(jax.random.key(0), lengths, num_tokens=length)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_logits_are_those_of_the_model_written_apart(model_type):
    config = config_of(model_type)
    tensors = checkpoint_of(config)
    spec, params = decoder_from_hf(config, tensors)
    found = spec.bind(params)(jnp.asarray(TOKENS), placed())
    wanted = hf_oracle.logits(config, tensors, TOKENS)
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)


NEOX = {
    "model_type": "gpt_neox",
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "rotary_pct": 0.5,
    "rotary_emb_base": 100,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "max_position_embeddings": 32,
}


@pytest.mark.parametrize("parallel", [True, False])
def test_a_neox_keeps_queries_keys_and_values_in_one_projection(parallel):
    rng, width, hidden = np.random.default_rng(2), 16, 20
    shapes = {
        "gpt_neox.embed_in": (VOCAB, width),
        "gpt_neox.final_layer_norm": (width,),
        "embed_out": (VOCAB, width),
    }
    for at in range(2):
        own = {
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
            "attention.query_key_value": (3 * width, width),
            "attention.dense": (width, width),
            "mlp.dense_h_to_4h": (hidden, width),
            "mlp.dense_4h_to_h": (width, hidden),
        }
        shapes |= {f"gpt_neox.layers.{at}.{name}": shape for name, shape in own.items()}
    draw = lambda shape: (rng.normal(size=shape) * 0.4).astype(np.float32)
    tensors = {f"{name}.weight": draw(shape) for name, shape in shapes.items()}
    tensors |= {
        f"{name}.bias": draw(shape[:1])
        for name, shape in shapes.items()
        if "embed" not in name
    }
    mask = {"gpt_neox.layers.0.attention.bias": np.ones((1, 1, 32, 32), bool)}
    config = NEOX | {"use_parallel_residual": parallel}
    spec, params = decoder_from_hf(config, tensors | mask)
    assert spec.settings.parallel is parallel
    found = spec.bind(params)(jnp.asarray(TOKENS), placed())
    wanted = hf_oracle.neox_logits(config, tensors, TOKENS)
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="num_key_value_heads=1: it is not known"):
        spec_from_hf(config | {"num_key_value_heads": 1})


def test_reading_through_a_cache_gives_the_logits_of_the_whole_row():
    """Windows that differ by layer, normalized keys, narrow heads: a Qwen3."""
    config = config_of(
        "qwen3", use_sliding_window=True, sliding_window=4, max_window_layers=1
    )
    tensors = checkpoint_of(config)
    spec, params = decoder_from_hf(config, tensors)
    assert [kind.mask for kind in spec.pattern] == [Causal(), Window.sliding(4)]
    model, where = spec.bind(params), placed()
    wanted = hf_oracle.logits(config, tensors, TOKENS)
    tokens = jnp.asarray(TOKENS)
    logits, memory = model.start(tokens[:, :5], where, 5, capacity=LENGTH)
    step = jax.jit(lambda memory, token, place: model.step(memory, token, place))
    for place in range(5, LENGTH):
        np.testing.assert_allclose(logits, wanted[:, place - 1], atol=1e-5, rtol=1e-5)
        logits, memory = step(memory, tokens[:, place], place)
    np.testing.assert_allclose(logits, wanted[:, -1], atol=1e-5, rtol=1e-5)


def test_encodings_and_masks_are_exchanged_at_test():
    """ReRoPE of a window that holds the row, and of one that no distance leaves."""
    config = config_of("mistral", sliding_window=None, num_hidden_layers=1)
    tensors = checkpoint_of(config)
    spec, params = decoder_from_hf(config, tensors)
    tokens, where = jnp.asarray(TOKENS), placed()
    logits = lambda spec: np.asarray(spec.bind(params)(tokens, where))
    rerope = lambda window: with_encodings(
        spec, lambda rope: dataclasses.replace(rope, distance=Rectified(window))
    )
    np.testing.assert_allclose(logits(rerope(LENGTH)), logits(spec), atol=1e-5)
    beyond = np.abs(logits(rerope(3)) - logits(spec)).max((0, 2))
    assert (beyond[:4] < 1e-5).all()
    assert (beyond[4:] > 1e-3).all()
    windowed = hf_oracle.logits(config | {"sliding_window": 3}, tensors, TOKENS)
    narrow = with_masks(spec, lambda mask: mask & Window(2))
    np.testing.assert_allclose(logits(narrow), windowed, atol=1e-5, rtol=1e-5)


def test_what_a_config_says_of_the_encoding_reaches_every_layer():
    scaling = {"rope_type": "yarn", "factor": 4.0}
    config = config_of("llama", rope_scaling=scaling, num_hidden_layers=3)
    (kind,) = spec_from_hf(config).pattern
    assert isinstance(kind.encoding, Rotary)
    assert kind.encoding.frequencies.scale == 4.0
    assert kind.encoding.frequencies.train_length == 32
    assert kind.encoding.max_wavelength == 100.0
    smollm3 = spec_from_hf(config_of("smollm3", num_hidden_layers=8))
    turned = [isinstance(kind.encoding, Rotary) for kind in smollm3.pattern]
    assert turned == [True, True, True, False]  # repeated


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "lama"}, "Did you mean 'llama'"),
        ({"model_type": None}, "lacks 'model_type'"),
        ({"quantization_config": {"bits": 4}}, "quantized weights are not read"),
        ({"logit_scale": 0.5}, "logit_scale=0.5: it is not known what this changes"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
        ({"rope_thetta": 1e4}, "Did you mean 'rope_theta'"),
        ({"hidden_act": "gelu_fast"}, "hidden_act must be one of"),
        ({"vocab_size": None}, "lacks 'vocab_size'"),
        ({"hiden_act": "relu"}, "Did you mean 'hidden_act'"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps must be a number"),
        ({"num_key_value_heads": 3}, "must be a multiple of num_kv_heads=3"),
        ({"hidden_size": 18}, "num_attention_heads=4 does not divide hidden_size=18"),
        ({"sliding_window": 8}, "sliding_window=8: it is not known"),
        ({"rope_scaling": {"type": "yarn2", "factor": 2.0}}, "rope_type"),
    ],
)
def test_configs_that_are_not_understood_are_refused(change, message):
    with pytest.raises(ValueError, match=".") as caught:
        spec_from_hf(config_of("llama") | change)
    assert message in str(caught.value)


def test_the_object_of_a_config_and_numbers_that_are_whole_are_refused():
    with pytest.raises(ValueError, match=r"config must be a dict.*call to_dict\(\)"):
        spec_from_hf(object())
    with pytest.raises(ValueError, match="dtype must be a floating-point type, got i"):
        spec_from_hf(config_of("llama"), dtype="int32")


@pytest.mark.parametrize(
    ("model_type", "change", "message"),
    [
        ("qwen3", {"head_dim": None}, "lacks 'head_dim'"),
        ("qwen2", {"max_window_layers": None}, "lacks 'max_window_layers'"),
        ("qwen2", {"layer_types": ["chunked_attention"] * 2}, "'chunked_attention'"),
        (
            *(
                "qwen2",
                {"use_sliding_window": False, "layer_types": ["sliding_attention"] * 2},
            ),
            "use_sliding_window is not true",
        ),
    ],
)
def test_windows_and_widths_must_be_said(model_type, change, message):
    with pytest.raises(ValueError, match=".") as caught:
        spec_from_hf(config_of(model_type, **change))
    assert message in str(caught.value)


def test_mistrals_window_is_that_of_its_code_unless_it_says_null():
    config = config_of("mistral")
    del config["sliding_window"]
    masks = [
        spec_from_hf(given).pattern[0].mask
        for given in (config, config_of("mistral", sliding_window=None))
    ]
    assert masks == [Window.sliding(4096), Causal()]


K_BIAS, NORM = "model.layers.1.self_attn.k_proj.bias", "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({K_BIAS: None}, f"the checkpoint lacks {K_BIAS}: it is not the one"),
        ({"model.norm.bias": np.ones(16)}, "has, of no use, model.norm.bias"),
        ({NORM: np.ones(8)}, f"{NORM} has the shape [8], and the config says [16]"),
        ({NORM: np.ones(16, np.int8)}, f"{NORM} is of int8"),
        ({NORM: np.ones(16, ml_dtypes.float8_e4m3fn)}, "is of float8_e4m3fn"),
        ({NORM: [1.0] * 16}, f"{NORM} is of list"),
        ({"lm_head.weight": None}, "lacks lm_head.weight"),
    ],
)
def test_a_checkpoint_that_is_not_the_configs_is_refused(change, message):
    config = config_of("llama")
    tensors = checkpoint_of(config) | change
    tensors = {name: array for name, array in tensors.items() if array is not None}
    with pytest.raises(ValueError, match=".") as caught:
        decoder_from_hf(config, tensors)
    assert message in str(caught.value)


def test_a_readout_that_is_tied_may_be_stored_again_but_no_other_one():
    config = config_of("qwen2")
    tensors = checkpoint_of(config)
    inv_freq = "model.layers.0.self_attn.rotary_emb.inv_freq"
    table = tensors["model.embed_tokens.weight"]
    again = tensors | {"lm_head.weight": table, inv_freq: np.ones(2)}
    spec, params = decoder_from_hf(config, again)
    assert spec.readout == TiedReadout()
    assert "readout" not in params
    with pytest.raises(ValueError, match="set tie_word_embeddings to false"):
        decoder_from_hf(config, tensors | {"lm_head.weight": table + 1})


def test_parameters_are_laid_out_as_initial_ones():
    """So an optimizer, a checkpoint or a mesh takes either; bfloat16 is exact."""
    config = config_of("qwen3", num_hidden_layers=1)
    halves = {
        name: array.astype(ml_dtypes.bfloat16)
        for name, array in checkpoint_of(config).items()
    }
    spec, params = decoder_from_hf(config, halves, dtype="bfloat16")
    assert spec.settings.norm == RMSNorm(1e-5)
    describe = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)
    shapes = jax.eval_shape(spec.init, jax.random.key(0))
    assert describe(params) == describe(shapes)
    norm = np.asarray(params["final_norm"]["scale"])
    np.testing.assert_array_equal(norm, halves[NORM].astype(np.float32))


def test_a_folder_is_opened_in_one_file_or_in_parts(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    config = config_of("llama", num_hidden_layers=1)
    tensors = {
        name: array.astype(ml_dtypes.bfloat16)
        for name, array in checkpoint_of(config).items()
    }
    with pytest.raises(ValueError, match=r"has no config.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"neither model.safetensors nor"):
        open_checkpoint(tmp_path)
    numpy.save_file(tensors, tmp_path / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[:4], "b.safetensors": names[4:]}

    def same():
        read, stored = open_checkpoint(tmp_path)
        assert read == config
        assert set(stored) == set(tensors)
        assert all(np.array_equal(stored[name], tensors[name]) for name in tensors)

    same()
    for part, own in parts.items():
        numpy.save_file({name: tensors[name] for name in own}, tmp_path / part)
    index = {name: part for part, own in parts.items() for name in own}
    where = tmp_path / "model.safetensors.index.json"
    where.write_text(json.dumps({"weight_map": index}))
    same()
    where.write_text(json.dumps({"weight_map": {**index, "more": "b.safetensors"}}))
    with pytest.raises(ValueError, match=r"b.safetensors lacks more, which"):
        open_checkpoint(tmp_path)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ValueError, match=r"names b.safetensors, which"):
        open_checkpoint(tmp_path)
