"""Reading RoPE settings from the config of a Hugging Face model.

Configs come in two forms, `rope_scaling` beside `rope_theta` (transformers 4) and
`rope_parameters` (transformers 5), and in a third for models whose layers differ. What
is not known here is refused: a type or a key read as "default" would load without an
error and compute something else.
"""

from collections.abc import Mapping
from typing import Any

from ropejax.encodings.axial import MRoPE
from ropejax.encodings.choices import check_choice
from ropejax.encodings.frequency_map import Chain, FrequencyMap
from ropejax.encodings.interpolation import (
    HighestFrequencies,
    Llama3Scaling,
    PositionInterpolation,
)
from ropejax.encodings.length_scaling import DynamicNTK, LongRoPEScaling
from ropejax.encodings.rotary import Rotary, RotaryAttention
from ropejax.encodings.rotation import Layout
from ropejax.encodings.yarn_map import YaRNScaling

_ANY_TYPE = (
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "mrope_section",
    "mrope_interleaved",
)

_KEYS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", "original_max_position_embeddings"),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "longrope": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "short_factor",
        "long_factor",
    ),
    "llama3": (
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
    ),
    "proportional": ("factor",),
}
"""The keys that each type of RoPE may have."""

_OLD_NAMES = {"su": "longrope", "mrope": "default"}

_INTERLEAVED = ("gptj", "codegen", "cohere", "cohere2", "glm", "glm4")
"""Model types whose code pairs neighbouring channels."""


def rotary_from_hf(
    config: Mapping[str, Any],
    *,
    layer_type: str | None = None,
    layout: Layout | None = None,
) -> RotaryAttention:
    """Returns the rotary encoding that a Hugging Face config describes.

    Frequencies are rounded to float32, as in the programs that such models are trained
    with, except where they depend on the length.

    Args:
        config: the model's config as a dict, in the form of transformers 4 or 5.
        layer_type: which kind of layer ("full_attention", "sliding_attention"), for
            models whose layers differ; None for others.
        layout: how channels are paired; if None, "interleaved" for model types known to
            do so (GPT-J, CodeGen, Cohere, GLM), "half" for all others.

    Returns:
        A `Rotary`, or an `MRoPE` if the config has sections.

    Raises:
        ValueError: if the type or one of its keys is unknown or missing, or layers
        differ
            and no kind is named.

    References:
        transformers 5.24, `modeling_rope_utils`.
    """
    rope = _parameters(config, layer_type)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    kind = _OLD_NAMES.get(kind, kind)
    check_choice("rope_type", kind, _KEYS)
    for key in rope:
        check_choice(f"rope parameter of type {kind!r}", key, _ANY_TYPE + _KEYS[kind])
    if layout is None:
        layout = "interleaved" if config.get("model_type") in _INTERLEAVED else "half"
    fraction = _fraction(config, rope)
    frequencies = _MAPS[kind](config, rope, fraction)
    options = {
        "frequencies": frequencies,
        "max_wavelength": float(_theta(config, rope)),
        "layout": layout,
        "rotary_fraction": 1.0 if kind == "proportional" else fraction,
        "round_frequencies": not frequencies.length_dependent,
    }
    sections = rope.get("mrope_section")
    if sections is None:
        return Rotary(**options)
    interleaved = bool(rope.get("mrope_interleaved", False))
    return MRoPE(sections=tuple(sections), interleaved=interleaved, **options)


def head_width(config: Mapping[str, Any]) -> int:
    """Returns the width of a head that a config implies."""
    return config.get("head_dim") or _need(config, "hidden_size") // _need(
        config, "num_attention_heads"
    )


def _parameters(config: Mapping[str, Any], layer_type: str | None) -> dict[str, Any]:
    """The config's RoPE parameters in either form, those of one kind of layer."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    nested = {name: each for name, each in rope.items() if isinstance(each, Mapping)}
    if nested:
        check_choice("layer_type", layer_type or "", nested)
        rope = nested[layer_type]
    elif layer_type == "sliding_attention" and "rope_local_base_freq" in config:
        return {"rope_theta": config["rope_local_base_freq"]}
    return {key: value for key, value in rope.items() if value is not None}


def _theta(config: Mapping[str, Any], rope: Mapping[str, Any]) -> float:
    for place, name in ((rope, "rope_theta"), (config, "rope_theta")):
        if place.get(name) is not None:
            return place[name]
    return config.get("rotary_emb_base", 10_000.0)


def _fraction(config: Mapping[str, Any], rope: Mapping[str, Any]) -> float:
    for place, name in (
        (rope, "partial_rotary_factor"),
        (config, "partial_rotary_factor"),
        (config, "rotary_pct"),
    ):
        if place.get(name) is not None:
            return float(place[name])
    if config.get("rotary_dim") is not None:
        return config["rotary_dim"] / head_width(config)
    return 1.0


def _train_length(config: Mapping[str, Any], rope: Mapping[str, Any]) -> int:
    """Trained length; the config's own entry wins, as Phi-3 keeps it there."""
    name = "original_max_position_embeddings"
    length = config.get(name) or rope.get(name)
    return int(length or _need(config, "max_position_embeddings"))


def _factor(config: Mapping[str, Any], rope: Mapping[str, Any]) -> float:
    """Extension; where it is not stated, the extended length over the trained one."""
    if rope.get("factor") is not None:
        return float(rope["factor"])
    extended = _need(config, "max_position_embeddings")
    return extended / _train_length(config, rope)


def _need(config: Mapping[str, Any], name: str) -> Any:
    if config.get(name) is None:
        raise ValueError(f"the config lacks {name!r}.")
    return config[name]


def _default(config, rope, fraction) -> FrequencyMap:
    return FrequencyMap()


def _linear(config, rope, fraction) -> FrequencyMap:
    return PositionInterpolation(float(_need(rope, "factor")))


def _dynamic(config, rope, fraction) -> FrequencyMap:
    return DynamicNTK(float(_need(rope, "factor")), _train_length(config, rope))


def _yarn(config, rope, fraction) -> FrequencyMap:
    return YaRNScaling(
        scale=_factor(config, rope),
        train_length=_train_length(config, rope),
        beta_fast=float(rope.get("beta_fast") or 32.0),
        beta_slow=float(rope.get("beta_slow") or 1.0),
        truncate=bool(rope.get("truncate", True)),
        attention_factor=rope.get("attention_factor"),
        mscale=rope.get("mscale"),
        mscale_all_dim=rope.get("mscale_all_dim"),
    )


def _longrope(config, rope, fraction) -> FrequencyMap:
    return LongRoPEScaling(
        long_factors=tuple(_need(rope, "long_factor")),
        short_factors=tuple(_need(rope, "short_factor")),
        train_length=_train_length(config, rope),
        scale=_factor(config, rope),
        attention_factor=rope.get("attention_factor"),
    )


def _llama3(config, rope, fraction) -> FrequencyMap:
    return Llama3Scaling(
        scale=float(_need(rope, "factor")),
        train_length=_train_length(config, rope),
        low=float(_need(rope, "low_freq_factor")),
        high=float(_need(rope, "high_freq_factor")),
    )


def _proportional(config, rope, fraction) -> FrequencyMap:
    """Part of the pairs turns, with frequencies of the whole width."""
    fastest = HighestFrequencies(fraction)
    if rope.get("factor") in (None, 1, 1.0):
        return fastest
    return Chain((fastest, PositionInterpolation(float(rope["factor"]))))


_MAPS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
