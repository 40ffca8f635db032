"""The loss that a plan looks at: training's own, of the rows that are computed at once.

It is traced and never run, on one device, whatever the mesh is.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ropejax.nn.looped import LoopSpan
from ropejax.training.applying import apply_and_read
from ropejax.training.gradients import loss_terms
from ropejax.training.losses import batch_sums
from ropejax.training.progressive import step_rng
from ropejax.training.step import Recipe, draw_batch, init_state

Terms = Sequence[tuple[float, LoopSpan | None]]
"""Weights, each with the loops that are run for it; all if None."""


def one_part(recipe: Recipe) -> Recipe:
    """Returns the recipe of the rows that are computed at once, on one device."""
    rows = recipe.batch_size // recipe.accumulate
    return dataclasses.replace(recipe, batch_size=rows, accumulate=1, sharding=None)


def with_settings(recipe: Recipe, **settings) -> Recipe:
    """Returns the recipe with other settings of its layers; itself if it has none.

    Args:
        recipe: what is trained, and how.
        **settings: of `BlockSettings`.
    """
    if not hasattr(recipe.model, "settings"):
        return recipe
    changed = dataclasses.replace(recipe.model.settings, **settings)
    return dataclasses.replace(
        recipe, model=dataclasses.replace(recipe.model, settings=changed)
    )


def loss_of(
    recipe: Recipe, bucket: int, terms: Terms | None = None, *, at_once: bool = False
) -> Callable:
    """Returns the loss of a batch in a bucket, a function of (params, state, lengths).

    Args:
        recipe: what is trained, and how.
        bucket: the input length that the batch is padded to.
        terms: of the loss; those of the recipe if None.
        at_once: read all logits at once, as training does where a mesh cuts rows.
    """

    def loss(params, state, lengths):
        batch, placement, rng = draw_batch(recipe, state, lengths, bucket)
        wanted = terms
        if wanted is None:
            wanted = loss_terms(recipe, step_rng(state.length_rng, state.step))
        total = 0.0
        for weight, span in wanted:
            told = apply_and_read(
                recipe.model,
                params,
                batch,
                placement,
                rng=rng,
                span=span,
                at_once=at_once,
            )
            sums = batch_sums(told, batch)
            total += weight * sums.loss / sums.outputs
        return total

    return loss


def arguments_of(recipe: Recipe) -> tuple:
    """Returns shapes of what `loss_of` is a function of: (params, state, lengths)."""
    state = jax.eval_shape(lambda: init_state(recipe, 0))
    lengths = jax.ShapeDtypeStruct((recipe.batch_size,), jnp.int32)
    return state.params, state, lengths
