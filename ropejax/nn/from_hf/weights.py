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


Shardings = Callable[[TransformerSpec, Params], Params]
"""The sharding of each parameter, of a model and the shapes of its parameters."""


def params_from_hf(
    spec: TransformerSpec,
    tensors: Mapping[str, Any],
    layout: Layout,
    shardings: Shardings | None = None,
) -> Params:
    """Returns a model's parameters, float32, of the arrays of a checkpoint.

    Args:
        spec: how the model is made, from `spec_from_hf`.
        tensors: arrays by name, of which one parameter, or a device's part of one, is
            read at a time.
        layout: where they go.
        shardings: where the parameters go, as `Sharding.parameters` says; all on the
            default device if None.

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
    sources = {
        weight.path: _Source([weight.name], weight) for weight in layout.of_model
    }
    for kind in range(period):
        for weight in layout.of_layer:
            layers = range(kind, number, period)
            names = [layout.in_layer(at, weight.name) for at in layers]
            path = f"layers/kind_{kind}/{weight.path}"
            sources[path] = _Source(names, weight, stacked=True)
    for source in sources.values():
        source.check(tensors)
    shapes = jax.eval_shape(spec.init, jax.random.key(0))
    tree = jax.tree.structure(shapes)
    places = [None] * tree.num_leaves
    if shardings is not None:
        places = tree.flatten_up_to(shardings(spec, shapes))
    leaves = [
        _placed(sources[name].reader(tensors), shape, place)
        for (name, shape), place in zip(named(shapes).items(), places, strict=True)
    ]
    return jax.tree.unflatten(tree, leaves)


def _placed(read: Callable, like: jax.ShapeDtypeStruct, sharding: Any) -> jax.Array:
    """What is read, on its devices; of one part at a time the host has a copy."""
    if sharding is None:
        return jnp.asarray(read((slice(None),) * like.ndim))
    holders: dict[str, list] = {}  # of each part
    parts = sharding.addressable_devices_indices_map(like.shape)
    for device, index in parts.items():
        holders.setdefault(str(index), []).append(device)
    arrays = []
    for devices in holders.values():
        part = read(parts[devices[0]])
        arrays += [jax.device_put(part, device) for device in devices]
    return jax.make_array_from_single_device_arrays(like.shape, sharding, arrays)


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


class _Source(NamedTuple):
    """The arrays that a parameter is made of.

    Attributes:
        names: of one array, or of those of several layers.
        weight: where they go.
        stacked: whether layers are the first axis.
    """

    names: list[str]
    weight: Weight
    stacked: bool = False

    def check(self, tensors: Mapping[str, Any]) -> None:
        """Raises ValueError unless the arrays are floats of the right shape."""
        for name in self.names:
            array = tensors[name]
            dtype = str(getattr(array, "dtype", type(array).__name__))
            if dtype not in _FLOATS:
                raise ValueError(
                    f"{name} is of {dtype}, and must be an array of "
                    f"{', '.join(_FLOATS)}; dequantize the model, or call "
                    "float().numpy() of a tensor of PyTorch."
                )
            if tuple(array.shape) != self.weight.shape:
                raise ValueError(
                    f"{name} has the shape {list(array.shape)}, and the config says "
                    f"{list(self.weight.shape)}; it is not the checkpoint of this "
                    "config."
                )

    def reader(self, tensors: Mapping[str, Any]) -> Callable[[tuple], Array]:
        """Returns a function that reads a part of the parameter, float32.

        Args:
            tensors: arrays by name.
        """

        def one(name: str, index: tuple) -> Array:
            part = self.weight.view(np.asarray(tensors[name]))[index]
            part = part.astype(np.float32)
            return part + np.float32(self.weight.offset) if self.weight.offset else part

        def read(index: tuple) -> Array:
            if not self.stacked:
                return one(self.names[0], index)
            names = self.names[index[0]]
            first = one(names[0], index[1:])
            stacked = np.empty((len(names), *first.shape), np.float32)
            stacked[0] = first
            for row, name in enumerate(names[1:], 1):
                stacked[row] = one(name, index[1:])
            return stacked

        return read
