"""What the arrays of a Hugging Face model are called, by what they are here.

Read in the modules of transformers 5 and in the indices of published checkpoints.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class Names(NamedTuple):
    """Names of a family's arrays, without `.weight` and `.bias`.

    Attributes:
        prefix: what all but the readout begin with; a checkpoint without a readout of
            its own may leave it out, as that of GPT-2 does.
        embedding: of symbols.
        final_norm: of the norm before the readout.
        layers: what names in layers begin with, before the layer's number.
        of_layer: path here -> name there, behind that number; "attention/qkv" is one
            array of queries, keys and values, and "mlp_gate_in" one of gate and MLP.
        readout: of the readout.
        qkv: how that one array holds the three: one below the other, or each head's
            three together.
        turned: weights are `[out, in]`, as in PyTorch's Linear.
        positions: of a table of positions, if there is one.
        first_position: its row for position 0.
        embedding_norm: of the norm of embeddings, if there is one.
        unread: a pattern of the names, without the prefix, that no code reads.
    """

    prefix: str
    embedding: str
    final_norm: str
    layers: str
    of_layer: Mapping[str, str]
    readout: str = "lm_head"
    qkv: Literal["stacked", "by_head"] = "stacked"
    turned: bool = True
    positions: str = ""
    first_position: int = 0
    embedding_norm: str = ""
    unread: str = r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"


_LLAMA_ATTENTION = {
    "attention/query": "self_attn.q_proj",
    "attention/key": "self_attn.k_proj",
    "attention/value": "self_attn.v_proj",
    "attention/out": "self_attn.o_proj",
    "attention/query_gain": "self_attn.q_norm",
    "attention/key_gain": "self_attn.k_norm",
}
_LLAMA_LAYER = {
    **_LLAMA_ATTENTION,
    "mlp_gate": "mlp.gate_proj",
    "mlp_in": "mlp.up_proj",
    "mlp_out": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
}
_NEOX_LAYER = {
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attention/qkv": "attention.query_key_value",
    "attention/out": "attention.dense",
    "mlp_in": "mlp.dense_h_to_4h",
    "mlp_out": "mlp.dense_4h_to_h",
}
_BLOOM_LAYER = {
    **_NEOX_LAYER,
    "attention/qkv": "self_attention.query_key_value",
    "attention/out": "self_attention.dense",
}

LLAMA = Names(
    prefix="model.",
    embedding="model.embed_tokens",
    final_norm="model.norm",
    layers="model.layers",
    of_layer=MappingProxyType(_LLAMA_LAYER),
)
GEMMA_2 = LLAMA._replace(
    of_layer=MappingProxyType(
        {
            **_LLAMA_LAYER,
            "attention_output_norm": "post_attention_layernorm",
            "mlp_norm": "pre_feedforward_layernorm",
            "mlp_output_norm": "post_feedforward_layernorm",
        }
    )
)
PHI_3 = LLAMA._replace(
    of_layer=MappingProxyType(
        {
            "attention_norm": "input_layernorm",
            "mlp_norm": "post_attention_layernorm",
            "attention/qkv": "self_attn.qkv_proj",
            "attention/out": "self_attn.o_proj",
            "mlp_gate_in": "mlp.gate_up_proj",
            "mlp_out": "mlp.down_proj",
        }
    )
)
PHI = LLAMA._replace(
    final_norm="model.final_layernorm",
    of_layer=MappingProxyType(
        {
            **_LLAMA_ATTENTION,
            "attention/out": "self_attn.dense",
            "mlp_in": "mlp.fc1",
            "mlp_out": "mlp.fc2",
            # One norm, which attention and MLP both read through.
            "attention_norm": "input_layernorm",
            "mlp_norm": "input_layernorm",
        }
    ),
)
NEOX = Names(
    prefix="gpt_neox.",
    embedding="gpt_neox.embed_in",
    final_norm="gpt_neox.final_layer_norm",
    layers="gpt_neox.layers",
    of_layer=MappingProxyType(_NEOX_LAYER),
    readout="embed_out",
    qkv="by_head",
    unread=r"layers\.\d+\.attention\.(rotary_emb\.inv_freq|bias|masked_bias)",
)
GPT_2 = Names(
    prefix="transformer.",
    embedding="transformer.wte",
    final_norm="transformer.ln_f",
    layers="transformer.h",
    of_layer=MappingProxyType(
        {
            "attention_norm": "ln_1",
            "mlp_norm": "ln_2",
            "attention/qkv": "attn.c_attn",
            "attention/out": "attn.c_proj",
            "mlp_in": "mlp.c_fc",
            "mlp_out": "mlp.c_proj",
        }
    ),
    turned=False,
    positions="transformer.wpe",
    unread=r"h\.\d+\.attn\.(bias|masked_bias)",
)
OPT = Names(
    prefix="model.",
    embedding="model.decoder.embed_tokens",
    final_norm="model.decoder.final_layer_norm",
    layers="model.decoder.layers",
    of_layer=MappingProxyType(
        {
            **_LLAMA_ATTENTION,
            "attention/out": "self_attn.out_proj",
            "attention_norm": "self_attn_layer_norm",
            "mlp_norm": "final_layer_norm",
            "mlp_in": "fc1",
            "mlp_out": "fc2",
        }
    ),
    positions="model.decoder.embed_positions",
    first_position=2,  # the rows before are of padding
    unread=r"decoder\.version",
)
BLOOM = Names(
    prefix="transformer.",
    embedding="transformer.word_embeddings",
    final_norm="transformer.ln_f",
    layers="transformer.h",
    of_layer=MappingProxyType(_BLOOM_LAYER),
    qkv="by_head",
    embedding_norm="transformer.word_embeddings_layernorm",
    unread="",
)
FALCON = BLOOM._replace(
    of_layer=MappingProxyType({**_BLOOM_LAYER, "mlp_norm": "input_layernorm"}),
    qkv="stacked",
    embedding_norm="",
    unread=r"h\.\d+\.self_attention\.rotary_emb\.inv_freq",
)
MPT = Names(
    prefix="transformer.",
    embedding="transformer.wte",
    final_norm="transformer.norm_f",
    layers="transformer.blocks",
    of_layer=MappingProxyType(
        {
            "attention_norm": "norm_1",
            "mlp_norm": "norm_2",
            "attention/qkv": "attn.Wqkv",
            "attention/out": "attn.out_proj",
            "mlp_in": "ffn.up_proj",
            "mlp_out": "ffn.down_proj",
        }
    ),
    unread="",
)
