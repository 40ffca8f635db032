"""What each axis of a model's parameters means: heads, width, layers, ...

The model's own parameters are named by a table from the ends of their paths. Those of
an encoding, and of what else a layer's attention is told to do, need no table: they are
asked for the shapes that they would make in a model of twice as many heads, and of
twice the width, and the axes that double are named.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax

from ropejax.encodings import Dims, Encoding
from ropejax.nn import TransformerSpec
from ropejax.sharding.rules import Names
from ropejax.typing import Params

MODEL = MappingProxyType(
    {
        "embedding": ("vocab", "embed"),
        "readout/kernel": ("embed", "vocab"),
        "readout/bias": ("vocab",),
        "final_norm/scale": (None,),
        "final_norm/bias": (None,),
        "embedding_norm/scale": (None,),
        "embedding_norm/bias": (None,),
        "attention/query/kernel": ("embed", "heads", None),
        "attention/key/kernel": ("embed", "kv_heads", None),
        "attention/value/kernel": ("embed", "kv_heads", None),
        "attention/out/kernel": ("heads", None, "embed"),
        "attention/query/bias": ("heads", None),
        "attention/key/bias": ("kv_heads", None),
        "attention/value/bias": ("kv_heads", None),
        "attention/out/bias": (None,),
        "mlp_gate/kernel": ("embed", "mlp"),
        "mlp_gate/bias": ("mlp",),
        "mlp_in/kernel": ("embed", "mlp"),
        "mlp_in/bias": ("mlp",),
        "mlp_out/kernel": ("mlp", "embed"),
        "mlp_out/bias": (None,),
        "attention_norm/scale": (None,),
        "attention_norm/bias": (None,),
        "mlp_norm/scale": (None,),
        "mlp_norm/bias": (None,),
        "attention_output_norm/scale": (None,),
        "attention_output_norm/bias": (None,),
        "mlp_output_norm/scale": (None,),
        "mlp_output_norm/bias": (None,),
    }
)
"""End of a parameter's path -> what its axes mean; layers have one more in front."""

GATED = MappingProxyType(
    {
        "attention/base/kernel": ("embed", "heads", None),
        "attention/gate/kernel": ("embed", "heads", "mlp"),
        "attention/value/kernel": ("embed", "heads", "mlp"),
        "attention/out/kernel": ("heads", "mlp", "embed"),
        "attention/query_scale": ("heads", None),
        "attention/query_offset": ("heads", None),
        "attention/key_scale": ("heads", None),
        "attention/key_offset": ("heads", None),
    }
)
"""The same in gated attention units. A mesh axis that has taken heads leaves the
expanded width of each whole; under rules that leave heads whole, it cuts the width."""

_ENCODING = "attention/encoding_params"
_BESIDE = ("weighting", "token_shift", "output_gate")
"""Attributes of the model's settings that have parameters in each layer's attention."""


def parameter_names(spec: TransformerSpec, params: Params) -> Params:
    """Returns a tree like `params` with the `Names` of each leaf.

    A leaf that nothing is known of is named "rest" at its largest axis.

    Args:
        spec: how the model is made.
        params: its parameters, or their shapes.
    """
    if not isinstance(spec, TransformerSpec):
        return jax.tree.map(lambda leaf: unknown_names(leaf.shape), params)
    encodings = {
        f"kind_{at}": encoding_names(kind.encoding, spec.dims)
        for at, kind in enumerate(spec.pattern)
    }
    beside = {
        f"attention/{part}_params": layer_names(getattr(spec.settings, part), spec.dims)
        for part in _BESIDE
    }
    of_model = {**MODEL, **GATED} if spec.settings.gated else MODEL

    def named(path, leaf) -> Names:
        parts = path_of(path).split("/")
        names = None
        if parts[0] == "shared":
            names = encodings[parts[1]][0].get("/".join(parts[2:]))
        elif parts[0] == "layers":
            inner = "/".join(parts[2:])
            of_layer = of_model
            for place, own in {_ENCODING: encodings[parts[1]][1], **beside}.items():
                if inner.startswith(f"{place}/"):
                    of_layer, inner = own, inner.removeprefix(f"{place}/")
            names = of_layer.get(inner)
            names = None if names is None else ("layers", *names)
        else:
            names = MODEL.get("/".join(parts))
        if names is None or len(names) != len(leaf.shape):
            return unknown_names(leaf.shape)
        return names

    return jax.tree_util.tree_map_with_path(named, params)


def encoding_names(
    encoding: Encoding, dims: Dims
) -> tuple[Mapping[str, Names], Mapping[str, Names]]:
    """Returns the names of an encoding's parameters by path: shared, and a layer's own.

    Args:
        encoding: settings of the encoding.
        dims: sizes of the model.
    """
    init = lambda rng, dims: (
        encoding.init_shared(rng, dims),
        encoding.init_layer(rng, dims),
    )
    return _names_by_growth(init, dims)


def layer_names(part: Any, dims: Dims) -> Mapping[str, Names]:
    """Returns the names of the parameters that a part of attention has, by path.

    Args:
        part: settings with `init_layer(rng, dims)`.
        dims: sizes of the model.
    """
    return _names_by_growth(lambda *given: (part.init_layer(*given),), dims)[0]


def unknown_names(shape: tuple[int, ...]) -> Names:
    """Returns "rest" for the largest axis of a leaf that nothing is known of."""
    if not shape:
        return ()
    largest = max(range(len(shape)), key=lambda axis: shape[axis])
    return tuple("rest" if axis == largest else None for axis in range(len(shape)))


def path_of(path: tuple[Any, ...]) -> str:
    """Returns a leaf's path as text, such as `layers/kind_0/mlp_in/kernel`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _names_by_growth(init: Callable, dims: Dims) -> tuple[Mapping[str, Names], ...]:
    """Names of the trees that `init(rng, dims)` returns, by path."""
    heads = dims._replace(
        num_heads=2 * dims.num_heads, num_kv_heads=2 * dims.num_kv_heads
    )
    width = dims._replace(embed_dim=2 * dims.embed_dim)
    once, *doubled = (_shapes(init, d) for d in (dims, heads, width))
    return tuple(
        {path: _named(path, shape, at, doubled) for path, shape in tree.items()}
        for at, tree in enumerate(once)
    )


def _shapes(init: Callable, dims: Dims) -> tuple[dict[str, tuple[int, ...]], ...]:
    trees = jax.eval_shape(lambda rng: init(rng, dims), jax.random.key(0))
    flat = (jax.tree_util.tree_leaves_with_path(tree) for tree in trees)
    return tuple({path_of(path): x.shape for path, x in leaves} for leaves in flat)


def _named(path, shape, side: int, doubled) -> Names:
    """Names an axis by what makes it grow; heads before width, as in `[N * H]`."""
    names = [None] * len(shape)
    for name, trees in zip(("heads", "embed"), doubled, strict=True):
        other = trees[side].get(path, shape)
        for axis, (a, b) in enumerate(zip(shape, other, strict=False)):
            if a != b and names[axis] is None:
                names[axis] = name
    return tuple(names)
