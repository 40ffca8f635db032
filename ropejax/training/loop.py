"""The training loop on the host: dispatches of many steps, and what happens between."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import numpy as np

from ropejax.seeds import check_seed
from ropejax.training.nonfinite import NonFiniteError
from ropejax.training.step import (
    Recipe,
    StepMetrics,
    TrainState,
    init_state,
    train_steps,
)


class Progress(NamedTuple):
    """What the loop reports after each dispatch.

    Attributes:
        step: steps taken so far.
        metrics: metrics of the dispatch's steps, numpy arrays `[count]`.
        state: the state, valid until the next dispatch (its buffers are reused).
        seconds: wall time of the dispatch, the first one's compilation included.
    """

    step: int
    metrics: StepMetrics
    state: TrainState
    seconds: float


class Saver(Protocol):
    """What the loop needs of a checkpoint folder (`ropejax.training.checkpoint`)."""

    def latest(self, like: TrainState) -> TrainState | None:
        """Returns the newest state that can be read, or None."""

    def save(self, state: TrainState, metrics: dict[str, float]) -> None:
        """Writes a state, perhaps in the background."""

    def wait(self) -> None:
        """Returns when everything is on disk."""


def train(
    recipe: Recipe,
    *,
    steps: int,
    seed: int = 0,
    length_seed: int | None = None,
    steps_per_dispatch: int = 100,
    save_every: int = 1000,
    saver: Saver | None = None,
    on_dispatch: Callable[[Progress], None] | None = None,
) -> TrainState:
    """Trains to `steps` steps, resuming from the newest checkpoint if there is one.

    A resumed run equals the uninterrupted one bit for bit on the same hardware: every
    key derives from the seed and the step, and one compiled program serves any number
    of steps a dispatch. A larger `steps` extends a finished run (a schedule that
    depends on the number of steps is of course another one).

    Args:
        recipe: what is trained, and how.
        steps: steps in all, counted from the very start.
        seed: determines parameters, data, positions and dropout.
        length_seed: determines the length of each step; `seed` if None.
        steps_per_dispatch: steps between two looks at the metrics.
        save_every: steps between two checkpoints; the last step is always saved.
        saver: where checkpoints are, or None.
        on_dispatch: called after each dispatch, before its state is saved.

    Returns:
        The state after `steps` steps.

    Raises:
        ValueError: if a number is out of range (seeds: 0 .. 2**31 - 1), or the
            checkpoint is past `steps`.
        NonFiniteError: if a loss or gradient is not finite, under the policy "stop".
    """
    for name, number in (
        ("steps", steps),
        ("steps_per_dispatch", steps_per_dispatch),
        ("save_every", save_every),
    ):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")
    if recipe.sharding is not None:
        recipe.sharding.check_one_model()
    check_seed("seed", seed)
    check_seed("length_seed", length_seed)
    state = init_state(recipe, seed, length_seed)
    if saver is not None:
        state = saver.latest(like=state) or state
    done = int(state.step)
    if done > steps:
        raise ValueError(
            f"the checkpoint is at step {done}, past {steps=}; ask for more steps, or "
            "use another workdir."
        )
    while done < steps:
        to_save = save_every - done % save_every
        count = min(steps_per_dispatch, steps - done, to_save)
        start = time.perf_counter()
        state, metrics = dispatch(recipe, state, count, capacity=steps_per_dispatch)
        metrics = StepMetrics(*(np.asarray(series)[:count] for series in metrics))
        seconds = time.perf_counter() - start
        done += count
        if int(state.step) < done:
            raise NonFiniteError(int(state.step), state)
        if on_dispatch is not None:
            on_dispatch(Progress(done, metrics, state, seconds))
        if saver is not None and (done % save_every == 0 or done == steps):
            saver.save(state, {"loss": float(metrics.loss.mean())})
    if saver is not None:
        saver.wait()
    return state


def dispatch(
    recipe: Recipe, state: TrainState, count: int, *, capacity: int
) -> tuple[TrainState, StepMetrics]:
    """Takes `count` steps in one compiled call; the given state is consumed.

    Args:
        recipe: what is trained, and how.
        state: the current state; its buffers are reused.
        count: how many steps, at most `capacity`.
        capacity: length of the metrics' axis; another value compiles again.

    Returns:
        The state afterwards, and metrics `[capacity]`.
    """
    return compiled_steps(recipe, state, np.int32(count), capacity=capacity)


compiled_steps = jax.jit(
    train_steps, static_argnames=("recipe", "capacity"), donate_argnames=("state",)
)
