"""What the code of a model does that its Hugging Face config does not say.

Two configs with the same entries may mean two things, because the model's type decides:
how channels are paired, whether there is a rotation at all, and what multiplies the
softmax scale. What is said here was read in transformers, or in the code published with
the weights where a model has its own.
"""

from collections.abc import Mapping

from ropejax.encodings.hf_config import states_rope
from ropejax.encodings.hf_values import Config, read_flag, read_name
from ropejax.encodings.rotation import Layout

_DEEPSEEK = (
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "longcat_flash"),
    *("axk1", "axk2", "bailing_hybrid", "glm4_moe_lite", "glm_moe_dsa"),
    *("hy_v4_vl_text", "mistral4", "sarvam_mla", "youtu"),
)
"""Model types whose attention is DeepSeek's, with a factor on the softmax scale."""

_SCALED_HALVES = ("hy_v4", "minicpm3")
"""Model types that have DeepSeek's factor, but pair halves."""

_INTERLEAVED = (
    *_DEEPSEEK,
    *("gptj", "codegen", "roformer", "cohere", "cohere2", "cohere2_moe", "chatglm"),
    *("glm", "glm4", "glm4v_text", "glm_ocr_text", "moonshine", "moonshine_streaming"),
    *("ernie4_5", "ernie4_5_moe", "helium", "llama4_text", "openai_privacy_filter"),
    *("blt", "blt_global_transformer", "blt_local_decoder", "blt_local_encoder"),
    "dots3_note_text",
)
"""Model types whose code pairs neighbouring channels (unless `rope_interleave`)."""

_OTHERWISE = {
    "deepseek_v4": "turns the last channels of a head, where encodings here turn the "
    "first ones",
    "ernie4_5_vl_moe": "deals pairs to height and width by turns, and the last ones to "
    "time",
    "ernie4_5_vl_moe_text": "deals pairs to height and width by turns, and the last "
    "ones to time",
    "mistral_large4_text": "learns a factor on each frequency, which "
    "Rotary(trainable='shared') has, and scales queries by learned numbers",
}
"""Model types that do what no encoding made from a config does."""

_NOT_ROTARY = (
    *("albert", "bert", "big_bird", "biogpt", "camembert", "deberta", "deberta-v2"),
    *("distilbert", "electra", "gpt2", "gpt_bigcode", "gpt_neo", "longformer", "mpnet"),
    *("openai-gpt", "opt", "roberta", "xglm", "xlm", "xlm-roberta", "ctrl"),
    *("bart", "mbart", "m2m_100", "pegasus", "led", "marian", "whisper", "prophetnet"),
    *("t5", "mt5", "umt5", "longt5", "switch_transformers", "udop"),
    *("bloom", "mpt", "transfo-xl", "xlnet"),
    *("mamba", "mamba2", "falcon_mamba", "rwkv", "jamba", "reformer", "fnet"),
    *("bark", "bert-generation", "bigbird_pegasus", "blenderbot", "blenderbot-small"),
    *("bros", "canine", "convbert", "cpmant", "data2vec-text", "decision_transformer"),
    *("dpr", "ernie", "flaubert", "fsmt", "funnel", "ibert", "imagegpt", "kimi_linear"),
    *("layoutlm", "lilt", "luke", "markuplm", "megatron-bert", "mobilebert", "mra"),
    *("musicgen_decoder", "mvp", "nemotron_h", "nllb-moe", "nystromformer"),
    *("pegasus_x", "perceiver", "plbart", "rembert", "roberta-prelayernorm"),
    *("roc_bert", "splinter", "squeezebert", "tapas", "trocr", "xlm-roberta-xl"),
    *("xlstm", "xmod", "yoso", "zamba", "glm5_next_text", "moshi_depth"),
    *("inkling_text", "inkling2_text", "inkling2_loop_text"),
)
"""Model types whose code knows no rotation: tables, biases, recurrence or nothing."""

_ASKS_FOR_ROPE = {
    "esm": ("position_embedding_type", "rotary"),
    "granitemoehybrid": ("position_embedding_type", "rope"),
    "zamba2": ("use_mem_rope", True),
}
"""Model types without RoPE unless an entry says so, and that entry."""

_BUCKETS = ("relative_attention_num_buckets", "relative_attention_max_distance")
_ROTARY_NAMES = ("rope", "rotary")
_MORE_THAN_ROPE = ("use_dynamic_ntk", "use_logn_attn")
"""What Qwen's first models add, by the length of a prompt, in code of their own."""


def check_rotary(config: Config) -> None:
    """Raises ValueError for the config of a model that is known to have no RoPE.

    Args:
        config: the text model's config.
    """
    remedy = "build the encoding that it has, or drop the entry if it does rotate."
    parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    for part in parts:
        if read_flag(part, "alibi", False):
            raise ValueError(f"alibi=True: this model has ALiBi and no RoPE; {remedy}")
    model_type = read_name(config, "model_type")
    if model_type in _ASKS_FOR_ROPE:
        key, asked = _ASKS_FOR_ROPE[model_type]
        if config.get(key) != asked:
            raise ValueError(
                f"{key} is {config.get(key)!r}, not {asked!r}: this model has no RoPE; "
                f"{remedy}"
            )
    kind = read_name(config, "position_embedding_type")
    if kind == "absolute" and states_rope(config):
        kind = None  # BERT's default, which ModernBERT's released config carries along
    if kind is not None and not any(name in kind for name in _ROTARY_NAMES):
        raise ValueError(
            f"position_embedding_type={kind!r}: this model has no RoPE; {remedy}"
        )
    for key in _BUCKETS:
        if config.get(key) is not None:
            raise ValueError(
                f"{key}={config[key]!r}: this model has T5's bias and no RoPE; {remedy}"
            )
    if model_type in _NOT_ROTARY:
        raise ValueError(f"model_type={model_type!r}: it has no RoPE; {remedy}")
    if model_type == "olmo_hybrid" and not _states_base(config):
        raise ValueError(
            "the config states no rope_theta, and the released models of model_type "
            "'olmo_hybrid' have no RoPE; add rope_theta if this one has."
        )
    for key in _MORE_THAN_ROPE:
        if read_flag(config, key, False):
            raise ValueError(
                f"{key}=True: this model's code changes more with the length than "
                "RoPE; drop the entry and compose DynamicNTKRoPE or LogScale."
            )
    if model_type in _OTHERWISE:
        raise ValueError(
            f"model_type={model_type!r} {_OTHERWISE[model_type]}; build its encoding "
            "from the parts that there are."
        )


def _states_base(config: Config) -> bool:
    places = (config, config.get("rope_parameters"), config.get("rope_scaling"))
    places = [place for place in places if isinstance(place, Mapping)]
    return any(place.get("rope_theta") is not None for place in places)


def paired(config: Config) -> Layout:
    """Returns how channels are paired: as `rope_interleave` says, or by model type."""
    interleave = read_flag(config, "rope_interleave")
    if interleave is None:  # Nomic BERT's name for it
        interleave = read_flag(config, "rotary_emb_interleaved")
    if interleave is None:
        interleave = read_name(config, "model_type") in _INTERLEAVED
    return "interleaved" if interleave else "half"


def scales_softmax(config: Config) -> bool:
    """Returns True if `mscale_all_dim` multiplies the softmax scale, as in DeepSeek's.

    The code published with DeepSeek-V2 and V3 does so, and that of transformers 5.24
    for all of these (earlier ones left it out for V2 and Mistral 4).
    """
    return read_name(config, "model_type") in (*_DEEPSEEK, *_SCALED_HALVES)
