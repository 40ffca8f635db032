"""The walk through a model's layers: a pattern repeated, and all of it in loops.

A looped model applies its layers again and again with the same parameters, so that it
is deep without being large, and it may add the embedded input again on the way, so that
later repetitions do not forget what was asked.

In training, a part of the loops may be run alone: `LoopSpan`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from ropejax.encodings.choices import check_choice
from ropejax.settings import Settings
from ropejax.typing import Rng

INJECTIONS = ("none", "loop", "layer")
"""Where the embedded input is added again: nowhere, before each loop, or each layer."""


@dataclasses.dataclass(frozen=True)
class LoopSpan(Settings):
    """Some of a looped model's loops: the first ones without gradient, then some with.

    What is read out is the state after `before + count` loops. One compiled program
    serves all traced spans, and loops that are not run are not computed.

    Attributes:
        before: how many loops are run first, through which no gradient flows; 0 up to
            all but one.
        count: how many are run then, at least 1; both may be traced.
        most: the largest that `count` may be (static).
    """

    before: int | Int[Array, ""]
    count: int | Int[Array, ""]
    most: int


def check_loops(loops: int, injection: str, num_layers: int) -> None:
    """Raises ValueError unless the settings of a looped model mean something.

    Args:
        loops: how often all layers are applied.
        injection: where the embedded input is added again.
        num_layers: layers of a loop.
    """
    if loops < 1:
        raise ValueError(f"loops must be at least 1, got {loops}.")
    check_choice("input_injection", injection, INJECTIONS)
    if injection == "loop" and loops == 1:
        raise ValueError(
            'input_injection="loop" adds nothing to a single loop; set loops=2 or '
            'more, or input_injection="layer".'
        )
    if injection == "layer" and loops * num_layers == 1:
        raise ValueError(
            'input_injection="layer" adds nothing before the first layer, and there is '
            'no other; set num_layers or loops to 2 or more, or leave it at "none".'
        )


def walk_layers(
    layers: list[nnx.Module],
    x: Float[Array, "B L D"],
    visit: Callable[..., tuple[Float[Array, "B L D"], Any]],
    *,
    own: Any = None,
    kept: Any = None,
    loops: int = 1,
    injection: str = "none",
    scan: bool = True,
    rng: Rng | None = None,
    span: LoopSpan | None = None,
) -> tuple[Float[Array, "B L D"], Any]:
    """Applies layers in order, `loops` times, and collects what they return.

    `x_0` is what comes in. With injection "loop", `x + x_0` enters every loop but the
    first; with "layer", every layer but the very first one (McLeish et al. 2024, arXiv
    2405.17399, section 3.1: input injection).

    Args:
        layers: one module for each kind of layer of the pattern, the parameters of its
            repetitions stacked on a leading axis R.
        x: embedded input, `[B, L, D]`.
        visit: `(at, layer, x, own, kept, rng) -> (x, kept)` for one layer, `at` being
            its place in the pattern.
        own: a pytree of arrays with a leading axis of all layers; `visit` gets its row.
            Loops share it.
        kept: None, or a pytree a kind of layer (a list of them), with leading axes of
            loops and repetitions: what each layer keeps between calls.
        loops: how often all layers are applied.
        injection: "none", "loop" or "layer".
        scan: compile one repetition and loop over it, rather than spell all out.
        rng: PRNG key of dropout, or None.
        span: the loops to run, where nothing is kept; all if None.

    Returns:
        The last x, and what `visit` kept, laid out like `kept`; None under a span.

    Raises:
        ValueError: if `own` has another number of rows than there are layers.
    """
    graphs, params = zip(*map(nnx.split, layers), strict=True)
    period = len(layers)
    repeats = jax.tree.leaves(params)[0].shape[0]
    _check_rows(own, repeats * period)
    own = jax.tree.map(lambda a: a.reshape((repeats, period) + a.shape[1:]), own)
    rngs = None if rng is None else jax.random.split(rng, (loops, repeats, period))
    start = x

    def repetition(x, inputs):
        (params, own, numbers), kept, rngs = inputs
        after = []
        for at in range(period):
            if injection == "layer":
                x = _added(x, start, (numbers > 0) if at == 0 else True)
            x, keeps = visit(
                at,
                nnx.merge(graphs[at], params[at]),
                x,
                jax.tree.map(lambda a, at=at: a[at], own),
                None if kept is None else kept[at],
                None if rngs is None else rngs[at],
            )
            after.append(keeps)
        return x, after

    def loop(x, inputs):
        number, kept, rngs = inputs
        if injection == "loop":
            x = _added(x, start, number > 0)
        numbers = number * repeats + jnp.arange(repeats)
        each = ((params, own, numbers), kept, rngs)
        return _over(repetition, x, each, repeats, scan)

    if span is not None:
        rngs_of = lambda number: None if rngs is None else rngs[number]
        one = lambda x, number: loop(x, (number, None, rngs_of(number)))[0]
        return _spanned(one, x, loops, span), None
    return _over(loop, x, (jnp.arange(loops), kept, rngs), loops, scan)


def _check_rows(own, num_layers: int) -> None:
    for array in jax.tree.leaves(own):
        if array.shape[0] != num_layers:
            raise ValueError(
                f"positions of each layer's own are for {array.shape[0]} layers, but "
                f"the model has {num_layers}; draw them with num_layers={num_layers}."
            )


def _spanned(loop, x, loops: int, span: LoopSpan):
    """The state after a span of loops, `loop(x, number)` being one of them."""

    def run(x, first, count, most: int):
        if isinstance(count, int):
            turn = lambda x, at: (loop(x, first + at), None)
            return jax.lax.scan(turn, x, jnp.arange(count))[0]
        turn = lambda x, at: (
            jax.lax.cond(at < count, loop, lambda x, _: x, x, first + at),
            None,
        )
        return jax.lax.scan(turn, x, jnp.arange(most))[0]

    early = jax.lax.stop_gradient(run(x, 0, span.before, loops - 1))
    # Not the state after no loops, so that what is run first is never differentiated.
    start = jnp.where(jnp.asarray(span.before) > 0, early, x)
    return run(start, span.before, span.count, span.most)


def _added(x, start, where):
    """`x + start` where told to, which may be traced."""
    return x + jnp.where(where, start, jnp.zeros_like(start))


def _over(body, x, inputs, count: int, scan: bool):
    """Runs `body` over leading axes, as one compiled loop or spelled out."""
    if scan and count > 1:
        return jax.lax.scan(body, x, inputs)
    collected = []
    for at in range(count):
        x, out = body(x, jax.tree.map(lambda a, at=at: a[at], inputs))
        collected.append(out)
    return x, jax.tree.map(lambda *parts: jnp.stack(parts), *collected)
