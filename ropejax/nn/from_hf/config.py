"""From the config of a Hugging Face checkpoint to how its model is made here."""

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from ropejax.encodings import Dims
from ropejax.encodings.choices import check_choice
from ropejax.encodings.hf_values import (
    Config,
    need,
    need_count,
    read_count,
    read_flag,
    read_name,
    read_number,
)
from ropejax.nn.block import BlockSettings
from ropejax.nn.from_hf.entries import check_entries, usual_names
from ropejax.nn.from_hf.model_type import ModelType
from ropejax.nn.from_hf.models import MODELS, model_type_of
from ropejax.nn.from_hf.positions import mpt_attention, positions_of, soft_caps
from ropejax.nn.from_hf.windows import masks_of
from ropejax.nn.query_key_norm import HeadRMSNorm
from ropejax.nn.readout import LinearReadout, TiedReadout
from ropejax.nn.transformer import LayerKind, TransformerSpec


def exact_gelu(x: jax.Array) -> jax.Array:
    """Returns `x Phi(x)`, Phi the normal distribution, which `jax.nn.gelu` does not."""
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS = MappingProxyType(
    {
        "silu": jax.nn.silu,
        "swish": jax.nn.silu,
        "relu": jax.nn.relu,
        "gelu": exact_gelu,
        "gelu_new": jax.nn.gelu,
        "gelu_pytorch_tanh": jax.nn.gelu,
        "tanh": jax.nn.tanh,
    }
)
"""Names in configs -> functions."""


def spec_from_hf(config: Config, *, dtype: Any = "float32") -> TransformerSpec:
    """Returns how the model of a Hugging Face config is made here.

    The types of `ropejax.nn.from_hf.models.MODELS` are known, by their `model_type`:
    Llama and what is made like it, GPT-2, OPT, GPT-NeoX (Pythia), BLOOM, MPT, Falcon
    (7B), Phi and Granite. Layers have the encodings of
    `ropejax.encodings.encodings_from_hf`, a table of positions or ALiBi, and windows
    and soft caps where the model has them; there is no dropout.

    Args:
        config: the whole config as a dict: the JSON file, or `to_dict()` of the object.
        dtype: dtype of the computation; norms, softmax and readout stay float32.

    Raises:
        ValueError: for a type of model, an entry or a value that is not known, one that
            is missing, or sizes that do not fit each other.

    References:
        Touvron et al. 2023 (Llama), arXiv 2302.13971; Jiang et al. 2023 (Mistral),
        2310.06825; Yang et al. 2024 (Qwen2), 2407.10671, and 2025 (Qwen3), 2505.09388;
        Gemma Team 2024, 2403.08295, 2408.00118 (Gemma 2), and 2025 (Gemma 3),
        2503.19786; Groeneveld et al. 2024 (OLMo), 2402.00838, and OLMo Team 2025,
        2501.00656; Abdin et al. 2024 (Phi-3), 2404.14219; Radford et al. 2019 (GPT-2);
        Zhang et al. 2022 (OPT), 2205.01068; Black et al. 2022 (GPT-NeoX), 2204.06745;
        Biderman et al. 2023 (Pythia), 2304.01373; Le Scao et al. 2022 (BLOOM),
        2211.05100; MosaicML 2023 (MPT); Almazrouei et al. 2023 (Falcon), 2311.16867;
        IBM 2024 (Granite 3.0 language models);
        and their configs in transformers 5.
    """
    name = model_type_of(config)
    model = MODELS[name]
    config = usual_names(config, model)
    encodings = None
    if model.positions == "rope":  # and keys that resemble those of RoPE
        encodings = positions_of(config, model)
    check_entries(config, name, model)
    encodings = positions_of(config, model) if encodings is None else encodings
    heads, width = (
        need_count(config, key) for key in ("num_attention_heads", "hidden_size")
    )
    head_dim = _head_dim(config, model, heads, width)
    symbols = need_count(config, "vocab_size")
    dims = Dims(
        num_heads=heads,
        num_kv_heads=_kv_heads(config, model, heads),
        head_dim=head_dim,
        embed_dim=width,
        num_layers=need_count(config, "num_hidden_layers"),
        causal=True,
    )
    stated = lambda flag, key, default: (
        read_flag(config, key, default) if flag == "stated" else flag
    )
    epsilon = read_number(config, model.epsilon_key) or model.epsilon
    qk_norm = model.qk_norm
    settings = BlockSettings(
        mlp_dim=_mlp_dim(config, model, width),
        activation=_activation(config, name, model),
        pre_norm=model.pre_norm,
        output_norm=model.output_norm,
        dropout=0.0,
        dtype=jnp.dtype(dtype),
        norm=dataclasses.replace(model.norm, epsilon=epsilon),
        qk_norm=qk_norm(epsilon) if issubclass(qk_norm, HeadRMSNorm) else qk_norm(),
        attention_scale=_attention_scale(config, model, head_dim),
        residual_scale=_multiplier(config, "residual_multiplier"),
        mlp=model.mlp(bias=stated(model.mlp_bias, "mlp_bias", False)),
        parallel=stated(model.parallel, "use_parallel_residual", True),
        qkv_bias=stated(model.qkv_bias, "attention_bias", model.biased),
        out_bias=stated(model.out_bias, "attention_bias", model.biased),
    )
    masks = masks_of(config, model, dims.num_layers)
    embedding_scale = _multiplier(config, "embedding_multiplier")
    tied = read_flag(config, "tie_word_embeddings", model.tied)
    cap = soft_caps(config, model)[1]
    readout = TiedReadout() if tied else LinearReadout(bias=model.readout_bias)
    return TransformerSpec(
        num_symbols=symbols,
        num_outputs=symbols,
        dims=dims,
        settings=settings,
        pattern=shortest(tuple(map(LayerKind, encodings, masks))),
        readout=dataclasses.replace(
            readout, cap=cap, divisor=_multiplier(config, "logits_scaling")
        ),
        embedding_scale=None if model.scaled else embedding_scale,
        embedding_norm=model.embedding_norm,
    )


def trained_length(config: Config) -> int | None:
    """Returns how many tokens a checkpoint was trained on, None if it does not say.

    Where RoPE was extended it is the length before that.

    Args:
        config: the whole config as a dict.

    Raises:
        ValueError: for a type of model that is not known, or a length that is none.
    """
    found = usual_names(config, MODELS[model_type_of(config)])
    scaling = found.get("rope_scaling") or found.get("rope_parameters")
    places = [scaling] if isinstance(scaling, dict) else []
    before = "original_max_position_embeddings"
    known = [read_count(place, before) for place in (*places, found)]
    known.append(read_count(found, "max_position_embeddings"))
    return next(filter(None, known), None)


def shortest(kinds: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """Returns the shortest pattern that, repeated, gives these layers."""
    number = len(kinds)
    for period in range(1, number + 1):
        if number % period == 0 and kinds == kinds[:period] * (number // period):
            return kinds[:period]
    return kinds


def _kv_heads(config: Config, model: ModelType, heads: int) -> int:
    key = "num_key_value_heads"
    if model.kv_heads == "one":
        return 1
    if model.kv_heads == "needed" and key not in config:
        need(config, key)
    return read_count(config, key) or heads


def _head_dim(config: Config, model: ModelType, heads: int, width: int) -> int:
    if model.states_width:
        return need_count(config, "head_dim")
    given = read_count(config, "head_dim")
    if given is None and width % heads:
        raise ValueError(
            f"num_attention_heads={heads} does not divide hidden_size={width}"
            + (
                ", and the config lacks 'head_dim'; add it."
                if "head_dim" in model.keys
                else "; change one of them."
            )
        )
    return given or width // heads


def _mlp_dim(config: Config, model: ModelType, width: int) -> int:
    projected = read_count(config, "word_embed_proj_dim")
    if projected not in (None, width):
        raise ValueError(
            f"word_embed_proj_dim={projected} is not hidden_size={width}: embeddings "
            "of another width than the model's are not known here; use another "
            "checkpoint."
        )
    if model.mlp_factor is None:
        return need_count(config, "intermediate_size")
    return read_count(config, "intermediate_size") or model.mlp_factor * width


def _multiplier(config: Config, name: str) -> float:
    given = read_number(config, name)
    return 1.0 if given is None else given


def _attention_scale(config: Config, model: ModelType, head_dim: int) -> float | None:
    """The factor on queries times keys, None where it is that of the head's width."""
    if "attn_config" in model.keys:
        return read_number(mpt_attention(config), "softmax_scale")
    if not read_flag(config, "scale_attn_weights", True):
        return 1.0
    if model.multipliers:
        return _multiplier(config, "attention_multiplier")
    if not model.scale_key:
        return None
    given = read_number(config, model.scale_key) or 256.0
    return None if given == head_dim else given**-0.5


def _activation(config: Config, name: str, model: ModelType) -> Callable:
    """The MLP's activation; Gemma's "gelu" is the approximated one in its own code."""
    key = model.activation_key
    if not key:
        return ACTIVATIONS[model.activation]
    given, other = read_name(config, key), read_name(config, "hidden_act")
    if name == "gemma":
        given = read_name(config, "hidden_activation") or given
        given = None if given == "gelu" else given
    elif key != "hidden_act" and other not in (None, "gelu", given or model.activation):
        raise ValueError(
            f"hidden_act={other!r} contradicts {key}={given or model.activation!r}, "
            "which the code of this type reads; drop the first."
        )
    given = given or model.activation
    check_choice(key, given, ACTIVATIONS)
    return ACTIVATIONS[given]
