"""Where the arrays of a checkpoint go, by the names that its family has for them."""

import math
from collections.abc import Callable

import numpy as np

from ropejax.encodings import Dims
from ropejax.nn.from_hf.array_names import Names
from ropejax.nn.from_hf.weights import Layout, Weight
from ropejax.nn.readout import TiedReadout
from ropejax.nn.transformer import TransformerSpec

Sizes = tuple[int, ...]


def layout_of(spec: TransformerSpec, names: Names, gain_offset: float = 0.0) -> Layout:
    """Returns where the arrays of a model go.

    Args:
        spec: how the model is made.
        names: what they are called.
        gain_offset: added to the gains of norms, which Gemma keeps less one.
    """
    dims, settings = spec.dims, spec.settings
    width: Sizes = (dims.embed_dim,)
    embedding = f"{names.embedding}.weight"
    norm = lambda name, path: _norm(settings.norm, name, path, width, gain_offset)
    of_model = [
        Weight(embedding, "embedding", (spec.num_symbols, *width)),
        *norm(names.final_norm, "final_norm"),
    ]
    if spec.embedding_norm:
        of_model += norm(names.embedding_norm, "embedding_norm")
    if names.positions:
        of_model.append(_table(spec, names))
    if not isinstance(spec.readout, TiedReadout):
        whole = [("readout", (spec.num_outputs,))]
        of_model += _linear(names.readout, whole, width, spec.readout.bias)
    of_layer = []
    for part in ("attention", "mlp"):
        if settings.pre_norm:
            of_layer += norm(names.of_layer[f"{part}_norm"], f"{part}_norm")
        if settings.output_norm:
            path = f"{part}_output_norm"
            of_layer += norm(names.of_layer[path], path)
    return Layout(
        of_model,
        [*of_layer, *_projections(spec, names), *_gains(spec, names, gain_offset)],
        layers=names.layers,
        prefix=names.prefix,
        embedding=embedding,
        readout=f"{names.readout}.weight",
        unread=names.unread,
    )


def _projections(spec: TransformerSpec, names: Names) -> list[Weight]:
    """Those of attention and MLP, each by itself or several in one array."""
    dims, settings = spec.dims, spec.settings
    there, found = names.of_layer, []
    width, hidden = (dims.embed_dim,), (settings.mlp_dim,)
    queries, keys = _heads(dims, dims.num_heads), _heads(dims, dims.num_kv_heads)
    three = [
        ("attention/query", queries),
        ("attention/key", keys),
        ("attention/value", keys),
    ]
    gated = settings.mlp.num_projections == 3
    of_mlp = [("mlp_gate", hidden), ("mlp_in", hidden)][0 if gated else 1 :]
    for outs, one, biased in (
        (three, "attention/qkv", settings.qkv_bias),
        (of_mlp, "mlp_gate_in", settings.mlp.bias),
    ):
        if one in there and one == "attention/qkv" and names.qkv == "by_head":
            found += _by_head(there[one], outs, width, biased)
        elif one in there:
            found += _linear(there[one], outs, width, biased, turned=names.turned)
        else:
            for each in outs:
                found += _linear(there[each[0]], [each], width, biased, names.turned)
    for path, ins, biased in (
        ("attention/out", queries, settings.out_bias),
        ("mlp_out", hidden, settings.mlp.bias),
    ):
        found += _linear(there[path], [(path, width)], ins, biased, names.turned)
    return found


def _heads(dims: Dims, number: int) -> Sizes:
    return (number, dims.head_dim)


def _linear(
    name: str,
    outs: list[tuple[str, Sizes]],
    ins: Sizes,
    bias: bool,
    turned: bool = True,
) -> list[Weight]:
    """The weight of a projection, or of several below each other, and the bias.

    Args:
        name: of the projection there.
        outs: path here, and sizes of what comes out, of each.
        ins: sizes of what goes in, here.
        bias: whether it has one.
        turned: the weight is `[out, in]`, not `[in, out]`.
    """
    sizes = [math.prod(size) for _, size in outs]
    shape = (sum(sizes), math.prod(ins))
    found, start = [], 0
    for (path, size), many in zip(outs, sizes, strict=True):
        rows = slice(start, start := start + many)
        view = _turned(rows, size, ins) if turned else _straight(rows, size, ins)
        whole = shape if turned else shape[::-1]
        found.append(Weight(f"{name}.weight", f"{path}/kernel", whole, view))
        if bias:
            part = lambda array, rows=rows, size=size: array[rows].reshape(size)
            found.append(Weight(f"{name}.bias", f"{path}/bias", shape[:1], part))
    return found


def _turned(rows: slice, outs: Sizes, ins: Sizes) -> Callable:
    """Of a weight `[out, in]`: `[*in, *out]`."""
    first = len(outs)
    order = (*range(first, first + len(ins)), *range(first))
    return lambda weight: weight[rows].reshape(*outs, *ins).transpose(order)


def _straight(rows: slice, outs: Sizes, ins: Sizes) -> Callable:
    """Of a weight `[in, out]`: the same."""
    return lambda weight: weight[:, rows].reshape(*ins, *outs)


def _by_head(
    name: str, outs: list[tuple[str, Sizes]], ins: Sizes, bias: bool
) -> list[Weight]:
    """Queries, keys and values of one projection, `[N * 3 * H, D]`, head by head."""
    number, size = outs[0][1]
    shape = (number * 3 * size, *ins)
    found = []
    for which, (path, _) in enumerate(outs):

        def split(array, which=which):
            return array.reshape(number, 3, size, *array.shape[1:])[:, which]

        turned = lambda weight, split=split: split(weight).transpose(2, 0, 1)
        found.append(Weight(f"{name}.weight", f"{path}/kernel", shape, turned))
        if bias:
            found.append(Weight(f"{name}.bias", f"{path}/bias", shape[:1], split))
    return found


def _norm(norm, name: str, path: str, size: Sizes, offset: float) -> list[Weight]:
    """Gains and offsets of a norm, those that it has."""
    found = []
    if getattr(norm, "gain", True):
        found.append(Weight(f"{name}.weight", f"{path}/scale", size, offset=offset))
    if getattr(norm, "bias", False):
        found.append(Weight(f"{name}.bias", f"{path}/bias", size))
    return found


def _gains(spec: TransformerSpec, names: Names, offset: float) -> list[Weight]:
    """Gains of normalized queries and keys: of a head, or of all heads in a row."""
    own = spec.settings.weighting.qk_norm.init_layer(spec.dims)
    return [
        Weight(
            f"{names.of_layer[f'attention/{name}']}.weight",
            f"attention/weighting_params/qk_norm/{name}",
            (math.prod(gain.shape),),
            lambda array, shape=gain.shape: array.reshape(shape),
            offset,
        )
        for name, gain in own.items()
    ]


def _table(spec: TransformerSpec, names: Names) -> Weight:
    """Vectors of positions, behind rows that are of none."""
    rows, first = spec.pattern[0].encoding.max_position, names.first_position
    shape = (first + rows, spec.dims.embed_dim)
    view = lambda table: table[np.s_[first:]]
    return Weight(f"{names.positions}.weight", "shared/kind_0/table", shape, view)
