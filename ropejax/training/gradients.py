"""The gradient of the loss on a batch: whole, in parts, or on a mesh."""

import jax
import jax.numpy as jnp

from ropejax.nn.looped import LoopSpan
from ropejax.positions.base import Placement
from ropejax.tasks.base import Batch
from ropejax.training.applying import apply_and_read, learns_at_once
from ropejax.training.losses import Sums, batch_sums
from ropejax.training.recipe import Recipe
from ropejax.typing import Params, Rng


def gradients(
    recipe: Recipe,
    params: Params,
    batch: Batch,
    placement: Placement,
    dropout_rng: Rng,
    loops_rng: Rng | None = None,
) -> tuple[Params, Sums]:
    """Returns the gradient of a batch's mean loss, and what the batch adds up to.

    The mean is over all placeholders of the batch, however it is cut into parts.

    Args:
        recipe: what is trained, and how.
        params: the model's parameters.
        batch: the batch.
        placement: where its tokens are.
        dropout_rng: PRNG key for dropout.
        loops_rng: PRNG key of the step's draw of loops; for a progressive loss.

    Returns:
        The gradient, and sums of the answers after all loops (after the loops that were
        drawn, where the progressive loss has no other term).
    """
    rows = recipe.batch_size // recipe.accumulate
    outputs = jnp.sum(batch.target_mask, dtype=jnp.float32)
    model, sharding = recipe.model, recipe.sharding
    if sharding is not None:
        model = sharding.model(model)
        batch, placement = sharding.ordered(batch, placement)
    spans = loss_terms(recipe, loops_rng)

    def part_loss(params, first_row):
        part, where = batch, placement
        if recipe.accumulate > 1:
            cut = lambda x: jax.lax.dynamic_slice_in_dim(x, first_row, rows)
            part = jax.tree.map(cut, batch)
            where = placement.rows(first_row, rows, recipe.batch_size)
            part = part if sharding is None else sharding.batch(part)
        if sharding is not None:
            params = sharding.gathered(recipe.model, params)
        terms = []
        for weight, span in spans:
            told = apply_and_read(
                model,
                params,
                part,
                where,
                rng=dropout_rng,
                first_row=first_row,
                span=span,
                sharding=sharding,
                at_once=learns_at_once(sharding),
            )
            terms.append((weight, batch_sums(told, part)))
        loss = sum(weight * sums.loss / outputs for weight, sums in terms)
        return loss, terms[0][1]

    of_part = jax.grad(part_loss, has_aux=True)
    if recipe.accumulate == 1:
        return of_part(params, 0)

    def add(total, first_row):
        return jax.tree.map(jnp.add, total, of_part(params, first_row)), None

    firsts = jnp.arange(0, recipe.batch_size, rows)
    shapes = jax.eval_shape(of_part, params, firsts[0])
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, zeros, firsts)[0]


def loss_terms(
    recipe: Recipe, loops_rng: Rng | None
) -> list[tuple[float, LoopSpan | None]]:
    """Returns the terms of the loss: weights, each with the loops that are run for it.

    Args:
        recipe: what is trained, and how.
        loops_rng: PRNG key of the step's draw of loops; for a progressive loss.
    """
    progressive = recipe.progressive
    if progressive is None:
        return [(1.0, None)]
    loops, weight = recipe.model.loops, progressive.weight
    spans = []
    if weight < 1:
        spans.append((1.0 - weight, progressive.whole(loops)))
    if weight > 0:
        spans.append((weight, progressive.draw(loops_rng, loops)))
    return spans
