"""What transformers puts where the config of a model says nothing about RoPE.

A config may leave an entry out that its model's code then fills in, by the model's
type: the base, the part of a head that turns, the names of sizes. What is said here was
read in transformers 5.24 (`default_theta` and `__post_init__` of its configs), or in
the code published with the weights where transformers has none.
"""

from ropejax.encodings.hf_values import Config, read_count, read_name

_BASES = {
    "apertus": 12e6,
    "apertus1p5_text": 12e6,
    "bailing_hybrid": 6e6,
    "bitnet": 5e5,
    "blt": 5e5,
    "blt_global_transformer": 5e5,
    "blt_local_decoder": 5e5,
    "blt_local_encoder": 5e5,
    "cohere": 5e5,
    "csm": 5e5,
    "csm_depth_decoder_model": 5e5,
    "cwm": 1e6,
    "emu3_text_model": 1e6,
    "ernie4_5": 5e5,
    "ernie4_5_moe": 5e5,
    "exaone": 5e5,
    "flex_olmo": 5e5,
    "gemma3_text": 1e6,
    "gemma3n_text": 1e6,
    "gpt_oss": 15e4,
    "gte": 16e4,
    "helium": 1e5,
    "hy_v3": 11_158_840.0,
    "jina_embeddings_v3": 2e4,
    "lfm2": 1e6,
    "lfm2_moe": 1e6,
    "llama4_text": 5e5,
    "longcat_flash": 1e7,
    "minimax": 1e6,
    "minimax_m2": 5e6,
    "minimax_m3_vl_text": 5e6,
    "mixtral": 1e6,
    "mllama_text_model": 5e5,
    "modernbert": 16e4,
    "modernbert-decoder": 16e4,
    "muse_glimmer_assistant": 5e5,
    "muse_spark_text": 5e5,
    "nomic_bert": 1e3,
    "olmo3": 5e5,
    "paddleocr_vl_text": 5e5,
    "phimoe": 1e6,
    "qwen2_5_omni_talker": 1e6,
    "qwen2_5_omni_text": 1e6,
    "qwen2_5_vl_text": 1e6,
    "qwen2_vl_text": 1e6,
    "qwen3_omni_moe_text": 1e6,
    "qwen3_vl_moe_text": 5e5,
    "qwen3_vl_text": 5e5,
    "sarvam_moe": 8e6,
    "smollm3": 2e6,
    "solar_open": 1e6,
    "t5gemma2_decoder": 1e6,
    "t5gemma2_text": 1e6,
}
"""Bases other than 10000, by model type; where kinds of layers differ, of full ones."""

_LOCAL_BASE = 10_000.0
_LOCAL_BASES = {
    **dict.fromkeys(
        ("gemma3_text", "gemma3n_text", "t5gemma2_text", "t5gemma2_decoder"),
        {"rope_local_base_freq": _LOCAL_BASE},
    ),
    **dict.fromkeys(
        ("modernbert", "modernbert-decoder"),
        {"global_rope_theta": 16e4, "local_rope_theta": _LOCAL_BASE},
    ),
}
"""Entries of models whose kinds of layers have two bases, where they are left out."""

_FRACTIONS = {
    "bamba": 0.5,
    "chatglm": 0.5,
    "glm": 0.5,
    "glm4": 0.5,
    "glm4_moe": 0.5,
    "glm4v_moe_text": 0.5,
    "gpt_neox": 0.25,
    "moonshine": 0.9,
    "moonshine_streaming": 0.8,
    "nemotron": 0.5,
    "persimmon": 0.5,
    "phi": 0.5,
    "qwen3_5_moe_text": 0.25,
    "qwen3_5_text": 0.25,
    "qwen3_next": 0.25,
    "recurrent_gemma": 0.5,
    "stablelm": 0.25,
}
"""Parts of a head that turn, other than all of it."""

_ROTARY_DIMS = {"codegen": 64, "gptj": 64}
"""Channels of a head that turn, where a number of them is left out."""

_OWN_EXTENSION = (
    *("apertus", "apertus1p5_text", "beam", "cwm", "diffusion_gemma_text", "dory"),
    *("dots3_note_text", "embedding_gemma2_text", "gemma4_text", "gpt_oss"),
    *("gemma4_unified_text", "cosmos3_edge_text", "hy_v4_vl_text"),
    *("higgs_audio_v2", "laguna", "lfm3", "mellum", "mimo_v2_flash", "ministral3"),
    *("mistral4", "neomme", "openai_privacy_filter", "ultrabert", "zaya"),
)
"""Model types that are extended, or have kinds of layers, where no entry says so."""

_SIZES = {
    "num_attention_heads": ("n_head", "n_heads"),
    "hidden_size": ("n_embd", "d_model"),
    "max_position_embeddings": ("n_positions", "max_seq_len"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
}
"""Other names of sizes (GPT-J, CodeGen, DBRX)."""


def with_default_bases(config: Config) -> Config:
    """Returns the config with both bases, if its model has two."""
    filled = _LOCAL_BASES.get(read_name(config, "model_type"), {})
    return {**filled, **{k: v for k, v in config.items() if v is not None}}


def default_local_base(config: Config) -> float | None:
    """Returns the base of sliding layers where it is left out; None if all are alike.

    It is for settings by kind of layer, `with_default_bases` for others.
    """
    return _LOCAL_BASE if config.get("model_type") in _LOCAL_BASES else None


def fills_kinds(config: Config) -> bool:
    """Returns True if a kind of layers without settings has the usual ones, not none.

    Elsewhere null for a kind of layers says that they have no RoPE.
    """
    return config.get("model_type") in (*_LOCAL_BASES, "olmo3")


def default_base(config: Config) -> float:
    """Returns the base of a model whose config states none."""
    return _BASES.get(read_name(config, "model_type"), 10_000.0)


def default_fraction(config: Config) -> float:
    """Returns what part of a head turns in a model whose config does not say."""
    return _FRACTIONS.get(read_name(config, "model_type"), 1.0)


def rotary_dim(config: Config) -> int | None:
    """Returns how many channels of a head turn, None if no number is known."""
    given = read_count(config, "rotary_dim")
    return _ROTARY_DIMS.get(config.get("model_type")) if given is None else given


def with_usual_names(config: Config) -> Config:
    """Returns the config with sizes under the names that most models have."""
    found = {
        usual: config[name]
        for usual, names in _SIZES.items()
        for name in names
        if config.get(usual) is None and config.get(name) is not None
    }
    return {**config, **found} if found else config


def check_extension_stated(config: Config) -> None:
    """Raises ValueError if the model's code would fill in more than a base."""
    kind = config.get("model_type")
    keys = ("rope_parameters", "rope_scaling", "swa_rope_theta")
    stated = any(config.get(key) for key in keys)
    if kind in _OWN_EXTENSION and not stated:
        raise ValueError(
            f"the config has no rope_parameters, and the code of model_type {kind!r} "
            "then has settings of its own for them, more than a base; pass the whole "
            "config, from to_dict() of the config object."
        )
