"""Finding the RoPE settings in a Hugging Face config, wherever it keeps them.

A config may hold a text model's config inside, have its settings in the form of
transformers 4 or 5, and have others for each kind of layer. This module returns the
settings of one kind of layer as one dict, and refuses what would otherwise be passed
over: a misspelt key, two forms that disagree, a kind of layer that does not exist.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from ropejax.encodings.choices import check_choice
from ropejax.encodings.hf_defaults import (
    default_local_base,
    fills_kinds,
    with_default_bases,
)
from ropejax.encodings.hf_layer_kinds import null_kinds, usual_kind
from ropejax.encodings.hf_layers import LAYER_KEYS, kinds_of
from ropejax.encodings.hf_values import (
    Config,
    need,
    read_name,
    read_number,
    read_section,
)

_ROPE_KEYS = (
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rope_local_base_freq",
    "global_rope_theta",
    "local_rope_theta",
    "swa_rope_theta",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_emb_base",
    "rotary_emb_fraction",
    "rotary_emb_interleaved",
    "rotary_dim",
    "rope_interleave",
)
"""Keys beside others in a config that are about RoPE, and read."""

_NO_CHANGE = {"rotary": True, "rope_interleaved": False, "rotary_value": False}
"""Keys of released configs (GPT-J, SmolLM, RoFormer) whose value says nothing new."""

_OTHER_KEYS = ("qk_rope_head_dim", "original_max_position_embeddings", *LAYER_KEYS)
"""Keys that are read too, but concern more than RoPE."""

_ABOUT = {"rope", "rotary", "mrope"}
_QUANTITIES = {"theta", "base", "freq", "scaling", "factor", "parameters", "section"}

_TWO_KINDS = ("full_attention", "sliding_attention")

_BASES_BY_KIND = (
    *("rope_local_base_freq", "swa_rope_theta"),
    *("global_rope_theta", "local_rope_theta"),
)

_EXTENDED_IN_FULL = ("olmo3",)
"""Model types whose extension, stated once, is for layers of full attention only."""

_OLD_NAMES = {"su": "longrope", "mrope": "default"}


def is_rope_key(key: str) -> bool:
    """Returns True if a key of a config says how its layers turn, or is checked so."""
    beside = ("original_max_position_embeddings", *LAYER_KEYS)
    return key in (*_ROPE_KEYS, *_NO_CHANGE, *beside)


def states_rope(config: Config) -> bool:
    """Returns True if a config has a key that is about RoPE alone."""
    return any(config.get(key) is not None for key in _ROPE_KEYS)


def check_config(config: Config) -> None:
    """Raises ValueError for what is no dict, such as the object of a config."""
    if not isinstance(config, Mapping):
        raise ValueError(
            f"config must be a dict, got {config!r}; call to_dict() of a config object."
        )


def text_config(config: Config) -> Config:
    """Returns the config of the text model: that inside, if any.

    Raises:
        ValueError: if it is not a dict, has a key that resembles one of RoPE's, or its
            RoPE settings lie elsewhere.
    """
    check_config(config)
    _check_keys(config)
    if config.get("text_config") is not None:
        inner = read_section(config, "text_config")
        for key in _ROPE_KEYS:
            outer = config.get(key)
            if outer is not None and outer != inner.get(key):
                raise ValueError(
                    f"{key}={outer!r} contradicts text_config, where it is "
                    f"{inner.get(key)!r}; pass config['text_config'] if that holds."
                )
        return text_config(inner)
    if not states_rope(config):
        for name, part in config.items():
            if isinstance(part, Mapping) and states_rope(part):
                raise ValueError(
                    f"the config has RoPE settings only within {name!r}; pass "
                    f"config[{name!r}] if that is the text model."
                )
    return config


def rope_settings(config: Config, layer_type: str | None) -> dict[str, Any]:
    """Returns the RoPE settings of one kind of layer, without nulls.

    Raises:
        ValueError: if layers differ and no kind of theirs is named, a kind is named
            that the config does not know, or two forms of the settings disagree.
    """
    rope, layer_type = _either_form(config), usual_kind(layer_type)
    nested = _nested(rope)
    if nested:
        if len(nested) < len(rope):
            mixed = sorted(str(name) for name in rope if usual_kind(name) not in nested)
            raise ValueError(
                f"rope_parameters has {mixed} beside kinds of layers {list(nested)}; "
                "move them into each kind."
            )
        if fills_kinds(config):
            nested = {**dict.fromkeys(_TWO_KINDS, {}), **nested}
        check_choice("layer_type", layer_type, (*nested, *null_kinds(config)))
        one = read_section(nested, layer_type)
        local = default_local_base(config)
        if layer_type == "sliding_attention" and local is not None:
            one = {"rope_theta": local, **one}
        return one
    config = with_default_bases(config)
    if config.get("rope_local_base_freq") is not None:
        check_choice("layer_type", layer_type, _TWO_KINDS)
        if layer_type == "sliding_attention":
            return {"rope_theta": config["rope_local_base_freq"]}
        return rope
    if config.get("swa_rope_theta") is not None:
        check_choice("layer_type", layer_type, _TWO_KINDS)
        if rope_type(rope) != "default":
            raise ValueError(
                f"swa_rope_theta beside an extension, {rope}: it is not known whether "
                "sliding layers are extended too; give rope_parameters for each kind."
            )
        if layer_type == "sliding_attention":
            return {"rope_theta": config["swa_rope_theta"]}
        return rope
    bases = ("global_rope_theta", "local_rope_theta")
    within = "within rope_parameters or rope_scaling"
    if any(config.get(name) is not None for name in bases):
        check_choice("layer_type", layer_type, _TWO_KINDS)
        name = bases[layer_type == "sliding_attention"]
        beside = {"rope_theta": need(config, name)}
        return _agreeing(rope, beside, f"{name} beside it", taken=within)
    beyond = config.get("model_type") in _EXTENDED_IN_FULL
    if beyond and rope_type(rope) != "default":
        check_choice("layer_type", layer_type, _TWO_KINDS)
        if layer_type == "sliding_attention":
            rope = {}
    else:
        _check_alike(config, layer_type)
    beside = {key: config.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    beside = {key: value for key, value in beside.items() if value is not None}
    return _agreeing(rope, beside, "that beside rope_parameters", taken=within)


def kinds_differ(config: Config) -> bool:
    """Returns True if a config has settings of its own for some kind of layers."""
    places = (read_section(config, key) for key in ("rope_parameters", "rope_scaling"))
    by_kind = any(config.get(key) is not None for key in _BASES_BY_KIND)
    return by_kind or any(map(_nested, places)) or bool(null_kinds(config))


def rope_type(rope: Config) -> str:
    """Returns the type of RoPE by its present name.

    Raises:
        ValueError: if it is not a name, or the two keys for it disagree.
    """
    new, old = (read_name(rope, key) for key in ("rope_type", "type"))
    new, old = _OLD_NAMES.get(new, new), _OLD_NAMES.get(old, old)
    if None not in (new, old) and new != old:
        raise ValueError(f"rope_type={new!r} contradicts type={old!r}; drop one.")
    return new or old or "default"


def _either_form(config: Config) -> dict[str, Any]:
    """The settings in the form of transformers 5, or of 4; both must say the same."""
    new, old = (
        read_section(config, key) for key in ("rope_parameters", "rope_scaling")
    )
    if new and old:
        place_free = ("rope_theta", "partial_rotary_factor", "type", "rope_type")
        said = [
            {key: value for key, value in form.items() if key not in place_free}
            for form in (new, old)
        ]
        if said[0] != said[1] or rope_type(new) != rope_type(old):
            raise ValueError(
                f"rope_scaling={old} contradicts rope_parameters={new}; drop the one "
                "that does not hold (transformers 5 reads rope_scaling then)."
            )
        return _agreeing(new, old, "that in rope_scaling", taken="in rope_scaling")
    return new or old


def _nested(rope: Config) -> dict[str, Config]:
    """The settings for kinds of layers among those of RoPE."""
    nested = {key: each for key, each in rope.items() if isinstance(each, Mapping)}
    return {usual_kind(key): each for key, each in nested.items()}


def _agreeing(rope: Config, other: Config, where: str, *, taken: str) -> dict[str, Any]:
    """Adds settings, of which those given twice must be equal.

    Args:
        rope: settings of RoPE.
        other: others, of which theta and the part that turns are compared.
        where: where the others are, for the message.
        taken: which of two that differ transformers reads, for the message.
    """
    for key in ("rope_theta", "partial_rotary_factor"):
        ours, theirs = read_number(rope, key), read_number(other, key)
        if None not in (ours, theirs) and ours != theirs:
            raise ValueError(
                f"{key}={ours} contradicts {where}, {theirs}; drop one "
                f"(transformers 5 reads the one {taken})."
            )
    return {**other, **rope}


def _check_alike(config: Config, layer_type: str | None) -> None:
    """Accepts, where all layers are alike, the kinds that the config names."""
    kinds = kinds_of(config)
    if layer_type is not None and layer_type not in kinds:
        raise ValueError(
            f"layer_type={layer_type!r} is no kind of layer of this config, which has "
            f"{sorted(kinds)}; name one of these, or drop it."
        )


def _check_keys(config: Config) -> None:
    """Raises ValueError for a key that is about RoPE, or resembles one, and not known.

    All other keys, often hundreds, are none of RoPE's.
    """
    for key, value in config.items():
        known = key in _ROPE_KEYS or key in _OTHER_KEYS
        if value is None or known or not isinstance(key, str):
            continue
        if key in _NO_CHANGE:
            if value is not _NO_CHANGE[key]:
                raise ValueError(
                    f"{key}={value!r} is not known to mean one thing; drop it and give "
                    "layout or another encoding."
                )
            continue
        words = set(key.split("_"))
        about = bool(words & _ABOUT and words & _QUANTITIES)
        near = difflib.get_close_matches(key, _ROPE_KEYS, n=1, cutoff=0.85)
        starts = ("rope", "rotary", "original_max_pos", "no_rope")
        if about or near or key.startswith(starts):
            near = difflib.get_close_matches(
                key, (*_ROPE_KEYS, *_OTHER_KEYS), n=2, cutoff=0.4
            )
            hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise ValueError(
                f"unknown key {key!r} = {value!r} in the config. {hint}Keys about RoPE "
                f"are {_ROPE_KEYS}; drop it if it is not about the rotation."
            )
