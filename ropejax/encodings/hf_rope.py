"""Reading RoPE settings from the config of a Hugging Face model.

`hf_config` finds the settings in the config, `hf_values` reads single ones, `hf_maps`
knows the types; here they become an encoding. What is not known is refused: a type or a
key read as "default" would load without an error and compute something else.
"""

import math
from typing import Any

from ropejax.encodings.axial import MRoPE
from ropejax.encodings.choices import check_choice
from ropejax.encodings.hf_config import rope_settings, rope_type, text_config
from ropejax.encodings.hf_maps import KEYS, MAPS
from ropejax.encodings.hf_values import (
    Config,
    need_count,
    read_count,
    read_flag,
    read_name,
    read_number,
    read_numbers,
)
from ropejax.encodings.rotary import Rotary, RotaryAttention
from ropejax.encodings.rotation import Layout

_ANY_TYPE = (
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "mrope_section",
    "mrope_interleaved",
)

_INTERLEAVED = (
    "gptj",
    "codegen",
    "cohere",
    "cohere2",
    "glm",
    "glm4",
    "deepseek_v2",
    "deepseek_v3",
    "ernie4_5",
    "ernie4_5_moe",
    "helium",
    "llama4_text",
)
"""Model types whose code pairs neighbouring channels (unless `rope_interleave`)."""


def rotary_from_hf(
    config: Config,
    *,
    layer_type: str | None = None,
    layout: Layout | None = None,
) -> RotaryAttention:
    """Returns the rotary encoding that a Hugging Face config describes.

    Frequencies are rounded to float32, as in the programs that such models are trained
    with, except where they depend on the length.

    Args:
        config: the model's config as a dict, in the form of transformers 4 or 5. Of a
            multimodal model the `text_config` within it is read. A config without any
            key about RoPE means plain RoPE of base 10000; keys not about RoPE are
            ignored, but one that resembles a key of RoPE is refused.
        layer_type: which kind of layer ("full_attention", "sliding_attention"), needed
            for models whose layers differ. For others None; "full_attention", or a kind
            in the config's `layer_types`, means the same.
        layout: how channels are paired; if None, what `rope_interleave` says, else
            "interleaved" for model types known to do so (GPT-J, CodeGen, Cohere, GLM,
            DeepSeek-V2 and V3, ERNIE 4.5, Helium, Llama 4), "half" for all others.

    Returns:
        A `Rotary`, or an `MRoPE` if the config has sections. Where DeepSeek's heads are
        turned in part (`qk_rope_head_dim`), it is the encoding of that part.

    Raises:
        ValueError: if the type or one of its keys is unknown, missing, of the wrong
            type or out of range, two entries contradict each other, layers differ and
            no kind is named, or the entries do not fit the head width that the config
            implies.

    References:
        transformers 5.24, `modeling_rope_utils`.

    Departures:
        As there, `mscale` and `mscale_all_dim` act only if both are given and not 0;
        but `mscale_all_dim` alone, which DeepSeek's code uses elsewhere, is refused.
    """
    config = text_config(config)
    rope = rope_settings(config, layer_type)
    kind = rope_type(rope)
    check_choice("rope_type", kind, KEYS)
    for key in rope:
        check_choice(f"rope parameter of type {kind!r}", key, _ANY_TYPE + KEYS[kind])
    fraction = _fraction(config, rope)
    frequencies = MAPS[kind](config, rope, fraction)
    options = {
        "frequencies": frequencies,
        "max_wavelength": _theta(config, rope),
        "layout": _layout(config) if layout is None else layout,
        "rotary_fraction": 1.0 if kind == "proportional" else fraction,
        "round_frequencies": not frequencies.length_dependent,
    }
    encoding = _with_sections(rope, options)
    _check_width(config, encoding)
    return encoding


def head_width(config: Config) -> int:
    """Returns the width of a head that a config implies, or of its rotated part.

    Raises:
        ValueError: if the config lacks it, or has it as other than a positive number.
    """
    for name in ("qk_rope_head_dim", "head_dim"):
        if (width := read_count(config, name)) is not None:
            return width
    heads = need_count(config, "num_attention_heads")
    return need_count(config, "hidden_size") // heads


def _with_sections(rope: Config, options: dict[str, Any]) -> RotaryAttention:
    """Rotation by one position, or by three if pairs are dealt out in sections."""
    interleaved = read_flag(rope, "mrope_interleaved", False)
    if "mrope_section" not in rope:
        if interleaved or "mrope" in (rope.get("type"), rope.get("rope_type")):
            raise ValueError(
                "the config lacks 'mrope_section', which its type or mrope_interleaved "
                "asks for; add three counts of pairs."
            )
        return Rotary(**options)
    sections = read_numbers(rope, "mrope_section", whole=True)
    return MRoPE(sections=sections, interleaved=interleaved, **options)


def _check_width(config: Config, encoding: RotaryAttention) -> None:
    """Raises ValueError if factors or sections do not fit the head, where it is known.

    Without an entry for the width, the model says later whether they fit.
    """
    by_heads = ("hidden_size", "num_attention_heads")
    known = any(config.get(name) for name in ("qk_rope_head_dim", "head_dim"))
    if not known and any(config.get(name) is None for name in by_heads):
        return
    width = head_width(config)
    try:
        encoding.frequencies.check(len(encoding.pairs(width).spectrum))
    except ValueError as error:
        raise ValueError(
            f"the config implies heads of width {width}, but: {error}"
        ) from error


def _layout(config: Config) -> Layout:
    interleave = read_flag(config, "rope_interleave")
    if interleave is None:
        interleave = read_name(config, "model_type") in _INTERLEAVED
    return "interleaved" if interleave else "half"


def _first(*entries: tuple[Config, str]) -> float | None:
    """The first number that is given."""
    numbers = [read_number(place, name) for place, name in entries]
    return next((number for number in numbers if number is not None), None)


def _theta(config: Config, rope: Config) -> float:
    places = ((rope, "rope_theta"), (config, "rope_theta"), (config, "rotary_emb_base"))
    theta = _first(*places)
    return 10_000.0 if theta is None else theta


def _fraction(config: Config, rope: Config) -> float:
    name = "partial_rotary_factor"
    fraction = _first((rope, name), (config, name), (config, "rotary_pct"))
    if fraction is not None:
        return fraction
    rotated = read_count(config, "rotary_dim")
    if rotated is None:
        return 1.0
    width = head_width(config)
    fraction = rotated / width
    # Rounded down, 30 of 44 channels would come back as 29.
    return fraction if int(width * fraction) == rotated else math.nextafter(fraction, 2)
