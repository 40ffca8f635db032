"""Where the arrays of GPT-NeoX and Pythia go."""

from ropejax.nn.from_hf.weights import Layout, Weight, linear
from ropejax.nn.readout import TiedReadout
from ropejax.nn.transformer import TransformerSpec


def neox_layout(spec: TransformerSpec) -> Layout:
    """Returns where the arrays of a model like GPT-NeoX go.

    Queries, keys and values are one projection there, head by head.

    Args:
        spec: how the model is made.
    """
    dims, settings = spec.dims, spec.settings
    width, hidden = (dims.embed_dim,), (settings.mlp_dim,)
    heads = (dims.num_heads, dims.head_dim)
    embedding, readout = "gpt_neox.embed_in.weight", "embed_out"
    of_model = [
        Weight(embedding, "embedding", (spec.num_symbols, *width)),
        *_norm("gpt_neox.final_layer_norm", "final_norm", width),
    ]
    if not isinstance(spec.readout, TiedReadout):
        outputs = (spec.num_outputs,)
        of_model += linear(readout, "readout", outputs, width, bias=False)
    of_layer = [
        *_norm("input_layernorm", "attention_norm", width),
        *_norm("post_attention_layernorm", "mlp_norm", width),
        *linear("attention.dense", "attention/out", width, heads, settings.out_bias),
        *linear("mlp.dense_h_to_4h", "mlp_in", hidden, width, settings.mlp.bias),
        *linear("mlp.dense_4h_to_h", "mlp_out", width, hidden, settings.mlp.bias),
    ]
    for which, name in enumerate(("query", "key", "value")):
        of_layer += _third(f"attention/{name}", which, heads, width, settings.qkv_bias)
    return Layout(
        of_model,
        of_layer,
        layers="gpt_neox.layers",
        embedding=embedding,
        readout=f"{readout}.weight",
        unread=r"gpt_neox\.layers\.\d+\.attention\."
        r"(rotary_emb\.inv_freq|bias|masked_bias)",
    )


def _norm(name: str, path: str, size: tuple[int, ...]) -> list[Weight]:
    return [
        Weight(f"{name}.weight", f"{path}/scale", size),
        Weight(f"{name}.bias", f"{path}/bias", size),
    ]


def _third(
    path: str, which: int, heads: tuple[int, int], ins: tuple[int, ...], bias: bool
) -> list[Weight]:
    """Queries, keys or values of the one projection, `[N * 3 * H, D]`."""
    name, (number, size) = "attention.query_key_value", heads
    split = lambda array: array.reshape(number, 3, size, *array.shape[1:])[:, which]
    shape = (number * 3 * size, *ins)
    turn = lambda weight: split(weight).transpose(2, 0, 1)
    found = [Weight(f"{name}.weight", f"{path}/kernel", shape, turn)]
    if bias:
        found.append(Weight(f"{name}.bias", f"{path}/bias", shape[:1], split))
    return found
