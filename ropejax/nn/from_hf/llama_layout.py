"""Where the arrays of Llama, and of models with its names, go."""

import numpy as np

from ropejax.nn.from_hf.weights import Layout, Weight, linear
from ropejax.nn.readout import TiedReadout
from ropejax.nn.transformer import TransformerSpec


def llama_layout(spec: TransformerSpec, gain_offset: float = 0.0) -> Layout:
    """Returns where the arrays of a model like Llama go.

    Args:
        spec: how the model is made.
        gain_offset: added to the gains of norms, which Gemma keeps less one.
    """
    dims, settings = spec.dims, spec.settings
    width, hidden = (dims.embed_dim,), (settings.mlp_dim,)
    queries, keys = (
        (heads, dims.head_dim) for heads in (dims.num_heads, dims.num_kv_heads)
    )
    offset = np.float32(gain_offset)
    gain = lambda name, path, size: Weight(
        f"{name}.weight", path, size, lambda gain: gain + offset
    )
    embedding, readout = "model.embed_tokens.weight", "lm_head"
    of_model = [
        Weight(embedding, "embedding", (spec.num_symbols, *width)),
        gain("model.norm", "final_norm/scale", width),
    ]
    if not isinstance(spec.readout, TiedReadout):
        outputs = (spec.num_outputs,)
        of_model += linear(readout, "readout", outputs, width, bias=False)
    of_layer = [
        gain("input_layernorm", "attention_norm/scale", width),
        gain("post_attention_layernorm", "mlp_norm/scale", width),
    ]
    for name, path, outs, ins, biased in (
        ("self_attn.q_proj", "attention/query", queries, width, settings.qkv_bias),
        ("self_attn.k_proj", "attention/key", keys, width, settings.qkv_bias),
        ("self_attn.v_proj", "attention/value", keys, width, settings.qkv_bias),
        ("self_attn.o_proj", "attention/out", width, queries, settings.out_bias),
        ("mlp.gate_proj", "mlp_gate", hidden, width, settings.mlp.bias),
        ("mlp.up_proj", "mlp_in", hidden, width, settings.mlp.bias),
        ("mlp.down_proj", "mlp_out", width, hidden, settings.mlp.bias),
    ):
        of_layer += linear(name, path, outs, ins, biased)
    own = settings.weighting.qk_norm.init_layer(dims)
    for name, there in (("query_gain", "q_norm"), ("key_gain", "k_norm")):
        if name in own:
            path = f"attention/weighting_params/qk_norm/{name}"
            of_layer.append(gain(f"self_attn.{there}", path, (dims.head_dim,)))
    return Layout(
        of_model,
        of_layer,
        layers="model.layers",
        embedding=embedding,
        readout=f"{readout}.weight",
        unread=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    )
