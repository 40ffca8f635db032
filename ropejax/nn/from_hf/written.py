"""A model of this library as the config of a Hugging Face model, of a type that has it.

What is written is read again by whoever writes it (`ropejax.nn.from_hf.to_hf`), so that
what a config cannot say is found there.
"""

from typing import Any

from ropejax.encodings import Encoding
from ropejax.encodings.alibi import ALiBi
from ropejax.encodings.compose import Compose
from ropejax.encodings.hf_entries import rope_entries
from ropejax.encodings.learned import Learned
from ropejax.encodings.soft_cap import SoftCap
from ropejax.masks import Causal, Mask, Window
from ropejax.nn.from_hf.config import ACTIVATIONS
from ropejax.nn.from_hf.model_type import ModelType
from ropejax.nn.from_hf.models import MODELS
from ropejax.nn.from_hf.positions import mpt_slopes
from ropejax.nn.readout import TiedReadout
from ropejax.nn.transformer import TransformerSpec, embedding_scale

Entries = dict[str, Any]

_FRACTIONS = {
    "gpt_neox": "rotary_pct",
    "phi": "partial_rotary_factor",
    "phi3": "partial_rotary_factor",
    "stablelm": "partial_rotary_factor",
}
"""Types whose code turns a part of a head, and the entry that says which."""


def layers_of(spec: TransformerSpec) -> list[tuple[Encoding, float | None, Any]]:
    """Returns encoding, soft cap (None for none) and mask of each layer.

    Args:
        spec: how the model is made.
    """
    each = [(*uncapped(kind.encoding), kind.mask) for kind in spec.pattern]
    return each * (spec.dims.num_layers // len(each))


def uncapped(encoding: Encoding) -> tuple[Encoding, float | None]:
    """Returns an encoding without the soft cap that it is composed with, and the cap.

    Args:
        encoding: one method, or several put together.
    """
    if not isinstance(encoding, Compose) or len(encoding.parts) != 2:
        return encoding, None
    (_, first), (_, last) = encoding.parts
    return (first, last.cap) if type(last) is SoftCap else (encoding, None)


def config_of(spec: TransformerSpec, name: str, max_length: int | None) -> Entries:
    """Returns a model as a config of a type.

    Args:
        spec: how the model is made.
        name: the type, one of `MODELS`.
        max_length: how many tokens the model is for; None to leave it out.

    Raises:
        ValueError: for what no config of this type says.
    """
    model, dims, settings = MODELS[name], spec.dims, spec.settings
    said: Entries = {
        "vocab_size": spec.num_symbols,
        "hidden_size": dims.embed_dim,
        "num_hidden_layers": dims.num_layers,
        "num_attention_heads": dims.num_heads,
        "num_key_value_heads": dims.num_kv_heads,
        "head_dim": dims.head_dim,
        "intermediate_size": settings.mlp_dim,
        "word_embed_proj_dim": dims.embed_dim,
        model.epsilon_key: settings.norm.epsilon,
        "attention_bias": settings.qkv_bias,
        "mlp_bias": settings.mlp.bias,
        "use_parallel_residual": settings.parallel,
        "final_logit_softcapping": spec.readout.cap,
        "attn_logit_softcapping": layers_of(spec)[0][1],
        "query_pre_attn_scalar": _pre_attention(spec),
        "scale_attn_weights": settings.attention_scale is None,
        "tie_word_embeddings": isinstance(spec.readout, TiedReadout),
        "embedding_multiplier": embedding_scale(spec),
        "attention_multiplier": settings.attention_scale or dims.head_dim**-0.5,
        "residual_multiplier": settings.residual_scale,
        "logits_scaling": spec.readout.divisor,
    }
    if model.activation_key:
        said |= _activation(spec, model)
    written = _positions(spec, name, model) | _windows(spec, model)
    found = {key: value for key, value in said.items() if key in model.read} | written
    length = found.setdefault("max_position_embeddings", max_length)
    if length is None:
        del found["max_position_embeddings"]
    elif max_length not in (None, length):
        raise ValueError(
            f"max_length={max_length}, but the position encoding is of {length} "
            "tokens; leave it out."
        )
    # Of several names for one entry the first is that of published configs.
    own = {usual: name for name, usual in reversed(model.renamed.items())}
    fixed = {key: value for key, value in model.fixed.items() if value is not None}
    return {
        "model_type": name,
        "architectures": [model.architecture],
        "torch_dtype": "float32",
        **{own.get(key, key): value for key, value in found.items()},
        **fixed,
    }


def _activation(spec: TransformerSpec, model: ModelType) -> Entries:
    """The MLP's activation, by the name that the type has for it, or the first one."""
    function = spec.settings.activation
    names = [name for name, known in ACTIVATIONS.items() if known is function]
    if not names:
        told = getattr(function, "__name__", function)
        raise ValueError(
            f"activation={told} has no name in such configs, which know "
            f"{', '.join(ACTIVATIONS)}."
        )
    chosen = model.activation if model.activation in names else names[0]
    return dict.fromkeys((model.activation_key, "hidden_act"), chosen)


def _pre_attention(spec: TransformerSpec) -> float:
    """What queries times keys are divided by the root of."""
    scale = spec.settings.attention_scale
    found = spec.dims.head_dim if scale is None else scale**-2.0
    whole = round(found)
    return whole if scale is None or whole**-0.5 == scale else found


def _positions(spec: TransformerSpec, name: str, model: ModelType) -> Entries:
    """How positions enter."""
    layers = layers_of(spec)
    first = layers[0][0]
    if model.positions == "learned":
        if not isinstance(first, Learned):
            raise ValueError(f"the encoding is {first.title}, not a learned table.")
        return {"max_position_embeddings": first.max_position}
    if model.positions == "alibi":
        if not isinstance(first, ALiBi):
            raise ValueError(f"the encoding is {first.title}, not ALiBi.")
        return _mpt_attention(spec, first) if "attn_config" in model.keys else {}
    encodings = [encoding for encoding, _, _ in layers]
    written: Entries = {}
    if name == "smollm3":
        turned = [type(each) is not Encoding for each in encodings]
        written["no_rope_layers"] = [int(each) for each in turned]
        first = next((each for each in encodings if type(each) is not Encoding), None)
        if first is None:
            raise ValueError("no layer has RoPE.")
    elif name == "gemma3_text":
        by_mask = {mask == Causal(): encoding for encoding, _, mask in layers}
        if False in by_mask:
            written["rope_local_base_freq"] = rope_entries(by_mask[False])["rope_theta"]
        first = by_mask.get(True, first)
    written |= rope_entries(first)
    if name in _FRACTIONS:
        written[_FRACTIONS[name]] = first.rotary_fraction
    if name == "gpt_neox":
        written["rotary_emb_base"] = written.pop("rope_theta")
    return written


def _mpt_attention(spec: TransformerSpec, encoding: ALiBi) -> Entries:
    """MPT's settings of attention."""
    steepest = 8
    if encoding.slopes is not None:
        fits = lambda at: mpt_slopes(spec.dims.num_heads, at) == encoding.slopes
        steepest = next((at for at in range(1, 65) if fits(at)), 8)
    section = {"alibi": True, "alibi_bias_max": steepest}
    if spec.settings.attention_scale is not None:
        section["softmax_scale"] = spec.settings.attention_scale
    return {"attn_config": section}


def _windows(spec: TransformerSpec, model: ModelType) -> Entries:
    """Which tokens each layer sees."""
    masks = [mask for _, _, mask in layers_of(spec)]
    widths = [_width(mask) for mask in masks]
    width = next((each for each in widths if each is not None), None)
    if model.windows == "none":
        return {}
    if model.windows == "all":
        return {"sliding_window": width}
    kinds = [
        "full_attention" if each is None else "sliding_attention" for each in widths
    ]
    if model.windows == "by_kind":
        return {"sliding_window": width or model.window, "layer_types": kinds}
    if width is None:
        return {"use_sliding_window": False}
    written = {
        "use_sliding_window": True,
        "sliding_window": width,
        "layer_types": kinds,
    }
    first = kinds.index("sliding_attention")
    last_ones = all(kind == "sliding_attention" for kind in kinds[first:])
    if last_ones and "max_window_layers" in model.keys:  # for earlier transformers
        written["max_window_layers"] = first
    return written


def _width(mask: Mask | None) -> int | None:
    """The width of a window; None of a mask that is none."""
    if isinstance(mask, Window) and mask.after == 0 and mask.before is not None:
        return mask.before + 1
    return None
