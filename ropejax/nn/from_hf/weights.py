"""The arrays of a Hugging Face checkpoint as the parameters of a model, and back.

A weight there is `[out, in]`, so it is turned; heads, side by side there, get an axis
of their own; layers of a kind are stacked. RoPE's pairs are halves of a head in both.
Which array goes where is said by a `Layout`. It says so by views of the checkpoint's
arrays, so that it serves for reading and for writing.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.nn.parameters import named
from ropejax.nn.readout import TiedReadout
from ropejax.nn.transformer import TransformerSpec
from ropejax.typing import Params

Array = np.ndarray

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Weight(NamedTuple):
    """Where an array, or a part of it, goes.

    Attributes:
        name: of the array; in a layer, what follows the layer's number.
        path: names on the way to it in the parameters, of a layer or of the model.
        shape: as the checkpoint has it.
        view: the part of the array, as it is laid out here; numpy copies nothing.
        offset: what is added to it, as to the gains of norms that are kept less one.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    view: Callable[[Array], Array] = lambda array: array
    offset: float = 0.0


class Layout(NamedTuple):
    """Where all arrays of a checkpoint go.

    Attributes:
        of_model: those outside layers.
        of_layer: those of each layer.
        layers: what their names begin with, before the layer's number.
        prefix: what all names but the readout's begin with.
        embedding: name of the embedding.
        readout: name of the readout, which is no array of its own if it is tied.
        unread: a pattern of the names, without the prefix, that no code reads.
    """

    of_model: list[Weight]
    of_layer: list[Weight]
    layers: str
    prefix: str
    embedding: str
    readout: str
    unread: str

    def in_layer(self, at: int, name: str) -> str:
        """Returns the whole name of an array of a layer."""
        return f"{self.layers}.{at}.{name}"

    def as_named(self, tensors: Mapping[str, Any]) -> "Layout":
        """Returns this layout, without the prefix if no array's name begins with it."""
        if any(name.startswith(self.prefix) for name in tensors):
            return self
        bare = lambda name: name.removeprefix(self.prefix)
        return self._replace(
            of_model=[each._replace(name=bare(each.name)) for each in self.of_model],
            layers=bare(self.layers),
            embedding=bare(self.embedding),
        )


def params_from_hf(
    spec: TransformerSpec, tensors: Mapping[str, Any], layout: Layout
) -> Params:
    """Returns a model's parameters, float32, of the arrays of a checkpoint.

    Args:
        spec: how the model is made, from `spec_from_hf`.
        tensors: arrays by name, of which one at a time is read.
        layout: where they go.

    Raises:
        ValueError: if arrays are missing, left over, of another shape, or no floats.
    """
    layout = layout.as_named(tensors)
    number, period = spec.dims.num_layers, len(spec.pattern)
    wanted = {weight.name for weight in layout.of_model}
    wanted |= {
        layout.in_layer(at, weight.name)
        for at in range(number)
        for weight in layout.of_layer
    }
    _check_names(wanted, tensors, spec, layout)
    found = {
        weight.path: jnp.asarray(_read(tensors, weight.name, weight))
        for weight in layout.of_model
    }
    for kind in range(period):
        for weight in layout.of_layer:
            layers = range(kind, number, period)
            names = [layout.in_layer(at, weight.name) for at in layers]
            stacked = jnp.asarray(_stacked(tensors, names, weight))
            found[f"layers/kind_{kind}/{weight.path}"] = stacked
    shapes = jax.eval_shape(spec.init, jax.random.key(0))
    return jax.tree.unflatten(
        jax.tree.structure(shapes), [found[name] for name in named(shapes)]
    )


def tensors_of(
    spec: TransformerSpec, params: Params, layout: Layout
) -> dict[str, Array]:
    """Returns the arrays, float32, that a checkpoint of a model's parameters has.

    Rows that no parameter fills, such as those of padding, are zero.

    Args:
        spec: how the model is made.
        params: its parameters.
        layout: where they go.

    Raises:
        ValueError: if parameters that are one array there differ.
    """
    arrays: dict[str, Array] = {}
    filled = list(_filled(spec, params, layout))
    for name, weight, ours in filled:
        array = arrays.setdefault(name, np.zeros(weight.shape, np.float32))
        weight.view(array)[...] = ours - np.float32(weight.offset)
    for name, weight, ours in filled:
        part = weight.view(arrays[name])
        if not np.array_equal(part, ours - np.float32(weight.offset), equal_nan=True):
            raise ValueError(
                f"{weight.path} shares the array {name} with another parameter, from "
                "which it differs; such a checkpoint has one for both."
            )
    return arrays


def _filled(
    spec: TransformerSpec, params: Params, layout: Layout
) -> Iterator[tuple[str, Weight, Array]]:
    """Names of arrays, how they are laid out, and what is written there."""
    ours, period = named(params), len(spec.pattern)
    for weight in layout.of_model:
        yield weight.name, weight, np.asarray(ours[weight.path], np.float32)
    for kind in range(period):
        for weight in layout.of_layer:
            stacked = np.asarray(ours[f"layers/kind_{kind}/{weight.path}"], np.float32)
            for row, array in enumerate(stacked):
                at = row * period + kind
                yield layout.in_layer(at, weight.name), weight, array


def _check_names(
    wanted: set[str],
    tensors: Mapping[str, Any],
    spec: TransformerSpec,
    layout: Layout,
) -> None:
    """Raises ValueError unless the checkpoint has these arrays, and no others."""
    bare = lambda name: name.removeprefix(layout.prefix)
    given = {name for name in tensors if not re.fullmatch(layout.unread, bare(name))}
    pair = (layout.readout, layout.embedding)
    if isinstance(spec.readout, TiedReadout) and given >= set(pair):
        given.remove(layout.readout)
        if not np.array_equal(*(tensors[name] for name in pair)):
            raise ValueError(
                f"{pair[0]} differs from {pair[1]}, which the config ties to it; "
                "set tie_word_embeddings to false, or drop the first."
            )
    told = [
        f"{what} {_listed(names)}"
        for what, names in (
            ("lacks", wanted - given),
            ("has, of no use,", given - wanted),
        )
        if names
    ]
    if told:
        raise ValueError(
            f"the checkpoint {' and '.join(told)}: it is not the one of this config, "
            "or not that of a model with a readout (of a class ...ForCausalLM)."
        )


def _listed(names: set[str]) -> str:
    first = ", ".join(sorted(names)[:3])
    return f"{first} and {len(names) - 3} more" if len(names) > 3 else first


def _stacked(tensors: Mapping[str, Any], names: list[str], weight: Weight) -> Array:
    """Arrays of several layers, one below the other; never all of them twice."""
    first = _read(tensors, names[0], weight)
    stacked = np.empty((len(names), *first.shape), np.float32)
    stacked[0] = first
    for row, name in enumerate(names[1:], 1):
        stacked[row] = _read(tensors, name, weight)
    return stacked


def _read(tensors: Mapping[str, Any], name: str, weight: Weight) -> Array:
    """One array, or a part of one, as it is here, float32."""
    array = tensors[name]
    dtype = str(getattr(array, "dtype", type(array).__name__))
    if dtype not in _FLOATS:
        raise ValueError(
            f"{name} is of {dtype}, and must be an array of {', '.join(_FLOATS)}; "
            "dequantize the model, or call float().numpy() of a tensor of PyTorch."
        )
    if tuple(array.shape) != weight.shape:
        raise ValueError(
            f"{name} has the shape {list(array.shape)}, and the config says "
            f"{list(weight.shape)}; it is not the checkpoint of this config."
        )
    part = weight.view(np.asarray(array)).astype(np.float32)
    return part + np.float32(weight.offset) if weight.offset else part
