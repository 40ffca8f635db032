"""What multiplies the queries of some Hugging Face models, by their place."""

from ropejax.encodings.base import Encoding
from ropejax.encodings.hf_maps import train_length
from ropejax.encodings.hf_values import Config, read_count, read_name, read_number
from ropejax.encodings.log_scale import LogScale


def mistral_scale(config: Config, rope: Config) -> LogScale | None:
    """Returns Mistral's factor on queries, by whole trained lengths before them.

    `1 + beta ln(1 + floor(position / N))`; Llama 4 counts the query's own token too.

    Raises:
        ValueError: if two entries for the model's length disagree.
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


def unturned(config: Config) -> Encoding:
    """Returns the encoding of layers without RoPE in a model that has others.

    It is none, but Llama 4 multiplies their queries by `1 + scale ln(1 + floor(n / N))`
    for n keys, where `attn_temperature_tuning` is not false.

    Raises:
        ValueError: if no encoding here does what the model does there.
    """
    model_type = read_name(config, "model_type")
    if model_type == "beam":
        raise ValueError(
            "rope_parameters has null for layer_type='full_attention', and the code of "
            "model_type='beam' multiplies queries by (1 + position / 2048) ** 0.1 "
            "there; write an Encoding that does so, and take layer_type="
            "'sliding_attention' for the others."
        )
    if model_type != "llama4_text" or not config.get("attn_temperature_tuning", True):
        return Encoding()
    scale = read_number(config, "attn_scale", zero=True)
    return LogScale(
        form="steps",
        train_length=read_count(config, "floor_scale") or 8192,
        weight=0.1 if scale is None else scale,
    )
