"""What the code of a type of model does that its Hugging Face config does not say.

What is said here was read in transformers 5: the defaults of the models' configs, and
their attention, MLP and norms.
"""

from types import MappingProxyType
from typing import Literal, NamedTuple

from ropejax.encodings.choices import check_choice
from ropejax.encodings.hf_config import check_config
from ropejax.encodings.hf_values import Config, read_name

Stated = Literal["stated"]


class ModelType(NamedTuple):
    """What models of one type have in common: by default what Llama has.

    Attributes:
        family: whose layers they have: RMS norms, a gated MLP and Llama's names of
            arrays, or layer norms, a plain MLP and the names of GPT-NeoX.
        keys: entries of the config that are read of this type beside the common ones.
        activation: the MLP's, where the config does not say.
        tied: whether the embedding reads out too, where the config does not say.
        qkv_bias: whether projections to queries, keys and values have biases; "stated"
            if `attention_bias` says.
        out_bias: the same of what attention returns.
        states_width: the config must say how wide heads are.
        states_kv_heads: the config must say how many key/value heads there are.
        qk_norm: queries and keys are normalized by the root mean square of each head.
        from_one: gains of norms are kept less one.
        scaled: embeddings are multiplied by the root of the model's width.
        windows: how the config says which layers have windows: not at all, all of one,
            or some.
    """

    family: Literal["llama", "neox"] = "llama"
    keys: tuple[str, ...] = ()
    activation: str = "silu"
    tied: bool = False
    qkv_bias: bool | Stated = "stated"
    out_bias: bool | Stated = "stated"
    states_width: bool = False
    states_kv_heads: bool = True
    qk_norm: bool = False
    from_one: bool = False
    scaled: bool = False
    windows: Literal["none", "all", "some"] = "none"


_WINDOWS = ("use_sliding_window", "sliding_window", "layer_types")

MODELS = MappingProxyType(
    {
        "llama": ModelType(keys=("attention_bias", "mlp_bias"), states_kv_heads=False),
        "mistral": ModelType(
            keys=("sliding_window",), qkv_bias=False, out_bias=False, windows="all"
        ),
        "qwen2": ModelType(
            keys=(*_WINDOWS, "max_window_layers"),
            qkv_bias=True,
            out_bias=False,
            windows="some",
        ),
        "qwen3": ModelType(
            keys=("attention_bias", *_WINDOWS, "max_window_layers"),
            states_width=True,
            qk_norm=True,
            windows="some",
        ),
        "smollm3": ModelType(
            keys=("attention_bias", "mlp_bias", *_WINDOWS), tied=True, windows="some"
        ),
        "gemma": ModelType(
            keys=("attention_bias", "hidden_activation"),
            activation="gelu_pytorch_tanh",
            tied=True,
            states_width=True,
            from_one=True,
            scaled=True,
        ),
        "gpt_neox": ModelType(
            family="neox",
            keys=("attention_bias",),
            activation="gelu",
            states_kv_heads=False,
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
