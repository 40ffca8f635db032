"""The training step: pure, with data and positions made inside, one shape a bucket."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from ropejax.positions.base import Placement
from ropejax.tasks.base import Batch
from ropejax.training.gradients import gradients as gradients
from ropejax.training.nonfinite import is_finite, unless_finite
from ropejax.training.progressive import step_rng
from ropejax.training.recipe import Recipe as Recipe
from ropejax.typing import Params, Rng


class TrainState(NamedTuple):
    """All that changes in training, and the keys from which each step's are derived.

    Attributes:
        step: number of steps taken.
        params: the model's parameters.
        opt_state: the optimizer's state.
        rng: base key of data, positions and dropout; it never changes: a step's key is
            `fold_in(rng, step)`, so that a resumed run draws what the uninterrupted one
            would have.
        length_rng: base key of lengths; members of a population share it, so that they
            share shapes.
    """

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState
    rng: Rng
    length_rng: Rng


class StepMetrics(NamedTuple):
    """What a step reports.

    Attributes:
        loss: mean cross-entropy of the batch, in nats.
        accuracy: fraction of right symbols.
        grad_norm: global norm of the gradient before clipping.
        length: length of the batch, in symbols (the longest if rows differ).
        outputs: number of symbols that `loss` is the mean over.
        scored: number of symbols that `accuracy` is the fraction of.
    """

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]
    grad_norm: Float[Array, ""]
    length: Int[Array, ""]
    outputs: Float[Array, ""]
    scored: Float[Array, ""]

    def mean_loss(self) -> float:
        """Returns the mean cross-entropy over the outputs of all steps, in nats."""
        return _mean_over(self.loss, self.outputs)

    def mean_accuracy(self) -> float:
        """Returns the fraction of right symbols among those of all steps."""
        return _mean_over(self.accuracy, self.scored)

    def of_member(self, place: int) -> "StepMetrics":
        """Returns one member's, of metrics `[count, members]`."""
        return StepMetrics(*(series[:, place] for series in self))


def _mean_over(means: Float[Array, " steps"], counts: Float[Array, " steps"]) -> float:
    """The mean over all that steps were means over: they differ in how much that is."""
    means, counts = (np.asarray(one, np.float64) for one in (means, counts))
    total = np.sum(means * counts, where=counts > 0)
    return float(total / np.sum(counts)) if np.any(counts > 0) else float("nan")


@partial(jax.jit, static_argnames="recipe")
def init_state(
    recipe: Recipe, seed: int | Array, length_seed: int | Array | None = None
) -> TrainState:
    """Returns the state before the first step.

    Args:
        recipe: what is trained, and how.
        seed: determines parameters, data, positions and dropout.
        length_seed: determines the lengths; `seed` if None.

    Returns:
        The state at step 0, spread over the recipe's mesh if it has one.
    """
    rng = jax.random.key(seed)
    length_rng = rng if length_seed is None else jax.random.key(length_seed)
    params_rng, rng = jax.random.split(rng)
    params = recipe.model.init(params_rng)
    state = TrainState(
        step=jnp.int32(0),
        params=params,
        opt_state=recipe.optimizer.init(params),
        rng=rng,
        length_rng=jax.random.fold_in(length_rng, 1),
    )
    return placed(recipe, state)


def placed(recipe: Recipe, state: TrainState) -> TrainState:
    """Returns a state spread over the recipe's mesh; as it is without one."""
    if recipe.sharding is None:
        return state
    where = recipe.sharding.state(recipe.model, state)
    return jax.lax.with_sharding_constraint(state, where)


def step_lengths(recipe: Recipe, state: TrainState) -> Int[Array, " B"]:
    """Returns the input length of each row of the state's next step.

    Args:
        recipe: what is trained, and how.
        state: the current state; only its step and `length_rng` matter.

    Returns:
        Lengths `[B]`, all equal unless `recipe.length_per_row`.
    """
    rng = jax.random.fold_in(state.length_rng, state.step)
    if not recipe.length_per_row:
        length = recipe.curriculum(rng, state.step)
        return jnp.full((recipe.batch_size,), length, jnp.int32)
    rows = jnp.arange(recipe.batch_size)
    keys = jax.vmap(lambda row: jax.random.fold_in(rng, row))(rows)
    return jax.vmap(lambda key: recipe.curriculum(key, state.step))(keys)


def draw_batch(
    recipe: Recipe, state: TrainState, lengths: Int[Array, " B"], bucket: int
) -> tuple[Batch, Placement, Rng]:
    """Returns the next step's batch, its positions, and its dropout key.

    Args:
        recipe: what is trained, and how.
        state: the current state; only its step and `rng` matter.
        lengths: input length of each row, `[B]`.
        bucket: the length that the batch is padded to.

    Returns:
        The batch, the placement of its tokens, and a PRNG key.
    """
    data_rng, positions_rng, dropout_rng = jax.random.split(
        jax.random.fold_in(state.rng, state.step), 3
    )
    batch = recipe.task.sample(data_rng, lengths, max_length=bucket)
    if recipe.sharding is not None:
        batch = recipe.sharding.batch(batch)
    alike = not (recipe.length_per_row or recipe.positions.rows_differ)
    placement = recipe.positions(
        positions_rng,
        batch.lengths[:1] if alike else batch.lengths,
        num_tokens=batch.tokens.shape[1],
        num_layers=recipe.model.dims.num_layers,
        tokens=recipe.task.placing_tokens(batch),
    )
    return batch, placement, dropout_rng


def step_loops(recipe: Recipe, state: TrainState) -> Rng | None:
    """Returns the PRNG key of the loops that the next step draws, None without a draw.

    Args:
        recipe: what is trained, and how.
        state: the current state; only its step and `length_rng` matter.
    """
    if recipe.progressive is None:
        return None
    return step_rng(state.length_rng, state.step)


def update(
    recipe: Recipe,
    state: TrainState,
    batch: Batch,
    placement: Placement,
    dropout_rng: Rng,
) -> tuple[TrainState, StepMetrics]:
    """Takes one optimizer step on a batch.

    Args:
        recipe: what is trained, and how.
        state: the current state.
        batch: the batch.
        placement: where its tokens are.
        dropout_rng: PRNG key for dropout.

    Returns:
        The state after the step, and what the step reports.
    """
    grads, sums = gradients(
        recipe, state.params, batch, placement, dropout_rng, step_loops(recipe, state)
    )
    # Some look at the loss, as those that lower their rate on a plateau.
    loss = sums.loss / sums.outputs
    optimizer = optax.with_extra_args_support(recipe.optimizer)
    updates, opt_state = optimizer.update(
        grads, state.opt_state, state.params, value=loss
    )
    metrics = StepMetrics(
        loss=loss,
        accuracy=sums.correct / sums.scored,
        grad_norm=optax.tree.norm(grads),
        length=jnp.int32(0),
        outputs=sums.outputs,
        scored=sums.scored,
    )
    after = state._replace(
        step=state.step + 1,
        params=optax.apply_updates(state.params, updates),
        opt_state=opt_state,
    )
    state = unless_finite(recipe.nonfinite, is_finite(metrics), state, after)
    if recipe.sharding is not None:
        metrics = recipe.sharding.everywhere(metrics)
    return placed(recipe, state), metrics


def train_step(recipe: Recipe, state: TrainState) -> tuple[TrainState, StepMetrics]:
    """Draws a batch in the smallest bucket that holds it, and takes one step.

    Args:
        recipe: what is trained, and how.
        state: the current state.

    Returns:
        The state after the step, and what the step reports.
    """
    lengths = step_lengths(recipe, state)
    longest = jnp.max(lengths)

    def in_bucket(bucket: int):
        def branch(state, lengths):
            return update(recipe, state, *draw_batch(recipe, state, lengths, bucket))

        return branch

    which = jnp.searchsorted(jnp.asarray(recipe.buckets), longest)
    branches = [in_bucket(bucket) for bucket in recipe.buckets]
    state, metrics = jax.lax.switch(which, branches, state, lengths)
    return state, metrics._replace(length=longest)


def train_steps(
    recipe: Recipe, state: TrainState, count: Int[Array, ""], *, capacity: int
) -> tuple[TrainState, StepMetrics]:
    """Takes `count` steps in one dispatch; one compiled program for any count.

    Args:
        recipe: what is trained, and how.
        state: the current state.
        count: how many steps, traced, at most `capacity`.
        capacity: length of the metrics' axis (static).

    Returns:
        The state afterwards, and metrics `[capacity]`, zero beyond `count`. Under the
        policy "stop" nothing follows a step that is not finite: the state is the one
        before that step, and its metrics are the last.
    """
    first = state.step

    def more(carry):
        at, state, _ = carry
        return (at < count) & (state.step - first == at)

    def body(carry):
        at, state, history = carry
        state, metrics = train_step(recipe, state)
        write = lambda series, value: series.at[at].set(value)
        return at + 1, state, jax.tree.map(write, history, metrics)

    shape = jax.eval_shape(partial(train_step, recipe), state)[1]
    history = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shape)
    return jax.lax.while_loop(more, body, (jnp.int32(0), state, history))[1:]
