"""Reading RoPE settings from the config of a Hugging Face model.

`hf_config` finds the settings in the config, `hf_values` reads single ones, `hf_maps`
knows the types of RoPE and `hf_models` those of models, `hf_layers` which layers turn,
`hf_width` what part of a head does, `hf_defaults` what a config may leave out; here
they become encodings.
What is not known is refused: a type or a key read as "default" would load without an
error and compute something else.
"""

import math
import numbers
from typing import Any

from ropejax.encodings.axial import MRoPE
from ropejax.encodings.base import Encoding
from ropejax.encodings.choices import check_choice
from ropejax.encodings.compose import compose
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.hf_config import (
    kinds_differ,
    rope_settings,
    rope_type,
    text_config,
)
from ropejax.encodings.hf_defaults import (
    check_extension_stated,
    default_base,
    with_usual_names,
)
from ropejax.encodings.hf_layer_kinds import needs_kinds
from ropejax.encodings.hf_layers import Layer, layer_of, layers_of
from ropejax.encodings.hf_maps import KEYS, MAPS
from ropejax.encodings.hf_models import check_rotary, paired, scales_softmax
from ropejax.encodings.hf_query_scale import mistral_scale, unturned
from ropejax.encodings.hf_values import (
    Config,
    need_count,
    read_first,
    read_flag,
    read_numbers,
)
from ropejax.encodings.hf_width import check_width, turned_part
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
    "interleaved",
    "llama_4_scaling_beta",
    "max_position_embeddings",
)


def rotary_from_hf(
    config: Config,
    *,
    layer_type: str | None = None,
    layout: Layout | None = None,
    softmax_factor: float = 1.0,
) -> Encoding:
    """Returns the rotary encoding that a Hugging Face config describes.

    Frequencies are rounded to float32, as in the programs that such models are trained
    with, except where they depend on the length.

    Args:
        config: the model's config as a dict, in the form of transformers 4 or 5. Of a
            multimodal model the `text_config` within it is read. What it
            leaves out is what transformers puts there for its `model_type`: a base of
            10000 for most, on all channels. A model known to have no RoPE is refused;
            keys not about RoPE are ignored, but one that resembles a key of RoPE is
            refused.
        layer_type: which kind of layer ("full_attention", "sliding_attention"), needed
            for models whose layers differ. For others None; "full_attention", or a kind
            of attention in the config's `layer_types`, means the same. Where layers of
            one kind differ (SmolLM 3, Granite SWA), take `encodings_from_hf`.
        layout: how channels are paired; if None, what `rope_interleave` says, else
            "interleaved" for model types known to do so (GPT-J, CodeGen, RoFormer,
            Cohere, GLM, DeepSeek-V2, V3 and their kin, Moonshine, ERNIE 4.5, Helium,
            Llama 4, Mistral 4, BLT and others), "half" for all others.
        softmax_factor: what you multiply the softmax scale by besides, which must be
            what `softmax_factor_from_hf` says: 1 for all but DeepSeek's kin. It acts on
            all channels, those that are not turned included, so that it cannot be part
            of the encoding; given here, it is not forgotten.

    Returns:
        A `Rotary`, or an `MRoPE` if the config has sections. With Mistral's
        `llama_4_scaling_beta` it is composed, as "rope", with the `LogScale` that
        multiplies queries, "log_scale". Where DeepSeek's heads are turned in part
        (`qk_rope_head_dim`), it is the rotation of that part; queries are scaled whole.
        Layers that the model does not turn have `Encoding()`, which does nothing, or
        with Llama 4's temperature a `LogScale`; so have layers without attention.

    Raises:
        ValueError: if no layer has RoPE, the type or one of its keys is unknown,
            missing, of the wrong type or out of range, two entries contradict each
            other, layers differ and no kind is named, or those of the named kind do,
            the entries do not fit the head width that the config implies, or
            `softmax_factor` is not the model's.

    References:
        transformers 5.24, `modeling_rope_utils`, and the configs of its models.

    Departures:
        As there, `mscale` and `mscale_all_dim` act only if both are given and not 0;
        but `mscale_all_dim` alone, which DeepSeek's code uses elsewhere, is refused.
        Its Phi-3.5-MoE never comes to its long factors; here they act beyond the
        trained length, as they do for all other models.

    Example:
        >>> rotary_from_hf({"model_type": "phi", "head_dim": 64}).rotary_fraction
        0.5
    """
    config = _checked(config)
    return _encoding(config, layer_of(config, layer_type), layout, softmax_factor)


def encodings_from_hf(
    config: Config, *, layout: Layout | None = None, softmax_factor: float = 1.0
) -> tuple[Encoding, ...]:
    """Returns the encoding of each layer of a Hugging Face model, in order.

    That of layer i is what `rotary_from_hf` gives for its kind, by
    `layer_types[i]`, with its own base by `layer_rope_theta[i]`; or none, where
    `no_rope_layers[i]` is 0 or its kind is not turned. Where the config leaves these
    out, they are what transformers puts there for its `model_type`
    (`sliding_window_pattern`, `no_rope_layer_interval` and the like).

    Args:
        config: see `rotary_from_hf`.
        layout: see `rotary_from_hf`; of all layers.
        softmax_factor: see `rotary_from_hf`; of all layers that turn.

    Returns:
        As many encodings as layers; equal ones are one object. Layers that are not
        turned have `Encoding()`, which does nothing (with Llama 4's temperature a
        `LogScale`); so have layers of recurrence, convolution or cross-attention.

    Raises:
        ValueError: as `rotary_from_hf`, but for layers that differ; if the number of
            layers is not known, or which is of what kind, or lists of layers are not
            of that length.

    References:
        transformers 5.24: the configs of its models, and where their attention turns.

    Departures:
        Masks are not read: windows and chunks are the model's, by `ropejax.masks`; nor
        are soft caps (`attn_logit_softcapping`, a `SoftCap` to compose with) and scales
        of the softmax (`query_pre_attn_scalar`).

    Example:
        >>> config = {"model_type": "smollm3", "num_hidden_layers": 4, "head_dim": 64}
        >>> [type(each).__name__ for each in encodings_from_hf(config)]
        ['Rotary', 'Rotary', 'Rotary', 'Encoding']
    """
    config = _checked(config)
    layers = layers_of(config)
    if layers is None:
        if kinds_differ(config) or needs_kinds(config):
            raise ValueError(
                "layers of this model differ, and the config does not say which is of "
                "what kind; add layer_types, one name a layer (layer_types of the "
                "config object), or num_hidden_layers where it is left out."
            )
        layers = (layer_of(config, None),) * need_count(config, "num_hidden_layers")
    made = {
        layer: _encoding(config, layer, layout, softmax_factor)
        for layer in dict.fromkeys(layers)
    }
    return tuple(made[layer] for layer in layers)


def softmax_factor_from_hf(config: Config, *, layer_type: str | None = None) -> float:
    """Returns what a Hugging Face model multiplies the softmax scale by besides.

    DeepSeek's attention, and that of models made after it, has the scale
    `H ** -0.5 * (0.1 mscale_all_dim ln(factor) + 1) ** 2`, H the width of the whole
    head. This is its second part, and 1 for all other models.

        factor = softmax_factor_from_hf(config)
        rope = rotary_from_hf(config, softmax_factor=factor)
        attend(q, k, v, encoding=rope, scale=factor * H**-0.5, ...)

    Args:
        config: see `rotary_from_hf`.
        layer_type: see `rotary_from_hf`.

    Raises:
        ValueError: if no layer of the model has RoPE; for models that have such a
            factor as `rotary_from_hf`, of the config.

    References:
        transformers 5.24, `DeepseekV3Attention` and its kin; the code published with
        DeepSeek-V2.
    """
    config = _checked(config)
    if not scales_softmax(config) or not (layer := layer_of(config, layer_type)).turns:
        return 1.0
    rope = _settings(config, layer)
    frequencies = MAPS[rope_type(rope)](config, rope, turned_part(config, rope))
    return _softmax_factor(config, frequencies)


def _checked(config: Config) -> Config:
    """The text model's config, with sizes under their usual names, of a known model."""
    config = with_usual_names(text_config(config))
    check_rotary(config)
    check_extension_stated(config)
    return config


def _settings(config: Config, layer: Layer) -> dict[str, Any]:
    """The settings of RoPE of a layer that turns, all of known names."""
    rope = rope_settings(config, layer.kind)
    kind = rope_type(rope)
    check_choice("rope_type", kind, KEYS)
    for key in rope:
        check_choice(f"rope parameter of type {kind!r}", key, _ANY_TYPE + KEYS[kind])
    return rope if layer.base is None else {**rope, "rope_theta": layer.base}


def _encoding(
    config: Config, layer: Layer, layout: Layout | None, softmax_factor: float
) -> Encoding:
    """The encoding of one layer."""
    if not layer.turns:
        return unturned(config)
    rope = _settings(config, layer)
    kind, fraction = rope_type(rope), turned_part(config, rope)
    frequencies = MAPS[kind](config, rope, fraction)
    _check_softmax_factor(softmax_factor, _softmax_factor(config, frequencies))
    options = {
        "frequencies": frequencies,
        "max_wavelength": _theta(config, rope),
        "layout": paired(config) if layout is None else layout,
        "rotary_fraction": 1.0 if kind == "proportional" else fraction,
        "round_frequencies": not frequencies.length_dependent,
    }
    encoding = _with_sections(rope, options)
    check_width(config, encoding)
    scale = mistral_scale(config, rope)
    return encoding if scale is None else compose(rope=encoding, log_scale=scale)


def _softmax_factor(config: Config, frequencies: FrequencyMap) -> float:
    if isinstance(frequencies, YaRNScaling) and scales_softmax(config):
        return frequencies.softmax_factor()
    return 1.0


def _check_softmax_factor(given: float, right: float) -> None:
    """Raises ValueError for a factor that the model does not have."""
    if isinstance(given, numbers.Real) and math.isclose(given, right, rel_tol=1e-6):
        return
    raise ValueError(
        f"softmax_factor={given!r}, but this model multiplies the softmax scale by "
        f"{right:.7g} besides; pass softmax_factor=softmax_factor_from_hf(config), and "
        "scale=softmax_factor * H**-0.5 to attention, H the width of the whole head."
    )


def _with_sections(rope: Config, options: dict[str, Any]) -> RotaryAttention:
    """Rotation by one position, or by three if pairs are dealt out in sections."""
    names = ("mrope_interleaved", "interleaved")
    given = {name: read_flag(rope, name) for name in names if name in rope}
    if len(set(given.values())) > 1:
        raise ValueError(f"{given} contradict each other; drop one.")
    interleaved = any(given.values())
    if "mrope_section" not in rope:
        if interleaved or "mrope" in (rope.get("type"), rope.get("rope_type")):
            raise ValueError(
                "the config lacks 'mrope_section', which its type or mrope_interleaved "
                "asks for; add three counts of pairs."
            )
        return Rotary(**options)
    sections = read_numbers(rope, "mrope_section", whole=True)
    return MRoPE(sections=sections, interleaved=interleaved, **options)


def _theta(config: Config, rope: Config) -> float:
    places = ((rope, "rope_theta"), (config, "rope_theta"), (config, "rotary_emb_base"))
    theta = read_first(*places)
    return default_base(config) if theta is None else theta
