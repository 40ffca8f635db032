"""The operations of a training step, counted from the program's text.

Attention is counted in its dense form: every pair of a query and a key, as is usual for
model FLOPs utilization; an engine that skips what a mask rules out does less.
"""

import statistics
from collections.abc import Callable
from functools import partial

import jax

from experiments.plan.loss import Terms, arguments_of, loss_of, one_part, with_settings
from ropejax.nn.looped import LoopSpan
from ropejax.operations import Operations, count_operations
from ropejax.training import Recipe
from ropejax.training.applying import learns_at_once


def step_operations(
    recipe: Recipe, bucket: int, *, at_once: bool = False
) -> Operations:
    """Returns the operations of a step in a bucket, but the optimizer's.

    Under a progressive loss, whose loops are drawn, that is their mean over the draws.

    Args:
        recipe: what is trained, and how.
        bucket: the input length that the batch is padded to.
        at_once: as if all logits were read at once, of however many symbols.
    """
    # Spelled out, attention has loops of known lengths.
    part = with_settings(one_part(recipe), implementation="dense")
    at_once = at_once or learns_at_once(recipe.sharding)
    count = partial(_counted, part, bucket, at_once)
    parts = []
    if terms := _sure_terms(part):
        parts.append((1.0, count(terms)))
    if part.progressive is not None and part.progressive.weight > 0:
        parts.append((1.0, _drawn(part, count)))
    return _combined(parts).times(recipe.accumulate)


def model_operations(recipe: Recipe, bucket: int) -> Operations:
    """Returns the same without what is computed again to save memory.

    Args:
        recipe: what is trained, and how.
        bucket: the input length that the batch is padded to.
    """
    return step_operations(with_settings(recipe, remat="none"), bucket, at_once=True)


def _sure_terms(recipe: Recipe) -> Terms:
    """The terms of the loss that are the same in each step."""
    progressive = recipe.progressive
    if progressive is None:
        return [(1.0, None)]
    if progressive.weight == 1:
        return []
    return [(1.0 - progressive.weight, progressive.whole(recipe.model.loops))]


def _drawn(recipe: Recipe, count: Callable[[Terms], Operations]) -> Operations:
    """The mean of the term whose loops are drawn.

    A loop costs the same wherever it is: one that is held fixed its forward pass, one
    that learns the backward pass too.
    """
    loops = recipe.model.loops
    most = recipe.progressive.most(loops)
    span = lambda before, number: count(
        [(recipe.progressive.weight, LoopSpan(before, number, most))]
    )
    fixed = statistics.mean(range(loops))
    learning = statistics.mean(
        (1 + min(loops - before, most)) / 2 for before in range(loops)
    )
    one = span(0, 1)
    parts = [(1.0, one), (fixed, span(1, 1)), (-fixed, one)]
    if most > 1:
        parts += [(learning - 1, span(0, 2)), (1 - learning, one)]
    return _combined(parts)


def _counted(recipe: Recipe, bucket: int, at_once: bool, terms: Terms) -> Operations:
    """The operations of a loss's gradient."""
    gradient = jax.grad(loss_of(recipe, bucket, terms, at_once=at_once))
    return count_operations(gradient, *arguments_of(recipe))


def _combined(parts: list[tuple[float, Operations]]) -> Operations:
    """A weighted sum."""
    return Operations(
        sum(weight * found.products for weight, found in parts),
        sum(weight * found.elementwise for weight, found in parts),
        max(found.unbounded_loops for _, found in parts),
    )
