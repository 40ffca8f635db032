"""What the code of each type of model does that its Hugging Face config does not say.

What is said here was read in transformers 5: the defaults of the models' configs, and
their attention, MLP and norms.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ropejax.encodings.choices import check_choice
from ropejax.encodings.hf_config import check_config
from ropejax.encodings.hf_values import Config, read_name
from ropejax.nn.from_hf import array_names
from ropejax.nn.from_hf.model_type import ModelType
from ropejax.nn.mlp import MLP
from ropejax.nn.norms import LayerNorm
from ropejax.nn.query_key_norm import HeadRMSNorm, JointRMSNorm

_LLAMA = ModelType()
_GROUPED = _LLAMA.keys
_WINDOWS = ("use_sliding_window", "sliding_window", "layer_types")
_SOME = {"windows": "some", "keys": (*_GROUPED, *_WINDOWS, "max_window_layers")}
_GEMMA = ModelType(
    architecture="GemmaForCausalLM",
    keys=(*_GROUPED, "attention_bias", "hidden_activation"),
    activation="gelu_pytorch_tanh",
    tied=True,
    states_width=True,
    mlp_bias=False,
    from_one=True,
    scaled=True,
)
_GEMMA_2 = _GEMMA._replace(
    architecture="Gemma2ForCausalLM",
    names=array_names.GEMMA_2,
    keys=(
        *(*_GROUPED, "attention_bias", "hidden_activation", "query_pre_attn_scalar"),
        *("attn_logit_softcapping", "final_logit_softcapping"),
        *("sliding_window", "layer_types"),
    ),
    activation_key="hidden_activation",
    output_norm=True,
    scale_key="query_pre_attn_scalar",
    caps=(50.0, 30.0),
    windows="by_kind",
    window=4096,
)
_OLMO_2 = ModelType(
    architecture="Olmo2ForCausalLM",
    names=array_names.GEMMA_2,
    keys=(*_GROUPED, "attention_bias"),
    epsilon=1e-5,
    pre_norm=False,
    output_norm=True,
    mlp_bias=False,
    kv_heads="heads",
    qk_norm=JointRMSNorm,
)
_PLAIN = ModelType(
    norm=LayerNorm(),
    keys=("layer_norm_eps",),
    epsilon=1e-5,
    mlp=MLP,
    mlp_bias=True,
    qkv_bias=True,
    out_bias=True,
    kv_heads="heads",
)
"""What models before Llama have: layer norms, and an MLP of two projections."""

_OF_GPT_2 = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
}

MODELS: Mapping[str, ModelType] = MappingProxyType(
    {
        "llama": _LLAMA._replace(
            keys=(*_GROUPED, "attention_bias", "mlp_bias"), kv_heads="heads"
        ),
        "mistral": ModelType(
            architecture="MistralForCausalLM",
            keys=(*_GROUPED, "sliding_window"),
            qkv_bias=False,
            out_bias=False,
            mlp_bias=False,
            windows="all",
            window=4096,
        ),
        "qwen2": ModelType(
            architecture="Qwen2ForCausalLM",
            qkv_bias=True,
            out_bias=False,
            mlp_bias=False,
            **_SOME,
        ),
        "qwen3": ModelType(
            architecture="Qwen3ForCausalLM",
            states_width=True,
            mlp_bias=False,
            qk_norm=HeadRMSNorm,
            **{**_SOME, "keys": (*_SOME["keys"], "attention_bias")},
        ),
        "smollm3": ModelType(
            architecture="SmolLM3ForCausalLM",
            keys=(*_GROUPED, "attention_bias", "mlp_bias", *_WINDOWS),
            tied=True,
            windows="some",
        ),
        "granite": _LLAMA._replace(
            architecture="GraniteForCausalLM",
            keys=("num_key_value_heads", "rms_norm_eps", "attention_bias", "mlp_bias"),
            kv_heads="heads",
            multipliers=True,
        ),
        "gemma": _GEMMA,
        "gemma2": _GEMMA_2,
        "gemma3_text": _GEMMA_2._replace(
            architecture="Gemma3ForCausalLM",
            keys=(*_GEMMA_2.keys, "sliding_window_pattern"),
            qk_norm=HeadRMSNorm,
            caps=(None, None),
        ),
        "olmo": ModelType(
            architecture="OlmoForCausalLM",
            keys=("num_key_value_heads", "attention_bias"),
            fixed={"clip_qkv": None},
            norm=LayerNorm(gain=False, bias=False),
            epsilon=1e-5,
            mlp_bias=False,
            kv_heads="heads",
        ),
        "olmo2": _OLMO_2,
        "olmo3": _OLMO_2._replace(
            architecture="Olmo3ForCausalLM",
            keys=(*_OLMO_2.keys, "sliding_window", "layer_types"),
            windows="by_kind",
            window=4096,
        ),
        "phi3": ModelType(
            architecture="Phi3ForCausalLM",
            names=array_names.PHI_3,
            keys=("num_key_value_heads", "rms_norm_eps", "sliding_window"),
            fixed={"lm_head_bias": False},
            epsilon=1e-5,
            mlp_bias=False,
            qkv_bias=False,
            out_bias=False,
            kv_heads="heads",
            windows="all",
        ),
        "stablelm": ModelType(
            architecture="StableLmForCausalLM",
            keys=("num_key_value_heads", "layer_norm_eps", "use_qkv_bias"),
            renamed={"use_qkv_bias": "attention_bias"},
            fixed={"use_parallel_residual": False, "qk_layernorm": False},
            norm=LayerNorm(),
            epsilon=1e-5,
            mlp_bias=False,
            out_bias=False,
        ),
        "gpt_neox": _PLAIN._replace(
            architecture="GPTNeoXForCausalLM",
            names=array_names.NEOX,
            keys=("layer_norm_eps", "use_parallel_residual", "attention_bias"),
            activation="gelu",
            parallel="stated",
            qkv_bias="stated",
            out_bias="stated",
            biased=True,
        ),
        "phi": _PLAIN._replace(
            architecture="PhiForCausalLM",
            names=array_names.PHI,
            keys=("layer_norm_eps", "num_key_value_heads"),
            fixed={"qk_layernorm": False},
            activation="gelu_new",
            readout_bias=True,
            parallel=True,
        ),
        "gpt2": _PLAIN._replace(
            architecture="GPT2LMHeadModel",
            names=array_names.GPT_2,
            renamed=_OF_GPT_2,
            fixed={"scale_attn_by_inverse_layer_idx": False},
            keys=("layer_norm_eps", "scale_attn_weights"),
            activation="gelu_new",
            tied=True,
            positions="learned",
            mlp_factor=4,
        ),
        "opt": _PLAIN._replace(
            architecture="OPTForCausalLM",
            names=array_names.OPT,
            keys=("word_embed_proj_dim",),
            renamed={
                "ffn_dim": "intermediate_size",
                "activation_function": "hidden_act",
            },
            fixed={
                "do_layer_norm_before": True,
                "_remove_final_layer_norm": False,
                "layer_norm_elementwise_affine": True,
                "enable_bias": True,
            },
            activation="relu",
            tied=True,
            positions="learned",
        ),
        "bloom": _PLAIN._replace(
            architecture="BloomForCausalLM",
            names=array_names.BLOOM,
            renamed={
                "n_embed": "hidden_size",
                "n_head": "num_attention_heads",
                "n_layer": "num_hidden_layers",
                "layer_norm_epsilon": "layer_norm_eps",
            },
            fixed={
                "apply_residual_connection_post_layernorm": False,
                "skip_bias_add_qkv": False,
            },
            activation="gelu_new",
            activation_key="",
            tied=True,
            positions="alibi",
            embedding_norm=True,
            mlp_factor=4,
        ),
        "mpt": _PLAIN._replace(
            architecture="MptForCausalLM",
            names=array_names.MPT,
            keys=("layer_norm_eps", "attn_config"),
            renamed={
                "d_model": "hidden_size",
                "n_heads": "num_attention_heads",
                "n_layers": "num_hidden_layers",
                "max_seq_len": "max_position_embeddings",
                "layer_norm_epsilon": "layer_norm_eps",
            },
            fixed={"no_bias": True, "expansion_ratio": 4, "logit_scale": None},
            activation="gelu",
            activation_key="",
            tied=True,
            positions="alibi",
            norm=LayerNorm(bias=False),
            mlp_factor=4,
            mlp_bias=False,
            qkv_bias=False,
            out_bias=False,
        ),
        "falcon": _PLAIN._replace(
            architecture="FalconForCausalLM",
            names=array_names.FALCON,
            renamed={
                **_OF_GPT_2,
                "ffn_hidden_size": "intermediate_size",
                "activation": "hidden_act",
            },
            fixed={
                "alibi": False,
                "multi_query": True,
                "parallel_attn": True,
                "new_decoder_architecture": False,
                "bias": False,
                "apply_residual_connection_post_layernorm": False,
                "num_ln_in_parallel_attn": None,
            },
            activation="gelu",
            tied=True,
            mlp_factor=4,
            mlp_bias=False,
            parallel=True,
            qkv_bias=False,
            out_bias=False,
            kv_heads="one",
        ),
    }
)
"""`model_type` of a config -> what its code does."""


def model_type_of(config: Config) -> str:
    """Returns the type of a config's model.

    Raises:
        ValueError: if it is none of `MODELS`, or the config no dict.
    """
    check_config(config)
    name = read_name(config, "model_type")
    if name is None:
        raise ValueError(
            f"the config lacks 'model_type'; add it, one of {', '.join(MODELS)}."
        )
    check_choice("model_type", name, MODELS)
    return name
