"""RoPE as entries of a Hugging Face config: what `hf_rope` reads, written."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ropejax.encodings.base import Encoding
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.interpolation import Llama3Scaling, PositionInterpolation
from ropejax.encodings.length_scaling import DynamicNTK, LongRoPEScaling
from ropejax.encodings.rotary import Rotary
from ropejax.encodings.yarn_map import YaRNScaling

Entries = dict[str, Any]


def rope_entries(encoding: Encoding) -> Entries:
    """Returns the entries of a config that say how an encoding turns queries and keys.

    They are in the form of transformers 4, which 5 reads too: `rope_theta`, and
    `rope_scaling` where frequencies are extended. What an entry cannot say is not
    looked at, such as a map of distances: read them back with
    `ropejax.encodings.encodings_from_hf`, and compare.

    Args:
        encoding: a `Rotary`.

    Raises:
        ValueError: if it is another encoding, or extended in another way.

    Example:
        >>> rope_entries(Rotary(max_wavelength=5e5))
        {'rope_theta': 500000.0}
    """
    if type(encoding) is not Rotary:
        raise ValueError(
            f"{encoding.title} is no entry of a Hugging Face config, which knows RoPE "
            f"alone here; got {encoding}."
        )
    frequencies = encoding.frequencies
    if type(frequencies) not in _WRITTEN:
        known = ", ".join(kind.__name__ for kind in _WRITTEN)
        raise ValueError(
            f"frequencies={frequencies} are no entry of a Hugging Face config, which "
            f"knows {known}."
        )
    written = _WRITTEN[type(frequencies)](frequencies)
    return {"rope_theta": float(encoding.max_wavelength), **written}


def _plain(frequencies: FrequencyMap) -> Entries:
    return {}


def _linear(frequencies: PositionInterpolation) -> Entries:
    return _scaling("linear", factor=frequencies.scale)


def _dynamic(frequencies: DynamicNTK) -> Entries:
    """The trained length is there that of the model."""
    written = _scaling("dynamic", factor=frequencies.scale)
    return {**written, "max_position_embeddings": frequencies.train_length}


def _yarn(frequencies: YaRNScaling) -> Entries:
    return _scaling(
        "yarn",
        factor=frequencies.scale,
        original_max_position_embeddings=frequencies.train_length,
        beta_fast=frequencies.beta_fast,
        beta_slow=frequencies.beta_slow,
        truncate=None if frequencies.truncate else False,
        attention_factor=frequencies.attention_factor,
        mscale=frequencies.mscale,
        mscale_all_dim=frequencies.mscale_all_dim,
    )


def _llama3(frequencies: Llama3Scaling) -> Entries:
    return _scaling(
        "llama3",
        factor=frequencies.scale,
        original_max_position_embeddings=frequencies.train_length,
        low_freq_factor=frequencies.low,
        high_freq_factor=frequencies.high,
    )


def _longrope(frequencies: LongRoPEScaling) -> Entries:
    """Lengths stand beside the settings, where the models' code looks for them."""
    return {
        **_scaling(
            "longrope",
            short_factor=list(frequencies.short_factors or ()),
            long_factor=list(frequencies.long_factors or ()),
            attention_factor=frequencies.attention_factor,
        ),
        "original_max_position_embeddings": frequencies.train_length,
        "max_position_embeddings": round(frequencies.scale * frequencies.train_length),
    }


def _scaling(kind: str, **settings: Any) -> Entries:
    """Settings of a type of RoPE, those that are given."""
    given = {name: value for name, value in settings.items() if value is not None}
    return {"rope_scaling": {"rope_type": kind, **given}}


_WRITTEN: Mapping[type, Callable[[Any], Entries]] = MappingProxyType(
    {
        FrequencyMap: _plain,
        PositionInterpolation: _linear,
        DynamicNTK: _dynamic,
        YaRNScaling: _yarn,
        Llama3Scaling: _llama3,
        LongRoPEScaling: _longrope,
    }
)
