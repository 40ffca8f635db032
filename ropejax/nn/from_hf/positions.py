"""How positions enter each layer of a Hugging Face model: RoPE, a table, or ALiBi."""

import math
from types import MappingProxyType

from ropejax.encodings import Encoding, compose, encodings_from_hf
from ropejax.encodings.alibi import ALiBi
from ropejax.encodings.hf_values import (
    Config,
    need_count,
    read_count,
    read_number,
    read_section,
)
from ropejax.encodings.learned import Learned
from ropejax.encodings.soft_cap import SoftCap
from ropejax.nn.from_hf.entries import says_nothing
from ropejax.nn.from_hf.model_type import ModelType

_MPT_FIXED = MappingProxyType(
    {
        "attn_type": "multihead_attention",
        "alibi": True,
        "prefix_lm": False,
        "qk_ln": False,
    }
)
"""Entries of MPT's `attn_config` of which the code knows one value."""

_MPT_NO_SAY = ("attn_pdrop", "attn_impl", "attn_uses_sequence_id", "model_type")
"""Others that alter no logits; sequences are told apart here by their segments."""

_MPT_READ = ("alibi_bias_max", "softmax_scale")


def positions_of(config: Config, model: ModelType) -> tuple[Encoding, ...]:
    """Returns the encoding of each layer, with a soft cap where the model has one.

    Args:
        config: of a checkpoint, with usual names.
        model: what its type of model does.

    Raises:
        ValueError: as `ropejax.encodings.encodings_from_hf`, or if an entry is missing
            or not known.
    """
    if model.positions == "rope":
        encodings = encodings_from_hf(config)
    else:
        number = need_count(config, "num_hidden_layers")
        encodings = (_of_all(config, model),) * number
    cap = soft_caps(config, model)[0]
    if cap is None:
        return encodings
    made = {
        each: compose(rope=each, cap=SoftCap(cap)) for each in dict.fromkeys(encodings)
    }
    return tuple(made[each] for each in encodings)


def soft_caps(config: Config, model: ModelType) -> tuple[float | None, float | None]:
    """Returns the soft caps of attention and of logits, None where there is none.

    Args:
        config: of a checkpoint.
        model: what its type of model does.
    """
    if model.caps is None:
        return None, None
    attention, final = (
        read_number(config, key) if key in config else default
        for key, default in zip(
            ("attn_logit_softcapping", "final_logit_softcapping"),
            model.caps,
            strict=True,
        )
    )
    return attention, final


def mpt_attention(config: Config) -> Config:
    """Returns MPT's settings of attention, all of known meaning.

    Args:
        config: of a checkpoint.

    Raises:
        ValueError: for an entry, or a value, that is not known.
    """
    section = read_section(config, "attn_config")
    for key, value in section.items():
        if key in (*_MPT_READ, *_MPT_NO_SAY) or says_nothing(key, value):
            continue
        if key in _MPT_FIXED and value == _MPT_FIXED[key]:
            continue
        known = f"known with {_MPT_FIXED[key]!r} alone" if key in _MPT_FIXED else ""
        raise ValueError(
            f"attn_config: {key}={value!r} is {known or 'not known here'}; drop it if "
            "it alters no logits, or use another checkpoint."
        )
    return section


def mpt_slopes(num_heads: int, steepest: int) -> tuple[float, ...]:
    """Returns the slopes of MPT's heads: `2 ** (-steepest h / P)`, P a power of two.

    If there are fewer heads than P, every other one of these, and then those between.

    Args:
        num_heads: number of heads, N.
        steepest: exponent of the last of P slopes (`alibi_bias_max`).
    """
    power = 2 ** math.ceil(math.log2(num_heads))
    slopes = [2.0 ** (-steepest * head / power) for head in range(1, power + 1)]
    if power > num_heads:
        slopes = slopes[1::2] + slopes[::2]
    return tuple(slopes[:num_heads])


def _of_all(config: Config, model: ModelType) -> Encoding:
    """The encoding of all layers."""
    if model.positions == "learned":
        return Learned(need_count(config, "max_position_embeddings"))
    if "attn_config" not in model.keys:
        return ALiBi()
    steepest = read_count(mpt_attention(config), "alibi_bias_max") or 8
    if steepest == 8:  # the rule of ALiBi itself
        return ALiBi()
    return ALiBi(mpt_slopes(need_count(config, "num_attention_heads"), steepest))
