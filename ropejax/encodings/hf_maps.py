"""What each type of RoPE in a Hugging Face config means: its keys, and its map."""

from ropejax.encodings.frequency_map import Chain, FrequencyMap
from ropejax.encodings.hf_values import (
    Config,
    need_count,
    need_number,
    read_count,
    read_flag,
    read_number,
    read_numbers,
)
from ropejax.encodings.interpolation import (
    HighestFrequencies,
    Llama3Scaling,
    NTKAware,
    PositionInterpolation,
)
from ropejax.encodings.length_scaling import DynamicNTK, LongRoPEScaling
from ropejax.encodings.yarn_map import YaRNScaling

KEYS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": (
        "factor",
        "original_max_position_embeddings",
        "alpha",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
    ),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "finetuned",
    ),
    "longrope": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "short_factor",
        "long_factor",
        "short_mscale",
        "long_mscale",
    ),
    "llama3": (
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
    ),
    "proportional": ("factor",),
}
"""The keys that each type of RoPE may have; `finetuned` tells what was done to weights.
"""

_UNREAD = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
"""Keys that configs with `alpha` (Hunyuan) have beside it, and their code not read."""


def train_length(config: Config, rope: Config) -> int:
    """Trained length; the config's own entry wins, as Phi-3 keeps it there."""
    name = "original_max_position_embeddings"
    lengths = [read_count(place, name) for place in (config, rope)]
    for length in lengths:
        if length is not None:
            return length
    return need_count(config, "max_position_embeddings")


def _factor(config: Config, rope: Config) -> float:
    """Extension; where it is not stated, the extended length over the trained one."""
    if (factor := read_number(rope, "factor")) is not None:
        return factor
    return need_count(config, "max_position_embeddings") / train_length(config, rope)


def _mscales(rope: Config) -> dict[str, float | None]:
    """DeepSeek's two weights; one of them alone, or beside a zero, has no effect."""
    names = ("mscale", "mscale_all_dim")
    above, below = (read_number(rope, name, zero=True) for name in names)
    if below and not above:
        raise ValueError(
            f"mscale_all_dim={below} without mscale: add mscale, or drop both."
        )
    return dict(zip(names, (above, below), strict=True)) if above and below else {}


def _default(config, rope, fraction) -> FrequencyMap:
    return FrequencyMap()


def _linear(config, rope, fraction) -> FrequencyMap:
    return PositionInterpolation(need_number(rope, "factor"))


def _dynamic(config, rope, fraction) -> FrequencyMap:
    """By the length; or, with Hunyuan's `alpha`, by a constant for all lengths."""
    if (alpha := read_number(rope, "alpha")) is not None:
        if (factor := read_number(rope, "factor")) not in (None, 1.0):
            raise ValueError(f"alpha={alpha} leaves {factor=} no meaning; drop one.")
        return NTKAware(alpha)
    for name in _UNREAD:
        if name in rope:
            raise ValueError(
                f"rope parameter {name!r} means nothing for type 'dynamic'; drop it, "
                "or change the type to 'yarn'."
            )
    length = need_count(config, "max_position_embeddings")
    if (other := train_length(config, rope)) != length:
        raise ValueError(
            f"original_max_position_embeddings={other} contradicts "
            f"max_position_embeddings={length}, which type 'dynamic' takes for the "
            "trained length in transformers; drop it, or make them equal."
        )
    return DynamicNTK(need_number(rope, "factor"), length)


def _yarn(config, rope, fraction) -> FrequencyMap:
    fast, slow = (read_number(rope, name) for name in ("beta_fast", "beta_slow"))
    return YaRNScaling(
        scale=_factor(config, rope),
        train_length=train_length(config, rope),
        beta_fast=32.0 if fast is None else fast,
        beta_slow=1.0 if slow is None else slow,
        truncate=read_flag(rope, "truncate", True),
        attention_factor=read_number(rope, "attention_factor"),
        **_mscales(rope),
    )


def _longrope(config, rope, fraction) -> FrequencyMap:
    return LongRoPEScaling(
        long_factors=read_numbers(rope, "long_factor"),
        short_factors=read_numbers(rope, "short_factor"),
        train_length=train_length(config, rope),
        scale=_factor(config, rope),
        attention_factor=_long_magnitude(rope),
    )


def _long_magnitude(rope) -> float | None:
    """LongRoPE's factor, if stated; Phi-3.5-MoE has it as two equal numbers."""
    names = ("attention_factor", "short_mscale", "long_mscale")
    given = {name: read_number(rope, name) for name in names if name in rope}
    both = ("short_mscale" in given) == ("long_mscale" in given)
    if len(set(given.values())) > 1 or not both:
        raise ValueError(
            f"{given} must be one number, for short sequences and long ones alike; "
            "build LongRoPE yourself, for either."
        )
    return next(iter(given.values()), None)


def _llama3(config, rope, fraction) -> FrequencyMap:
    return Llama3Scaling(
        scale=need_number(rope, "factor"),
        train_length=train_length(config, rope),
        low=need_number(rope, "low_freq_factor"),
        high=need_number(rope, "high_freq_factor"),
    )


def _proportional(config, rope, fraction) -> FrequencyMap:
    """Part of the pairs turns, with frequencies of the whole width."""
    fastest = HighestFrequencies(fraction)
    factor = read_number(rope, "factor")
    if factor in (None, 1.0):
        return fastest
    return Chain((fastest, PositionInterpolation(factor)))


MAPS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
"""The frequency map of each type, from `(config, rope, fraction)`."""
