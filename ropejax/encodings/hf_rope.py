"""Reading RoPE settings from the config of a Hugging Face model.

`hf_config` finds the settings in the config, `hf_values` reads single ones, `hf_maps`
knows the types of RoPE and `hf_models` those of models, `hf_defaults` what a config may
leave out; here they become an encoding.
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
from ropejax.encodings.hf_config import rope_settings, rope_type, text_config
from ropejax.encodings.hf_defaults import (
    check_extension_stated,
    default_base,
    default_fraction,
    rotary_dim,
    with_usual_names,
)
from ropejax.encodings.hf_maps import KEYS, MAPS, train_length
from ropejax.encodings.hf_models import check_rotary, paired, scales_softmax
from ropejax.encodings.hf_values import (
    Config,
    need_count,
    read_count,
    read_flag,
    read_number,
    read_numbers,
)
from ropejax.encodings.log_scale import LogScale
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
            in the config's `layer_types`, means the same.
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

    Raises:
        ValueError: if the model has no RoPE, the type or one of its keys is unknown,
            missing, of the wrong type or out of range, two entries contradict each
            other, layers differ and no kind is named, the entries do not fit the head
            width that the config implies, or `softmax_factor` is not the model's.

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
    config, rope = _settings(config, layer_type)
    kind, fraction = rope_type(rope), _fraction(config, rope)
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
    _check_width(config, encoding)
    scale = _query_scale(config, rope)
    return encoding if scale is None else compose(rope=encoding, log_scale=scale)


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
        ValueError: as `rotary_from_hf`, of the config.

    References:
        transformers 5.24, `DeepseekV3Attention` and its kin; the code published with
        DeepSeek-V2.
    """
    config, rope = _settings(config, layer_type)
    frequencies = MAPS[rope_type(rope)](config, rope, _fraction(config, rope))
    return _softmax_factor(config, frequencies)


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


def _settings(config: Config, layer_type: str | None) -> tuple[Config, dict[str, Any]]:
    """The text model's config, and its settings of RoPE, all of known names."""
    config = with_usual_names(text_config(config))
    check_rotary(config)
    check_extension_stated(config)
    rope = rope_settings(config, layer_type)
    kind = rope_type(rope)
    check_choice("rope_type", kind, KEYS)
    for key in rope:
        check_choice(f"rope parameter of type {kind!r}", key, _ANY_TYPE + KEYS[kind])
    return config, rope


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


def _query_scale(config: Config, rope: Config) -> LogScale | None:
    """Mistral's factor on queries, by how many whole trained lengths are before them.

    `1 + beta ln(1 + floor(position / N))`; Llama 4 counts the query's own token too.
    """
    again, length = (
        read_count(place, "max_position_embeddings") for place in (rope, config)
    )
    if None not in (again, length) and again != length:
        raise ValueError(
            f"max_position_embeddings={again} among the settings of RoPE contradicts "
            f"{length} beside them; drop one."
        )
    beta = read_number(rope, "llama_4_scaling_beta", zero=True)
    if not beta:
        return None
    return LogScale(
        form="steps",
        train_length=train_length(config, rope),
        weight=beta,
        count="earlier",
    )


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


def _first(*entries: tuple[Config, str]) -> float | None:
    """The first number that is given."""
    numbers = [read_number(place, name) for place, name in entries]
    return next((number for number in numbers if number is not None), None)


def _theta(config: Config, rope: Config) -> float:
    places = ((rope, "rope_theta"), (config, "rope_theta"), (config, "rotary_emb_base"))
    theta = _first(*places)
    return default_base(config) if theta is None else theta


def _fraction(config: Config, rope: Config) -> float:
    name, older = "partial_rotary_factor", ("rotary_pct", "rotary_emb_fraction")
    fraction = _first((rope, name), (config, name), *((config, n) for n in older))
    if fraction is not None:
        return _of_part(config, fraction)
    if (rotated := rotary_dim(config)) is None:
        return default_fraction(config)
    width = head_width(config)
    fraction = rotated / width
    # Rounded down, 30 of 44 channels would come back as 29.
    return fraction if int(width * fraction) == rotated else math.nextafter(fraction, 2)


def _of_part(config: Config, fraction: float) -> float:
    """What part turns of DeepSeek's part of a head: all of it, if that is meant."""
    part = read_count(config, "qk_rope_head_dim")
    if part is None or fraction == 1:
        return fraction
    still = read_count(config, "qk_nope_head_dim")
    if still is None or round((part + still) * fraction) != part:
        raise ValueError(
            f"partial_rotary_factor={fraction} contradicts qk_rope_head_dim={part} and "
            f"qk_nope_head_dim={still}, of which the first part turns; drop it."
        )
    return 1.0
