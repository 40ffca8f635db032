"""A pass through a Transformer that looks into every layer.

The layers are walked by the same function as in training, so loops, patterns and input
injection are what they are there; attention is computed as ever, and its weights beside
it. Nothing is asked of the model's normal path.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ropejax.attention import visible_pairs
from ropejax.nn import Transformer
from ropejax.nn.looped import walk_layers
from ropejax.nn.parameters import as_arrays
from ropejax.nn.whole_pass import compiled_once
from ropejax.positions.base import Placement
from ropejax.tokens import Tokens

Look = Callable[[Float[Array, "B N L L"], Bool[Array, "B N L L"], Tokens], Any]
"""What to keep of a layer's weights, visible pairs, and tokens: a pytree."""


class Layers(NamedTuple):
    """What a pass left behind; the leading axis is that of applied layers, in order.

    Attributes:
        hidden: hidden states before the first layer and after each, `[layers + 1, B, L,
            D]`; a looped model's layers count once a loop.
        looked: what was kept of each layer, every array with a leading axis of layers;
            None if nothing was asked for.
    """

    hidden: Float[Array, "M B L D"]
    looked: Any


def trace_layers(
    model: Transformer,
    x: Float[Array, "B L D"],
    placement: Placement,
    *,
    valid: Bool[Array, "B L"] | None = None,
    look: Look | None = None,
) -> Layers:
    """Applies all layers to embedded tokens, and keeps hidden states.

    Args:
        model: a Transformer with its parameters.
        x: embedded tokens, `model.embed_tokens(...)`, `[B, L, D]`.
        placement: where the tokens are.
        valid: False at padding, `[B, L]`; None if there is none.
        look: what to keep of each layer's attention weights; None for nothing. With it
            a call without `jax.jit` compiles anew, since it may be another each time.

    Returns:
        Hidden states, and what `look` returned, of every layer.
    """
    walk = compiled_once(_walk) if look is None else _walk
    hidden, looked = walk(model, x, placement, valid, look)
    return Layers(jnp.concatenate([x[None], hidden]), looked)


def _walk(model, x, placement, valid, look):
    """Hidden states after each layer, and what was kept of each."""
    spec, length = model.spec, x.shape[1]
    own, common = placement.layers()
    shared = list(as_arrays(model.shared).values())

    def visit(at, block, x, own, kept, rng):
        where = Placement(**own, **common, by_place=placement.by_place)
        where = where.tokens(length, valid=valid)
        given = {"shared": shared[at], "mask": spec.pattern[at].mask}
        found = None

        def attend(h):
            nonlocal found
            if look is not None:
                visible = visible_pairs(where, where, given["mask"])
                found = look(block.attention.weights(h, where, **given), visible, where)
            return block.attention(h, where, **given)

        x = block.around(x, attend)
        return x, (x, found)

    _, kept = walk_layers(
        list(model.layers.values()),
        x,
        visit,
        own=own,
        loops=spec.loops,
        injection=spec.input_injection,
        scan=spec.scan_layers,
    )
    return jax.tree.map(_in_order, *kept)


def embed(
    model: Transformer,
    tokens: Int[Array, "B L"],
    placement: Placement,
    *,
    valid: Bool[Array, "B L"] | None = None,
) -> Float[Array, "B L D"]:
    """Returns embedded tokens, as the first layer gets them.

    Args:
        model: a Transformer with its parameters.
        tokens: symbols, `[B, L]`.
        placement: where they are.
        valid: False at padding, `[B, L]`; None if there is none.
    """
    where = placement.tokens(tokens.shape[1], valid=valid)
    return model.embed_tokens(tokens, where)


def _in_order(*kinds: Array) -> Array:
    """Arrays `[loops, repeats, ...]`, one a kind of layer, as `[layers, ...]`."""
    together = jnp.stack(kinds, axis=2)
    return together.reshape((-1,) + together.shape[3:])
