"""What is kept of a step whose loss or gradient is not finite, to look at it alone.

nonfinite/step_N.npz    the batch of step N: tokens, targets, masks, lengths, positions
                        (the first ten of a run, and the one at which it stopped)
nonfinite/state/        the state before the step at which training stopped
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from experiments.running import processes
from experiments.running.interrupt import DivergedError
from ropejax.positions.base import Placement
from ropejax.tasks.base import Batch
from ropejax.training import NonFiniteError, Progress, Recipe, TrainState
from ropejax.training.checkpoint import Checkpoints
from ropejax.training.nonfinite import is_finite
from ropejax.training.step import draw_batch, step_lengths

_MOST = 10


def batch_of(recipe: Recipe, state: TrainState) -> tuple[Batch, Placement, jax.Array]:
    """Returns the batch of a state's next step, its placement, and its dropout key.

    Args:
        recipe: what is trained.
        state: only its step and keys matter.
    """
    lengths = step_lengths(recipe, state)
    bucket = next(b for b in recipe.buckets if b >= int(jnp.max(lengths)))
    return draw_batch(recipe, state, lengths, bucket)


def keep_batch(
    folder: pathlib.Path, recipe: Recipe, state: TrainState, most: int | None = None
) -> pathlib.Path | None:
    """Writes the batch of a state's next step, and returns the file.

    Of several processes, which must all call it, the first one draws the batch and
    writes it.

    Args:
        folder: the run's workdir.
        recipe: what is trained.
        state: only its step and keys matter.
        most: write nothing, and return None, if the run has so many others already.
    """
    folder = folder / "nonfinite"
    path = folder / f"step_{int(state.step)}.npz"
    others = len(set(folder.glob("step_*.npz")) - {path})
    state = _here(state)
    if processes.as_the_first(most is not None and others >= most):
        return None
    if not processes.is_first():
        return path
    folder.mkdir(exist_ok=True)
    alone = dataclasses.replace(recipe, sharding=None)
    batch, placement, rng = batch_of(alone, state)
    arrays = batch._asdict() | {"dropout_rng": jax.random.key_data(rng)}
    given = {"positions": placement.positions, "distances": placement.distances}
    arrays |= {name: array for name, array in given.items() if array is not None}
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    return path


def _here(state: TrainState) -> TrainState:
    """Step and keys, which every process has, on a device of this one."""

    def one(x):
        return jax.device_put(
            jnp.asarray(x).addressable_data(0), jax.local_devices()[0]
        )

    def key(x):
        raw = one(jax.random.key_data(x))
        return jax.random.wrap_key_data(raw, impl=jax.random.key_impl(x))

    return state._replace(
        step=one(state.step),
        params=None,
        opt_state=None,
        rng=key(state.rng),
        length_rng=key(state.length_rng),
    )


def tell_of_counted(
    folder: pathlib.Path, recipe: Recipe, progress: Progress, console: Console
) -> None:
    """Keeps the batches of steps that were skipped or counted, and says so.

    Args:
        folder: the run's workdir.
        recipe: what is trained.
        progress: the latest dispatch.
        console: where to say it.
    """
    count = len(progress.metrics.loss)
    for at in np.flatnonzero(~np.asarray(is_finite(progress.metrics))):
        step = progress.step - count + int(at)
        before = progress.state._replace(step=jnp.int32(step))
        path = keep_batch(folder, recipe, before, most=_MOST)
        where = f"in {path}" if path else f"not kept, after {_MOST} others"
        console.print(
            f"step {step}: loss or gradient not finite "
            f"(train.nonfinite={recipe.nonfinite}); its batch is {where}"
        )


def keep_state(folder: pathlib.Path, state: TrainState) -> None:
    """Writes the state before a step that is not finite."""
    checkpoints = Checkpoints(folder / "nonfinite" / "state", keep=1, keep_best=False)
    if int(state.step) not in checkpoints.steps():
        checkpoints.save(state, {})
    checkpoints.close()


def diverged(
    folder: pathlib.Path, recipe: Recipe, error: NonFiniteError
) -> DivergedError:
    """Keeps what is needed to replay a step, and returns an error that says how.

    Args:
        folder: the run's workdir.
        recipe: what is trained.
        error: from `ropejax.training.train`.
    """
    path = keep_batch(folder, recipe, error.state)
    keep_state(folder, error.state)
    return DivergedError(
        f"{error} The batch is in {path}. To see where it comes from:\n"
        f"    python -m experiments.replay --workdir={folder}\n"
        "In another workdir, train with a smaller optim.learning_rate or "
        "optim.max_grad_norm; or, to go on regardless of such steps, with "
        "--config.train.nonfinite=skip or count."
    )
