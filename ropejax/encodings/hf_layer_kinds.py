"""What kind each layer of a Hugging Face model is of, as its config or code says.

What is said here was read in transformers 5.24, in `__post_init__` of its configs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ropejax.encodings.hf_defaults import fills_kinds
from ropejax.encodings.hf_values import (
    Config,
    read_count,
    read_name,
    read_names,
    read_numbers,
)

_OLD_KINDS = {
    "attention": "full_attention",
    "mamba": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}


class _Pattern(NamedTuple):
    """One layer of full attention in each `period` layers, `place` of them.

    The period may be told by an entry of the config; a place of -1 is the last one.
    """

    period: int
    entry: str | None = None
    place: int = -1
    others: str = "sliding_attention"

    def kinds(self, config: Config, number: int) -> tuple[str, ...]:
        period = read_count(config, self.entry) if self.entry else None
        period = period or self.period
        place = self.place % period
        return tuple(
            "full_attention" if index % period == place else self.others
            for index in range(number)
        )


_SLIDING_1 = _Pattern(1, "prefix_dense_sliding_window_pattern")
_SLIDING_6 = _Pattern(6, "sliding_window_pattern")
_SLIDING_4 = _Pattern(4, "sliding_window_pattern")
_MODERN = _Pattern(3, "global_attn_every_n_layers", place=0)
_LINEAR = _Pattern(4, "full_attention_interval", others="linear_attention")
_PATTERNS = {
    "afmoe": _Pattern(4, "global_attn_every_n_layers"),
    "cohere2": _SLIDING_4,
    "exaone4": _SLIDING_4,
    "exaone4_5_text": _SLIDING_4,
    "exaone_moe": _SLIDING_4,
    "gemma2": _Pattern(2),
    "gemma3_text": _SLIDING_6,
    "gemma3n_text": _Pattern(5),
    "kolibri1": _Pattern(5),
    "minimax": _Pattern(2, place=0, others="linear_attention"),
    "modernbert": _MODERN,
    "modernbert-decoder": _MODERN,
    "olmo3": _Pattern(4),
    "qwen3_5_moe_text": _LINEAR,
    "qwen3_5_text": _LINEAR,
    "qwen3_next": _LINEAR,
    "t5gemma2_decoder": _SLIDING_6,
    "t5gemma2_text": _SLIDING_6,
}
"""Kinds of layers of models whose config leaves `layer_types` out."""

_NUMBERED = {
    "bamba": ("attn_layer_indices", "full_attention", "linear_attention", ()),
    "lfm2": ("full_attn_idxs", "full_attention", "conv", None),
    "mllama_text_model": (
        *("cross_attention_layers", "cross_attention", "full_attention"),
        (3, 8, 13, 18, 23, 28, 33, 38),
    ),
}
"""Entries with the numbers of layers of one kind, what the others are, and what the
numbers are (None: all) where they are left out.
"""

_GRIFFIN = ("recurrent", "recurrent", "attention")

_OWN_PATTERN = (
    *("bailing_hybrid", "flint", "granitemoehybrid", "lara_mini", "lfm2_moe", "lfm3"),
    *("olmo_hybrid", "qwen4_exp_text", "recurrent_gemma", "zamba2", *_NUMBERED),
)
"""Model types with layers that have no RoPE, in an order not known here."""


def stated_kinds(config: Config) -> tuple[str, ...] | None:
    """Returns the kinds of all layers in order, from a list or as the model's code has.

    None if neither says them.

    Raises:
        ValueError: if a list has other than names, or numbers, or a period is no
            positive number.
    """
    for name in ("layer_types", "layers_block_type"):
        if given := read_names(config, name):
            return tuple(map(usual_kind, given))
    model_type = read_name(config, "model_type")
    number = read_count(config, "num_hidden_layers")
    if number is None:
        return None
    if model_type in _NUMBERED:
        entry, kind, others, numbered = _NUMBERED[model_type]
        if config.get(entry):
            numbered = read_numbers(config, entry, whole=True)
            if max(numbered) >= number:
                raise ValueError(
                    f"{entry}={list(numbered)} numbers layers from 0, of which there "
                    f"are {number} by num_hidden_layers; drop those beyond."
                )
        numbered = range(number) if numbered is None else numbered
        return tuple(kind if index in numbered else others for index in range(number))
    if model_type == "recurrent_gemma":
        cycle = read_names(config, "block_types") or _GRIFFIN
        return tuple(usual_kind(cycle[index % len(cycle)]) for index in range(number))
    if model_type == "cohere2_moe":
        first = dense_prefix(config)
        prefix = _SLIDING_1.kinds(config, first)
        return prefix + _SLIDING_4.kinds(config, number - first)
    pattern = _PATTERNS.get(model_type)
    return None if pattern is None else pattern.kinds(config, number)


def dense_prefix(config: Config) -> int:
    """Returns how many first layers have no experts, where a number says so."""
    return read_count(config, "first_k_dense_replace", zero=True) or 0


def needs_kinds(config: Config) -> bool:
    """Returns True if the code of a model has kinds of layers that differ in RoPE."""
    return read_name(config, "model_type") in (*_OWN_PATTERN, *_PATTERNS)


def null_kinds(config: Config) -> tuple[str, ...]:
    """Returns the kinds of layers that the settings name, with null for no RoPE."""
    if fills_kinds(config):
        return ()
    places = (config.get(name) for name in ("rope_parameters", "rope_scaling"))
    return tuple(
        usual_kind(key)
        for place in places
        if isinstance(place, Mapping)
        for key, settings in place.items()
        if settings is None and str(key).endswith("attention")
    )


def usual_kind(layer_type: Any) -> Any:
    """Returns a kind of layers by its present name."""
    named = isinstance(layer_type, str)
    return _OLD_KINDS.get(layer_type, layer_type) if named else layer_type
