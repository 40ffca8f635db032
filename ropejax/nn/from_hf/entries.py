"""Which entries of a Hugging Face config are read, and which are known to say nothing.

What is not known is refused by name.
"""

import difflib
from types import MappingProxyType
from typing import Any

from ropejax.encodings.hf_config import is_rope_key
from ropejax.encodings.hf_values import Config
from ropejax.nn.from_hf.model_type import ModelType

_NO_SAY = (
    *("architectures", "_name_or_path", "_commit_hash", "transformers_version"),
    *("torch_dtype", "dtype", "use_cache", "initializer_range", "pretraining_tp"),
    *("hidden_dropout", "classifier_dropout", "dropout", "activation_dropout"),
    *("attention_dropout", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "emb_pdrop", "layerdrop", "init_std"),
    *("unk_token_id", "sep_token_id", "mask_token_id", "decoder_start_token_id"),
    *("attn_implementation", "_attn_implementation", "torchscript", "return_dict"),
    *("_attn_implementation_autoset", "_attn_implementation_internal"),
    *("output_attentions", "output_hidden_states", "id2label", "label2id"),
    *("chunk_size_feed_forward", "tie_encoder_decoder", "pruned_heads", "is_decoder"),
    *("use_bfloat16", "tf_legacy_loss", "gradient_checkpointing", "max_window_layers"),
    *("max_sequence_length", "is_llama_config", "transformers.js_config", "auto_map"),
    *("cache_implementation", "num_labels", "_num_labels"),
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

_NO_SAY_OF = MappingProxyType(
    {
        "gpt2": (
            *("n_ctx", "summary_type", "summary_use_proj", "summary_activation"),
            *("summary_first_dropout", "summary_proj_to_labels"),
            *("reorder_and_upcast_attn", "n_special", "predict_special_tokens"),
        ),
        "opt": ("output_projection",),
        "bloom": (
            *("seq_length", "offset_alibi", "n_inner"),
            *("slow_but_exact", "bias_dropout_fusion"),
            *("masked_softmax_fusion", "attention_softmax_in_fp32", "skip_bias_add"),
        ),
        # Positions are never learned, whatever `learned_pos_emb` says.
        "mpt": (
            *("init_config", "init_device", "verbose", "embedding_fraction"),
            *("learned_pos_emb", "tokenizer_name", "norm_type"),
        ),
        "gemma3_text": ("_sliding_window_pattern",),  # beside `layer_types`
        "phi3": ("full_attn_mod", "interpolate_factor"),
        # One key/value head, whatever these say.
        "falcon": ("num_kv_heads", "n_head_kv"),
    }
)
"""The same, of one type."""

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


def usual_names(config: Config, model: ModelType) -> dict[str, Any]:
    """Returns a config with its entries under their usual names.

    Args:
        config: of a checkpoint.
        model: what its type of model does.

    Raises:
        ValueError: if two entries that are one contradict each other.
    """
    found = dict(config)
    for name, usual in model.renamed.items():
        value = found.pop(name, None)
        if value is None:
            continue
        if found.get(usual) not in (None, value):
            raise ValueError(
                f"{name}={value!r} contradicts {usual}={found[usual]!r}, which is the "
                "same entry; drop one."
            )
        found[usual] = value
    return found


def says_nothing(key: str, value: Any, name: str = "") -> bool:
    """Returns True if an entry is known to alter no logits where it is not read.

    Args:
        key: the entry.
        value: what it says; null is as if it were left out.
        name: the type of model; "" for what is so of all.
    """
    silent = value is None or key in _NO_SAY or key in _NO_SAY_OF.get(name, ())
    return silent or (key in _OFF and value == _OFF[key])


def check_entries(config: Config, name: str, model: ModelType) -> None:
    """Raises ValueError for an entry that is not known to be read or without effect.

    Args:
        config: of a checkpoint, with usual names.
        name: its type of model.
        model: what this does.
    """
    if config.get("quantization_config") is not None:
        raise ValueError(
            "the config has a quantization_config: quantized weights are not read; "
            "load the original ones, or call model.dequantize() and save the model."
        )
    read = model.read
    for key, value in config.items():
        if key in read or says_nothing(key, value, name):
            continue
        if is_rope_key(key) and model.positions == "rope":
            continue
        if key in model.fixed:
            if value != model.fixed[key] or isinstance(value, bool) != isinstance(
                model.fixed[key], bool
            ):
                raise ValueError(
                    f"{key}={value!r}: models of type {name!r} are known here with "
                    f"{model.fixed[key]!r} alone, which makes other layers; use "
                    "another checkpoint."
                )
            continue
        near = difflib.get_close_matches(str(key), read, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{key}={value!r}: it is not known what this changes in a model of type "
            f"{name!r}; drop it from the config if it alters no logits.{hint}"
        )
