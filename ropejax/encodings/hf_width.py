"""How wide the heads of a Hugging Face model are, and what part of them turns."""

import math

from ropejax.encodings.hf_defaults import default_fraction, rotary_dim
from ropejax.encodings.hf_values import Config, need_count, read_count, read_first
from ropejax.encodings.rotary import RotaryAttention


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


def turned_part(config: Config, rope: Config) -> float:
    """Returns what part of a head turns, or of DeepSeek's part of a head.

    Raises:
        ValueError: if two entries disagree about it.
    """
    name, older = "partial_rotary_factor", ("rotary_pct", "rotary_emb_fraction")
    places = ((rope, name), (config, name), *((config, n) for n in older))
    fraction = read_first(*places)
    if fraction is not None:
        return _of_part(config, fraction)
    if (rotated := rotary_dim(config)) is None:
        return default_fraction(config)
    width = head_width(config)
    fraction = rotated / width
    # Rounded down, 30 of 44 channels would come back as 29.
    return fraction if int(width * fraction) == rotated else math.nextafter(fraction, 2)


def check_width(config: Config, encoding: RotaryAttention) -> None:
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
