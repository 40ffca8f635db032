"""What there is to say of a type of Hugging Face model, beside what its config says."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ropejax.nn.from_hf import array_names
from ropejax.nn.mlp import MLP, GatedMLP
from ropejax.nn.norms import Norm, RMSNorm
from ropejax.nn.query_key_norm import Unnormalized

Stated = Literal["stated"]

_COMMON = (
    *("model_type", "vocab_size", "hidden_size", "num_hidden_layers"),
    *("num_attention_heads", "tie_word_embeddings", "max_position_embeddings"),
)
"""Entries that are read of all types."""

MULTIPLIERS = (
    *("embedding_multiplier", "attention_multiplier", "residual_multiplier"),
    "logits_scaling",
)
"""Entries that are read of types that have them (Granite)."""


class ModelType(NamedTuple):
    """What models of one type have in common: by default what Llama has.

    Attributes:
        architecture: the class of transformers that has a readout.
        names: what their arrays are called.
        keys: entries of the config that are read of this type beside the common ones.
        renamed: entries that say what a common one says -> the name of that.
        fixed: entries of which the code of this type knows one value.
        activation: the MLP's, where the config does not say.
        activation_key: the entry that says; "" if none does.
        tied: whether the embedding reads out too, where the config does not say.
        readout_bias: whether a readout of its own has a bias.
        positions: how positions enter.
        norm: of hidden states.
        epsilon: of norms, where the config does not say.
        pre_norm: parts read through norms.
        output_norm: what parts return is normalized.
        embedding_norm: embeddings are.
        mlp: form of the MLP.
        mlp_factor: its width over the model's, if no entry says it; None if one must.
        mlp_bias: whether the MLP has biases; "stated" if `mlp_bias` says.
        parallel: whether attention and MLP are; "stated" if `use_parallel_residual`
            says, which is so where it does not.
        qkv_bias: whether projections to queries, keys and values have biases; "stated"
            if `attention_bias` says.
        out_bias: the same of what attention returns.
        biased: what `attention_bias` says where it is left out.
        states_width: the config must say how wide heads are.
        kv_heads: how many key/value heads there are: "needed" of the config, "heads" if
            it may leave them out, or one.
        qk_norm: what normalizes queries and keys.
        scale_key: the entry whose root divides queries times keys, if it is not the
            width of a head; 256 where it is left out.
        caps: soft caps of attention and of logits, where the config leaves them out;
            None if this type has no such entries.
        from_one: gains of norms are kept less one.
        scaled: embeddings are multiplied by the root of the model's width.
        multipliers: entries say what embeddings, queries times keys, and what parts
            return are multiplied by, and logits divided by; 1 where they do not.
        windows: how the config says which layers have windows: not at all, all of one,
            some if `use_sliding_window`, or by kind.
        window: how wide they are where the config does not say, of all or by kind; None
            for no window.
    """

    architecture: str = "LlamaForCausalLM"
    names: array_names.Names = array_names.LLAMA
    keys: tuple[str, ...] = ("num_key_value_heads", "head_dim", "rms_norm_eps")
    renamed: Mapping[str, str] = MappingProxyType({})
    fixed: Mapping[str, Any] = MappingProxyType({})
    activation: str = "silu"
    activation_key: str = "hidden_act"
    tied: bool = False
    readout_bias: bool = False
    positions: Literal["rope", "learned", "alibi"] = "rope"
    norm: Norm = RMSNorm()
    epsilon: float = 1e-6
    pre_norm: bool = True
    output_norm: bool = False
    embedding_norm: bool = False
    mlp: type[MLP] = GatedMLP
    mlp_factor: int | None = None
    mlp_bias: bool | Stated = "stated"
    parallel: bool | Stated = False
    qkv_bias: bool | Stated = "stated"
    out_bias: bool | Stated = "stated"
    biased: bool = False
    states_width: bool = False
    kv_heads: Literal["needed", "heads", "one"] = "needed"
    qk_norm: type[Unnormalized] = Unnormalized
    scale_key: str = ""
    caps: tuple[float | None, float | None] | None = None
    from_one: bool = False
    scaled: bool = False
    multipliers: bool = False
    windows: Literal["none", "all", "some", "by_kind"] = "none"
    window: int | None = None

    @property
    def epsilon_key(self) -> str:
        """The entry that says what norms add to the variance or mean square."""
        rms = isinstance(self.norm, RMSNorm)
        return "rms_norm_eps" if rms else "layer_norm_eps"

    @property
    def read(self) -> set[str]:
        """The entries that are read, those about RoPE apart, by their usual names."""
        found = {*_COMMON, *self.keys, *self.renamed.values()}
        if self.multipliers:
            found |= {*MULTIPLIERS}
        if self.activation_key:
            found |= {self.activation_key, "hidden_act"}
        return found | ({"intermediate_size"} if self.mlp_factor is None else set())
