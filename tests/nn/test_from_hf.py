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

from ropejax.encodings import ALiBi, Rotary
from ropejax.encodings.distance_maps import Rectified
from ropejax.masks import Causal, Window
from ropejax.nn import RMSNorm, TiedReadout
from ropejax.nn.from_hf import decoder_from_hf, open_checkpoint, spec_from_hf
from ropejax.nn.patterns import with_encodings, with_masks
from ropejax.positions import Consecutive
from tests.nn import hf_oracle
from tests.nn.hf_checkpoints import CONFIGS, LENGTH, VOCAB, checkpoint_of, config_of
from tests.tasks.samples import UNOPTIMIZED

TOKENS = np.random.default_rng(1).integers(0, VOCAB, (2, LENGTH))


def placed(length=LENGTH, rows=2):
    lengths = jnp.full((rows,), length)
    return Consecutive()(jax.random.key(0), lengths, num_tokens=length)


def read(spec, params, tokens=TOKENS):
    """Logits at consecutive positions; compiled for one run."""
    run = lambda params, tokens: spec.bind(params)(tokens, placed(tokens.shape[1]))
    run = jax.jit(run, compiler_options=UNOPTIMIZED)
    return np.asarray(run(params, jnp.asarray(tokens)))


VARIANTS = [
    *((model_type, {}) for model_type in CONFIGS),
    ("gpt_neox", {"use_parallel_residual": False}),
]


@pytest.mark.parametrize(("model_type", "changes"), VARIANTS)
def test_logits_are_those_of_the_model_written_apart(model_type, changes):
    config = config_of(model_type, **changes)
    tensors = checkpoint_of(config)
    spec, params = decoder_from_hf(config, tensors)
    wanted = hf_oracle.logits(config, tensors, TOKENS)
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(read(spec, params), wanted, atol=1e-5, rtol=1e-5)


CACHED = {
    "qwen3": {"use_sliding_window": True, "max_window_layers": 1},  # normalized keys
    "gemma3_text": {},  # norms before and after, two bases
    "gemma2": {},  # soft caps
    "olmo2": {},  # norms of outputs, keys normalized over heads
    "gpt2": {},  # a table of positions
    "bloom": {},  # normalized embeddings, ALiBi
    "falcon": {},  # one key head, parallel
}


@pytest.mark.parametrize("model_type", CACHED)
def test_reading_through_a_cache_gives_the_logits_of_the_whole_row(model_type):
    config = config_of(model_type, **CACHED[model_type])
    tensors = checkpoint_of(config)
    spec, params = decoder_from_hf(config, tensors)
    model, where = spec.bind(params), placed()
    wanted = hf_oracle.logits(config, tensors, TOKENS)
    tokens = jnp.asarray(TOKENS)
    compiled = lambda function: jax.jit(function, compiler_options=UNOPTIMIZED)
    start = compiled(lambda tokens: model.start(tokens, where, 5, capacity=LENGTH))
    logits, memory = start(tokens[:, :5])
    step = compiled(lambda memory, token, place: model.step(memory, token, place))
    for place in range(5, LENGTH):
        np.testing.assert_allclose(logits, wanted[:, place - 1], atol=1e-5, rtol=1e-5)
        logits, memory = step(memory, tokens[:, place], jnp.int32(place))
    np.testing.assert_allclose(logits, wanted[:, -1], atol=1e-5, rtol=1e-5)


def test_windows_are_of_the_layers_that_the_config_says():
    qwen3 = config_of("qwen3", **CACHED["qwen3"])
    masks = [Causal(), Window.sliding(4)]
    assert [kind.mask for kind in spec_from_hf(qwen3).pattern] == masks
    gemma = spec_from_hf(config_of("gemma3_text", num_hidden_layers=4))
    assert [kind.mask for kind in gemma.pattern] == [Window.sliding(3), Causal()]
    assert [kind.encoding.max_wavelength for kind in gemma.pattern] == [10.0, 100.0]


def test_a_checkpoint_of_the_model_without_its_readout_may_lack_the_prefix():
    """As those of GPT-2 and BLOOM were published."""
    config = config_of("gpt2")
    tensors = checkpoint_of(config)
    bare = {name.removeprefix("transformer."): array for name, array in tensors.items()}
    bare["h.0.attn.bias"] = np.ones((1, 1, 16, 16), bool)  # a mask
    params, others = (decoder_from_hf(config, each)[1] for each in (tensors, bare))
    assert jax.tree.all(jax.tree.map(np.array_equal, params, others))


def test_a_table_of_positions_ends_where_it_ends():
    config = config_of("gpt2")
    spec, params = decoder_from_hf(config, checkpoint_of(config))
    assert read(spec, params, np.zeros((1, 16), int)).shape == (1, 16, VOCAB)
    with pytest.raises(ValueError, match="17 consecutive positions do not fit a table"):
        read(spec, params, np.zeros((1, 17), int))


PUBLISHED = {
    "distilgpt2": {
        **{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 6},
        **{"_num_labels": 1, "n_ctx": 1024, "n_positions": 1024, "vocab_size": 50257},
        **{"activation_function": "gelu_new", "layer_norm_epsilon": 1e-05},
        **{"summary_activation": None, "summary_type": "cls_index"},
    },
    "mpt-7b": {
        **{"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32},
        **{"vocab_size": 50432, "max_seq_len": 2048, "expansion_ratio": 4},
        **{"learned_pos_emb": True, "norm_type": "low_precision_layernorm"},
        **{"logit_scale": None, "no_bias": True, "init_config": {"name": "kaiming"}},
        "attn_config": {
            **{"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch"},
            **{"attn_type": "multihead_attention", "attn_pdrop": 0, "clip_qkv": None},
            **{"prefix_lm": False, "qk_ln": False, "softmax_scale": None},
            **{"attn_uses_sequence_id": False, "torch_dtype": None},
        },
    },
    "falcon-7b": {
        **{"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71},
        **{"num_hidden_layers": 32, "vocab_size": 65024, "alibi": False},
        **{"apply_residual_connection_post_layernorm": False, "bias": False},
        **{"multi_query": True, "new_decoder_architecture": False},
        **{"parallel_attn": True, "auto_map": {"AutoConfig": "falcon.Config"}},
    },
    "gemma-3-270m": {
        **{"model_type": "gemma3_text", "hidden_size": 640, "head_dim": 256},
        **{"num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 262144},
        **{"num_hidden_layers": 6, "intermediate_size": 2048, "sliding_window": 512},
        **{"_sliding_window_pattern": 6, "query_pre_attn_scalar": 256},
        **{"layer_types": 5 * ["sliding_attention"] + ["full_attention"]},
        **{"rope_local_base_freq": 10000.0, "rope_theta": 1e6, "rope_scaling": None},
        **{"attn_logit_softcapping": None, "use_bidirectional_attention": False},
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_configs_are_read_as_they_were_published(name):
    """Entries of training and of other code are passed over."""
    spec = spec_from_hf(PUBLISHED[name])
    widths = {"distilgpt2": 768, "mpt-7b": 4096, "falcon-7b": 4544}
    assert spec.dims.embed_dim == widths.get(name, 640)
    hidden = {"gemma-3-270m": 2048}.get(name, 4 * spec.dims.embed_dim)
    assert spec.settings.mlp_dim == hidden


def test_what_code_puts_where_a_config_says_nothing():
    """Gemma 2 caps unless it says null; scales of products that are not 1 / sqrt(H)."""
    config = config_of("gemma2", final_logit_softcapping=None)
    del config["attn_logit_softcapping"], config["query_pre_attn_scalar"]
    spec = spec_from_hf(config)
    assert spec.readout.cap is None
    assert dict(spec.pattern[0].encoding.parts)["cap"].cap == 50.0
    assert spec.settings.attention_scale == 1 / 16
    third = spec_from_hf(config_of("gemma3_text", query_pre_attn_scalar=6))
    assert third.settings.attention_scale is None  # the width of a head
    assert isinstance(third.pattern[0].encoding, Rotary)
    unscaled = spec_from_hf(config_of("gpt2", scale_attn_weights=False))
    assert unscaled.settings.attention_scale == 1.0
    mpt = spec_from_hf(config_of("mpt", attn_config={"softmax_scale": 0.3}))
    assert mpt.settings.attention_scale == 0.3
    assert mpt.pattern[0].encoding == ALiBi()


def test_encodings_and_masks_are_exchanged_at_test():
    """ReRoPE of a window that holds the row, and of one that no distance leaves."""
    config = config_of("mistral", sliding_window=None, num_hidden_layers=1)
    tensors = checkpoint_of(config)
    spec, params = decoder_from_hf(config, tensors)
    logits = lambda spec: read(spec, params)
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
        ("gpt_neox", {"num_key_value_heads": 1}, "num_key_value_heads=1: it is not"),
        ("gpt2", {"rope_theta": 1e4}, "rope_theta=10000.0: it is not known"),
        ("gpt2", {"hidden_size": 8}, "n_embd=12 contradicts hidden_size=8"),
        ("gpt2", {"n_positions": None}, "lacks 'max_position_embeddings'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "with False alone"),
        ("opt", {"do_layer_norm_before": False}, "with True alone"),
        ("opt", {"word_embed_proj_dim": 8}, "word_embed_proj_dim=8 is not hidden_size"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "False alone"),
        ("bloom", {"intermediate_size": 20}, "intermediate_size=20: it is not known"),
        ("mpt", {"attn_config": {"clip_qkv": 8.0}}, "attn_config: clip_qkv=8.0"),
        ("mpt", {"attn_config": {"alibi": False}}, "alibi=False is known with True"),
        ("mpt", {"no_bias": False}, "no_bias=False"),
        ("falcon", {"new_decoder_architecture": True}, "known here with False alone"),
        ("falcon", {"alibi": True}, "alibi=True"),
        ("olmo", {"clip_qkv": 8.0}, "clip_qkv=8.0"),
        ("phi3", {"rope_scaling": {"type": "yarn", "short_factor": [1]}}, "'yarn'"),
        ("gemma2", {"sliding_window": None}, "lacks 'sliding_window'"),
        ("gemma2", {"hidden_act": "relu"}, "hidden_act='relu' contradicts"),
        ("gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping must be"),
        ("gemma2", {"layer_types": ["full_attention"]}, "about the number of layers"),
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
def test_what_the_code_of_a_type_does_not_know_is_refused(model_type, change, message):
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
