"""The training loop on the host: dispatches of many steps, and what happens between."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import numpy as np

from ropejax.seeds import whole_seed
from ropejax.training.nonfinite import NonFiniteError
from ropejax.training.starting import start_from
from ropejax.training.step import (
    Recipe,
    StepMetrics,
    TrainState,
    init_state,
    train_steps,
)
from ropejax.typing import Params
from ropejax.whole_numbers import whole_number

MOST_STEPS = 2**31 - 1
"""Steps are counted by an int32."""

MOST_PER_DISPATCH = 2**20
"""Metrics of so many steps are kept on the device until the host looks at them."""


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
    start: TrainState | None = None,
    params: Params | None = None,
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
        start: what `newest_state` returned, for one who has asked already; its buffers
            are reused. Seeds and `params` are not looked at then.
        params: what training begins with where there is no checkpoint, such as those of
            an earlier run; the model's own initial ones if None. They are copied.

    Returns:
        The state after `steps` steps.

    Raises:
        ValueError: if a number is not whole or out of range (seeds: 0 .. 2**31 - 1),
            the checkpoint is past `steps`, or `params` are not the model's.
        NonFiniteError: if a loss or gradient is not finite, under the policy "stop".
    """
    steps = whole_number("steps", steps, least=1, most=MOST_STEPS)
    save_every = whole_number("save_every", save_every, least=1)
    steps_per_dispatch = whole_number(
        "steps_per_dispatch", steps_per_dispatch, least=1, most=MOST_PER_DISPATCH
    )
    state = start
    if not (start is None or isinstance(start, TrainState)):
        raise ValueError(
            f"start must be a TrainState, got a {type(start).__name__}; parameters are "
            "given as params."
        )
    if state is None:
        state = newest_state(
            recipe, seed=seed, length_seed=length_seed, saver=saver, params=params
        )
    done = int(state.step)
    if done > steps:
        raise ValueError(
            f"the checkpoint is at step {done}, past {steps=}; ask for more steps, or "
            "use another workdir."
        )
    while done < steps:
        to_save = save_every - done % save_every
        count = min(steps_per_dispatch, steps - done, to_save)
        began = time.perf_counter()
        state, metrics = dispatch(recipe, state, count, capacity=steps_per_dispatch)
        metrics = StepMetrics(*(np.asarray(series)[:count] for series in metrics))
        seconds = time.perf_counter() - began
        done += count
        if int(state.step) < done:
            raise NonFiniteError(int(state.step), state)
        if on_dispatch is not None:
            on_dispatch(Progress(done, metrics, state, seconds))
        if saver is not None and (done % save_every == 0 or done == steps):
            saver.save(state, {"loss": metrics.mean_loss()})
    if saver is not None:
        saver.wait()
    return state


def newest_state(
    recipe: Recipe,
    *,
    seed: int = 0,
    length_seed: int | None = None,
    saver: Saver | None = None,
    params: Params | None = None,
) -> TrainState:
    """Returns the newest state that can be read, or the one before the first step.

    Args:
        recipe: what is trained, and how.
        seed: see `train`.
        length_seed: see `train`.
        saver: where checkpoints are, or None.
        params: see `train`.

    Raises:
        ValueError: if a seed is not in 0 .. 2**31 - 1, no checkpoint can be read, or
            the model has other parameters than `params`.
    """
    if not (saver is None or hasattr(saver, "latest")):
        raise ValueError(
            "saver must be like ropejax.training.checkpoint.Checkpoints(folder), got "
            f"{saver!r}."
        )
    if recipe.sharding is not None:
        recipe.sharding.check_one_model()
    whole_seed("seed", seed)
    if length_seed is not None:
        whole_seed("length_seed", length_seed)
    if params is None:
        state = init_state(recipe, seed, length_seed)
    else:
        state = start_from(recipe, params, seed=seed, length_seed=length_seed)
    return state if saver is None else saver.latest(like=state) or state


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
