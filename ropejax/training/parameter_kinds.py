"""What optimizers tell apart among a model's parameters: projections, and layers."""

from typing import Any

import jax
import optax

from ropejax.typing import Params

_STACKS = ("layers", "encoder", "decoder")
"""Groups of a model's parameters in which all layers lie along the first axis."""


def projection_kernels(params: Params) -> Params:
    """Returns True for each kernel of a projection, False for each other parameter.

    Others are norms, biases, embeddings and tables, on which weights do not decay.

    Args:
        params: a model's parameters, or a tree like them.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, _: "kernel" in names_of(path), params
    )


def names_of(path: tuple[Any, ...]) -> list[Any]:
    """Returns the names along a parameter's path."""
    return [getattr(part, "key", None) for part in path]


def is_stacked(path: tuple[Any, ...]) -> bool:
    """Returns whether a parameter's first axis is that of layers.

    Args:
        path: of the parameter in the model's.
    """
    return names_of(path)[:1] in [[name] for name in _STACKS]


def layer_by_layer(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """Returns an optimizer to which a parameter of each layer is one of its own.

    Models hold the same parameter of all layers as one array. That makes no difference
    to optimizers that look at single numbers; those that look at a matrix or at the
    size of a parameter would mix the layers.

    Args:
        optimizer: a transformation of parameters that have no layer axis.
    """
    mapped = optax.GradientTransformation(
        jax.vmap(optimizer.init),
        lambda updates, state, params=None: jax.vmap(optimizer.update)(
            updates, state, params
        ),
    )

    def parts(params: Params) -> optax.GradientTransformation:
        # Stacks of as many layers are mapped over together.
        stacks = jax.tree_util.tree_map_with_path(
            lambda path, leaf: f"layers_{leaf.shape[0]}" if is_stacked(path) else "",
            params,
        )
        names = dict.fromkeys(jax.tree.leaves(stacks))
        made = {name: mapped if name else optimizer for name in names}
        return optax.partition(made, stacks)

    def update(updates, state, params=None):
        return parts(updates).update(updates, state, params)

    return optax.GradientTransformation(
        lambda params: parts(params).init(params), update
    )
