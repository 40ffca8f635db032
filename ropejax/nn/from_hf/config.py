"""From the config of a Hugging Face checkpoint to how its model is made here."""

import difflib
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from ropejax.encodings import Dims, encodings_from_hf
from ropejax.encodings.choices import check_choice
from ropejax.encodings.hf_config import is_rope_key
from ropejax.encodings.hf_values import (
    Config,
    need,
    need_count,
    read_count,
    read_flag,
    read_name,
    read_number,
)
from ropejax.nn.block import BlockSettings
from ropejax.nn.from_hf.models import MODELS, ModelType, model_type_of
from ropejax.nn.from_hf.windows import masks_of
from ropejax.nn.mlp import MLP, GatedMLP
from ropejax.nn.norms import LayerNorm, RMSNorm
from ropejax.nn.query_key_norm import HeadRMSNorm, Unnormalized
from ropejax.nn.readout import LinearReadout, TiedReadout
from ropejax.nn.transformer import LayerKind, TransformerSpec


def exact_gelu(x: jax.Array) -> jax.Array:
    """Returns `x Phi(x)`, Phi the normal distribution, which `jax.nn.gelu` does not."""
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS = MappingProxyType(
    {
        "silu": jax.nn.silu,
        "swish": jax.nn.silu,
        "relu": jax.nn.relu,
        "gelu": exact_gelu,
        "gelu_new": jax.nn.gelu,
        "gelu_pytorch_tanh": jax.nn.gelu,
    }
)
"""Names in configs -> functions."""

_READ = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "hidden_act"),
    *("num_hidden_layers", "num_attention_heads", "tie_word_embeddings"),
    "max_position_embeddings",
)
_OF_FAMILY = MappingProxyType(
    {
        "llama": ("num_key_value_heads", "head_dim", "rms_norm_eps"),
        "neox": ("layer_norm_eps", "use_parallel_residual"),
    }
)
"""Entries that are read of models with such layers."""

_NO_SAY = (
    *("architectures", "_name_or_path", "_commit_hash", "transformers_version"),
    *("torch_dtype", "dtype", "use_cache", "initializer_range", "pretraining_tp"),
    *("hidden_dropout", "classifier_dropout"),
    *("attention_dropout", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("unk_token_id", "sep_token_id", "mask_token_id", "decoder_start_token_id"),
    *("attn_implementation", "_attn_implementation", "torchscript", "return_dict"),
    *("_attn_implementation_autoset", "_attn_implementation_internal"),
    *("output_attentions", "output_hidden_states", "id2label", "label2id"),
    *("chunk_size_feed_forward", "tie_encoder_decoder", "pruned_heads", "is_decoder"),
    *("use_bfloat16", "tf_legacy_loss", "gradient_checkpointing", "max_window_layers"),
    *("max_sequence_length", "is_llama_config", "transformers.js_config"),
    # How text is drawn, in configs written by earlier versions of transformers.
    *("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "top_k"),
    *("num_beam_groups", "diversity_penalty", "temperature", "top_p", "typical_p"),
    *("repetition_penalty", "length_penalty", "no_repeat_ngram_size", "bad_words_ids"),
    *("encoder_no_repeat_ngram_size", "num_return_sequences", "output_scores"),
    *("return_dict_in_generate", "remove_invalid_values", "forced_bos_token_id"),
    *("forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "prefix"),
    *("exponential_decay_length_penalty", "task_specific_params", "problem_type"),
)
"""Entries that do not alter logits: of training, of drawing text, of PyTorch."""

_OFF = MappingProxyType(
    {
        "is_encoder_decoder": False,
        "add_cross_attention": False,
        "use_bidirectional_attention": False,
        "use_mrope": False,
        "use_sliding_window": False,
        "attention_bias": False,
        "mlp_bias": False,
    }
)
"""Entries that, of models that do not read them, say nothing at this value alone."""


def spec_from_hf(config: Config, *, dtype: Any = "float32") -> TransformerSpec:
    """Returns how the model of a Hugging Face config is made here.

    Llama, Mistral, Qwen2, Qwen3, SmolLM3, Gemma (the first) and GPT-NeoX (Pythia) are
    known, by their `model_type`. Layers have the encodings of
    `ropejax.encodings.encodings_from_hf`, and windows where the model has them; there
    is no dropout.

    Args:
        config: the whole config as a dict: the JSON file, or `to_dict()` of the object.
        dtype: dtype of the computation; norms, softmax and readout stay float32.

    Raises:
        ValueError: for a type of model, an entry or a value that is not known, one that
            is missing, or sizes that do not fit each other.

    References:
        Touvron et al. 2023 (Llama), arXiv 2302.13971; Jiang et al. 2023 (Mistral),
        2310.06825; Yang et al. 2024 (Qwen2), 2407.10671, and 2025 (Qwen3), 2505.09388;
        Gemma Team 2024, 2403.08295; Black et al. 2022 (GPT-NeoX), 2204.06745, and
        Biderman et al. 2023 (Pythia), 2304.01373; and their configs in transformers 5.
    """
    name = model_type_of(config)
    model = MODELS[name]
    encodings = encodings_from_hf(config)  # and keys that resemble those of RoPE
    _check_keys(config, name, model)
    heads, width = (
        need_count(config, key) for key in ("num_attention_heads", "hidden_size")
    )
    neox = model.family == "neox"
    biased = read_flag(config, "attention_bias", neox)
    stated = lambda bias: biased if bias == "stated" else bias
    tied = read_flag(config, "tie_word_embeddings", model.tied)
    symbols = need_count(config, "vocab_size")
    dims = Dims(
        num_heads=heads,
        num_kv_heads=_kv_heads(config, model, heads),
        head_dim=_head_dim(config, model, heads, width),
        embed_dim=width,
        num_layers=need_count(config, "num_hidden_layers"),
        causal=True,
    )
    settings = BlockSettings(
        mlp_dim=need_count(config, "intermediate_size"),
        activation=_activation(config, name, model),
        pre_norm=True,
        dropout=0.0,
        dtype=jnp.dtype(dtype),
        qkv_bias=stated(model.qkv_bias),
        out_bias=stated(model.out_bias),
        **(_neox_parts(config) if neox else _llama_parts(config, model)),
    )
    masks = masks_of(config, model, dims.num_layers)
    return TransformerSpec(
        num_symbols=symbols,
        num_outputs=symbols,
        dims=dims,
        settings=settings,
        pattern=_shortest(tuple(map(LayerKind, encodings, masks))),
        readout=TiedReadout() if tied else LinearReadout(bias=False),
        embedding_scale=None if model.scaled else 1.0,
    )


def _llama_parts(config: Config, model: ModelType) -> dict[str, Any]:
    """Norms and MLP of layers like Llama's."""
    epsilon = read_number(config, "rms_norm_eps") or 1e-6
    return {
        "norm": RMSNorm(epsilon),
        "qk_norm": HeadRMSNorm(epsilon) if model.qk_norm else Unnormalized(),
        "mlp": GatedMLP(bias=read_flag(config, "mlp_bias", False)),
    }


def _neox_parts(config: Config) -> dict[str, Any]:
    """Norms and MLP of layers like those of GPT-NeoX, and that they are parallel."""
    return {
        "norm": LayerNorm(read_number(config, "layer_norm_eps") or 1e-5),
        "mlp": MLP(bias=True),
        "parallel": read_flag(config, "use_parallel_residual", True),
    }


def _check_keys(config: Config, name: str, model: ModelType) -> None:
    """Raises ValueError for an entry that is not known to be read or without effect."""
    if config.get("quantization_config") is not None:
        raise ValueError(
            "the config has a quantization_config: quantized weights are not read; "
            "load the original ones, or call model.dequantize() and save the model."
        )
    read = (*_READ, *_OF_FAMILY[model.family], *model.keys)
    for key, value in config.items():
        if value is None or key in (*read, *_NO_SAY) or is_rope_key(key):
            continue
        if key in _OFF and value == _OFF[key]:
            continue
        near = difflib.get_close_matches(str(key), read, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{key}={value!r}: it is not known what this changes in a model of type "
            f"{name!r}; drop it from the config if it alters no logits.{hint}"
        )


def _kv_heads(config: Config, model: ModelType, heads: int) -> int:
    key = "num_key_value_heads"
    if model.states_kv_heads and key not in config:
        need(config, key)
    return read_count(config, key) or heads


def _head_dim(config: Config, model: ModelType, heads: int, width: int) -> int:
    if model.states_width:
        return need_count(config, "head_dim")
    given = read_count(config, "head_dim")
    if given is None and width % heads:
        raise ValueError(
            f"num_attention_heads={heads} does not divide hidden_size={width}, and the "
            "config lacks 'head_dim'; add it."
        )
    return given or width // heads


def _activation(config: Config, name: str, model: ModelType):
    """The MLP's activation; Gemma's "gelu" is the approximated one in its own code."""
    given = read_name(config, "hidden_act")
    if name == "gemma":
        given = read_name(config, "hidden_activation") or given
        given = None if given == "gelu" else given
    given = given or model.activation
    check_choice("hidden_act", given, ACTIVATIONS)
    return ACTIVATIONS[given]


def _shortest(kinds: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """The shortest pattern that, repeated, gives these layers."""
    number = len(kinds)
    for period in range(1, number + 1):
        if number % period == 0 and kinds == kinds[:period] * (number // period):
            return kinds[:period]
    return kinds
