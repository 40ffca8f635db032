"""Small configs of Hugging Face, and random arrays under the names of checkpoints.

Letters of shapes: V symbols, D the model's width, F the MLP's, Q of all queries, K of
all keys, H of a head, T of queries, keys and values, G of gate and MLP, P positions, O
positions and two rows of padding.
"""

import numpy as np

VOCAB, LENGTH = 13, 9
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "torch_dtype": "bfloat16",
}
GROUPED = {**COMMON, "num_key_value_heads": 2, "rope_theta": 100.0}
RMS = {**GROUPED, "rms_norm_eps": 1e-5}
OF_GPT_2 = {
    "vocab_size": VOCAB,
    "n_embd": 12,
    "n_head": 3,
    "n_layer": 2,
    "layer_norm_epsilon": 1e-4,
}
GEMMA = {"head_dim": 6, "sliding_window": 3, "query_pre_attn_scalar": 5}
CONFIGS = {
    "llama": {
        **RMS,
        **{"attention_bias": True, "mlp_bias": True, "hidden_act": "silu"},
        **{"tie_word_embeddings": False, "num_key_value_heads": 1},
    },
    "mistral": {**RMS, "sliding_window": 3, "head_dim": 6},
    "qwen2": {
        **RMS,
        **{"tie_word_embeddings": True, "use_sliding_window": True},
        **{"sliding_window": 4, "max_window_layers": 1},
    },
    "qwen3": {
        **RMS,
        **{"head_dim": 6, "use_sliding_window": False, "sliding_window": 4},
    },
    "smollm3": {**RMS, "num_hidden_layers": 4, "hidden_size": 8},
    "granite": {
        **{**RMS, "attention_bias": True, "mlp_bias": False},
        **{"embedding_multiplier": 2.0, "attention_multiplier": 0.3},
        **{"residual_multiplier": 0.22, "logits_scaling": 0.5},
    },
    "gemma": {**RMS, "head_dim": 6, "hidden_act": "gelu", "hidden_activation": None},
    "gemma2": {
        **{**RMS, **GEMMA, "attn_logit_softcapping": 2.0},
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": {
        **{**RMS, **GEMMA, "rope_local_base_freq": 10.0, "sliding_window_pattern": 2},
        "final_logit_softcapping": None,
    },
    "olmo": {**GROUPED, "clip_qkv": None},
    "olmo2": RMS,
    "olmo3": {
        **{**RMS, "sliding_window": 3},
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "phi3": {
        **{**RMS, "sliding_window": 6, "original_max_position_embeddings": 4},
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.5],
            "long_factor": [2.0, 3.5],
        },
    },
    "stablelm": {
        **{**GROUPED, "num_attention_heads": 2, "num_key_value_heads": 1},
        **{"layer_norm_eps": 1e-4, "use_qkv_bias": True},
    },
    "gpt_neox": {
        **{**COMMON, "num_attention_heads": 2, "rotary_pct": 0.5},
        **{"rotary_emb_base": 100, "layer_norm_eps": 1e-4, "hidden_act": "gelu"},
        "use_parallel_residual": True,
    },
    "phi": {**GROUPED, "layer_norm_eps": 1e-4, "partial_rotary_factor": 0.5},
    "gpt2": {**OF_GPT_2, "n_positions": 16, "n_ctx": 16, "n_inner": None},
    "opt": {
        **{key: COMMON[key] for key in COMMON if key != "intermediate_size"},
        **{"ffn_dim": 20, "word_embed_proj_dim": 16, "do_layer_norm_before": True},
    },
    "bloom": {
        **{"vocab_size": VOCAB, "n_embed": 12, "num_attention_heads": 3},
        **{"n_layer": 2, "layer_norm_epsilon": 1e-4, "n_inner": None},
    },
    "mpt": {
        **{"vocab_size": VOCAB, "d_model": 12, "n_heads": 3, "n_layers": 2},
        **{"layer_norm_epsilon": 1e-4, "no_bias": True, "expansion_ratio": 4},
        "attn_config": {"alibi": True, "alibi_bias_max": 6, "clip_qkv": None},
    },
    "falcon": {
        **{"vocab_size": VOCAB, "hidden_size": 12, "num_attention_heads": 3},
        **{"num_hidden_layers": 2, "layer_norm_epsilon": 1e-4, "multi_query": True},
        "rope_theta": 100.0,
    },
}
"""A config of every type that is known."""

_LLAMA = {
    "model.embed_tokens.weight": "VD",
    "model.norm.weight": "D",
    "lm_head.weight": "VD",
    "model.layers.*.self_attn.q_proj.weight": "QD",
    "model.layers.*.self_attn.k_proj.weight": "KD",
    "model.layers.*.self_attn.v_proj.weight": "KD",
    "model.layers.*.self_attn.o_proj.weight": "DQ",
    "model.layers.*.mlp.gate_proj.weight": "FD",
    "model.layers.*.mlp.up_proj.weight": "FD",
    "model.layers.*.mlp.down_proj.weight": "DF",
}


def _norms(*names, bias=False):
    shapes = {f"model.layers.*.{name}.weight": "D" for name in names}
    return shapes | {f"model.layers.*.{name}.bias": "D" for name in names if bias}


def _biases(shapes):
    """Biases of all but embeddings and readout."""
    return shapes | {
        name.replace(".weight", ".bias"): letters[0]
        for name, letters in shapes.items()
        if not name.startswith(("lm_head", "embed_out"))
        and not any(part in name for part in ("embed", "wte", "wpe"))
    }


_PRE = _LLAMA | _norms("input_layernorm", "post_attention_layernorm")
_OUT = _norms("post_attention_layernorm", "post_feedforward_layernorm")
_GEMMA_2 = _LLAMA | _norms("input_layernorm", "pre_feedforward_layernorm") | _OUT
_OLMO_2 = (
    _LLAMA
    | _OUT
    | {
        "model.layers.*.self_attn.q_norm.weight": "Q",
        "model.layers.*.self_attn.k_norm.weight": "K",
    }
)
_HEADS = {f"model.layers.*.self_attn.{one}_norm.weight": "H" for one in "qk"}
_QKV_BIASES = {
    "model.layers.*.self_attn.q_proj.bias": "Q",
    "model.layers.*.self_attn.k_proj.bias": "K",
    "model.layers.*.self_attn.v_proj.bias": "K",
}
_NEOX = {
    "gpt_neox.layers.*.input_layernorm.weight": "D",
    "gpt_neox.layers.*.post_attention_layernorm.weight": "D",
    "gpt_neox.layers.*.attention.query_key_value.weight": "TD",
    "gpt_neox.layers.*.attention.dense.weight": "DQ",
    "gpt_neox.layers.*.mlp.dense_h_to_4h.weight": "FD",
    "gpt_neox.layers.*.mlp.dense_4h_to_h.weight": "DF",
}
_FALCON = {
    "transformer.word_embeddings.weight": "VD",
    "transformer.ln_f.weight": "D",
    "transformer.ln_f.bias": "D",
    "transformer.h.*.input_layernorm.weight": "D",
    "transformer.h.*.input_layernorm.bias": "D",
    "transformer.h.*.self_attention.query_key_value.weight": "TD",
    "transformer.h.*.self_attention.dense.weight": "DQ",
    "transformer.h.*.mlp.dense_h_to_4h.weight": "FD",
    "transformer.h.*.mlp.dense_4h_to_h.weight": "DF",
}
_SHAPES = {
    "qwen2": _PRE | _QKV_BIASES,
    "qwen3": _PRE | _HEADS,
    "gemma2": _GEMMA_2,
    "gemma3_text": _GEMMA_2 | _HEADS,
    "olmo": {name: shape for name, shape in _LLAMA.items() if "norm" not in name},
    "olmo2": _OLMO_2,
    "olmo3": _OLMO_2,
    "phi3": {
        **{name: shape for name, shape in _PRE.items() if "_proj" not in name},
        "model.layers.*.self_attn.qkv_proj.weight": "TD",
        "model.layers.*.self_attn.o_proj.weight": "DQ",
        "model.layers.*.mlp.gate_up_proj.weight": "GD",
        "model.layers.*.mlp.down_proj.weight": "DF",
    },
    "stablelm": {
        **{**_LLAMA, **_QKV_BIASES, "model.norm.bias": "D"},
        **_norms("input_layernorm", "post_attention_layernorm", bias=True),
    },
    "gpt_neox": {
        **{"gpt_neox.embed_in.weight": "VD", "embed_out.weight": "VD"},
        **_biases({**_NEOX, "gpt_neox.final_layer_norm.weight": "D"}),
    },
    "phi": {
        **{"model.embed_tokens.weight": "VD", "lm_head.weight": "VD"},
        **{"lm_head.bias": "V"},
        **_biases(
            {
                "model.final_layernorm.weight": "D",
                "model.layers.*.input_layernorm.weight": "D",
                "model.layers.*.self_attn.q_proj.weight": "QD",
                "model.layers.*.self_attn.k_proj.weight": "KD",
                "model.layers.*.self_attn.v_proj.weight": "KD",
                "model.layers.*.self_attn.dense.weight": "DQ",
                "model.layers.*.mlp.fc1.weight": "FD",
                "model.layers.*.mlp.fc2.weight": "DF",
            }
        ),
    },
    "gpt2": {
        "transformer.wte.weight": "VD",
        "transformer.wpe.weight": "PD",
        "transformer.ln_f.weight": "D",
        "transformer.ln_f.bias": "D",
        "transformer.h.*.ln_1.weight": "D",
        "transformer.h.*.ln_1.bias": "D",
        "transformer.h.*.ln_2.weight": "D",
        "transformer.h.*.ln_2.bias": "D",
        "transformer.h.*.attn.c_attn.weight": "DT",
        "transformer.h.*.attn.c_attn.bias": "T",
        "transformer.h.*.attn.c_proj.weight": "QD",
        "transformer.h.*.attn.c_proj.bias": "D",
        "transformer.h.*.mlp.c_fc.weight": "DF",
        "transformer.h.*.mlp.c_fc.bias": "F",
        "transformer.h.*.mlp.c_proj.weight": "FD",
        "transformer.h.*.mlp.c_proj.bias": "D",
    },
    "opt": {
        "model.decoder.embed_tokens.weight": "VD",
        "model.decoder.embed_positions.weight": "OD",
        **_biases(
            {
                "model.decoder.final_layer_norm.weight": "D",
                "model.decoder.layers.*.self_attn_layer_norm.weight": "D",
                "model.decoder.layers.*.final_layer_norm.weight": "D",
                "model.decoder.layers.*.self_attn.q_proj.weight": "QD",
                "model.decoder.layers.*.self_attn.k_proj.weight": "KD",
                "model.decoder.layers.*.self_attn.v_proj.weight": "KD",
                "model.decoder.layers.*.self_attn.out_proj.weight": "DQ",
                "model.decoder.layers.*.fc1.weight": "FD",
                "model.decoder.layers.*.fc2.weight": "DF",
            }
        ),
    },
    "bloom": {
        "transformer.word_embeddings.weight": "VD",
        "transformer.word_embeddings_layernorm.weight": "D",
        "transformer.word_embeddings_layernorm.bias": "D",
        **_biases(
            {name: each for name, each in _FALCON.items() if name.endswith("weight")}
            | {"transformer.h.*.post_attention_layernorm.weight": "D"}
        ),
    },
    "mpt": {
        "transformer.wte.weight": "VD",
        "transformer.norm_f.weight": "D",
        "transformer.blocks.*.norm_1.weight": "D",
        "transformer.blocks.*.norm_2.weight": "D",
        "transformer.blocks.*.attn.Wqkv.weight": "TD",
        "transformer.blocks.*.attn.out_proj.weight": "DQ",
        "transformer.blocks.*.ffn.up_proj.weight": "FD",
        "transformer.blocks.*.ffn.down_proj.weight": "DF",
    },
    "falcon": _FALCON,
}
_TIED = ("gemma", "gemma2", "gemma3_text", "smollm3")


def config_of(model_type, **changes):
    return {"model_type": model_type, **CONFIGS[model_type], **changes}


def size_of(config, *names, default=None):
    """The first of these entries that a config has."""
    return next((config[name] for name in names if config.get(name)), default)


def sizes_of(config):
    """The letters of shapes."""
    width = size_of(config, "hidden_size", "n_embd", "n_embed", "d_model")
    heads = size_of(config, "num_attention_heads", "n_head", "n_heads")
    head = config.get("head_dim", width // heads)
    groups = config.get("num_key_value_heads", heads)
    groups = 1 if config.get("multi_query") else groups
    hidden = size_of(config, "intermediate_size", "ffn_dim", "n_inner") or 4 * width
    positions = size_of(config, "n_positions", "max_position_embeddings", default=0)
    queries, keys = heads * head, groups * head
    return {
        **{"V": config["vocab_size"], "D": width, "F": hidden, "G": 2 * hidden},
        **{"Q": queries, "K": keys, "T": queries + 2 * keys, "H": head},
        **{"P": positions, "O": positions + 2},
    }


def checkpoint_of(config, seed=0):
    """Random arrays under the names of a checkpoint; no gain is one, no bias zero."""
    rng = np.random.default_rng(seed)
    kind, sizes = config["model_type"], sizes_of(config)
    shapes = dict(_SHAPES.get(kind, _PRE))
    if kind == "gpt_neox" and config.get("attention_bias") is False:
        for name in ("query_key_value", "dense"):
            del shapes[f"gpt_neox.layers.*.attention.{name}.bias"]
    elif config.get("attention_bias"):
        shapes |= _QKV_BIASES | {"model.layers.*.self_attn.o_proj.bias": "D"}
    if config.get("mlp_bias"):
        for name, letter in {
            "gate_proj": "F",
            "up_proj": "F",
            "down_proj": "D",
        }.items():
            shapes[f"model.layers.*.mlp.{name}.bias"] = letter
    if config.get("tie_word_embeddings", kind in _TIED):
        del shapes["lm_head.weight"]
    number = size_of(config, "num_hidden_layers", "n_layer", "n_layers")
    # Of normalized queries and keys, gains alone make weights differ.
    size = lambda name: (
        2.5 if name.endswith(("q_norm.weight", "k_norm.weight")) else 0.4
    )
    return {
        name.replace("*", str(at)): (
            rng.normal(size=[sizes[letter] for letter in letters]) * size(name)
        ).astype(np.float32)
        for name, letters in shapes.items()
        for at in (range(number) if "*" in name else [0])
    }
