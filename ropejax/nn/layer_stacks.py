"""Parameters of layers, stacked by kind, in the stacks of another pattern.

A model holds one stack a kind of its pattern: of two kinds, layers 0, 2, 4 and layers
1, 3, 5. Under another pattern the same layers lie in other stacks.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ropejax.typing import Params


def restacked(params: Params, before: Any, after: Any) -> Params:
    """Returns a model's parameters as a model with another pattern of layers has them.

    What all layers of a kind share (the table of T5) goes to every kind that its layers
    are in.

    Args:
        params: of `before`.
        before: how the model is made.
        after: how it is to be made; of as many layers.

    Returns:
        The same parameters where the models have patterns of one length, or are no
        Transformers of one stack.

    Raises:
        ValueError: if layers that differ in their parameters would be of one kind.
    """
    old, new = (len(getattr(spec, "pattern", ())) for spec in (before, after))
    if old == new or "layers" not in params:
        return params
    stacks = [params["layers"].get(f"kind_{kind}", {}) for kind in range(old)]
    held = params.get("shared", {})  # empty ones may be left out
    shared = [held.get(f"kind_{kind}", {}) for kind in range(old)]
    count = before.dims.num_layers
    layers = [
        jax.tree.map(lambda leaf, at=at: leaf[at // old], stacks[at % old])
        for at in range(count)
    ]
    grouped: Params = {"layers": {}, "shared": {}}
    for kind in range(new):
        places = range(kind, count, new)
        mine = [layers[at] for at in places]
        kinds = sorted({at % old for at in places})
        if len({_described(layer) for layer in mine}) > 1 or (
            len(kinds) > 1 and any(jax.tree.leaves(shared[one]) for one in kinds)
        ):
            raise ValueError(
                f"layers of kinds {kinds} have parameters of their own, and cannot be "
                f"one kind; keep a pattern of {old} kinds."
            )
        name = f"kind_{kind}"
        grouped["layers"][name] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *mine)
        grouped["shared"][name] = shared[kinds[0]]
    return {**params, **grouped}


def _described(layer: Params) -> Any:
    leaves, tree = jax.tree.flatten(layer)
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
