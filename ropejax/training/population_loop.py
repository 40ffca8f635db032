"""The loop that trains a population on the host: chunks, checkpoints, progress."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from ropejax.seeds import whole_seed
from ropejax.training.loop import MOST_PER_DISPATCH, MOST_STEPS
from ropejax.training.members import Member, check_members, strong
from ropejax.training.population import (
    Population,
    check_mesh,
    compiled_member,
    compiled_population,
    init_member,
    member_parts,
    stack,
    unstack,
)
from ropejax.training.population_size import members_at_once
from ropejax.training.step import StepMetrics, TrainState
from ropejax.typing import Params
from ropejax.whole_numbers import whole_number


class MemberProgress(NamedTuple):
    """What the loop reports after each dispatch.

    Attributes:
        members: which members took part, as indices of those given.
        step: steps they have taken so far.
        metrics: metrics of the dispatch's steps, numpy arrays `[count, members]`.
        state: gives the state of the member at a place of `members`, until the next
            dispatch.
        seconds: wall time of the dispatch, the first one's compilation included.
    """

    members: tuple[int, ...]
    step: int
    metrics: StepMetrics
    state: Callable[[int], TrainState]
    seconds: float


class MemberSaver(Protocol):
    """What the loop needs of a member's checkpoints (`ropejax.training.checkpoint`)."""

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint."""

    def latest(self, like: TrainState) -> TrainState | None:
        """Returns the newest state that can be read, or None."""

    def at(self, step: int, like: TrainState) -> TrainState:
        """Returns the state at a step; ValueError if it cannot be read."""

    def save(self, state: TrainState, metrics: dict[str, float]) -> None:
        """Writes a state, perhaps in the background."""

    def wait(self) -> None:
        """Returns when everything is on disk."""


def train_population(
    population: Population,
    members: Sequence[Member],
    *,
    steps: int,
    length_seed: int = 0,
    at_once: int | None = None,
    mesh: Mesh | None = None,
    steps_per_dispatch: int = 100,
    save_every: int = 1000,
    savers: Sequence[MemberSaver] | None = None,
    on_dispatch: Callable[[MemberProgress], None] | None = None,
    params: Params | None = None,
) -> list[TrainState]:
    """Trains all members to `steps` steps, each from its newest checkpoint if any.

    Members that cannot be at the same step (because one of them has gone further
    alone, and has no checkpoint where another one is) are trained apart.

    Args:
        population: what members share.
        members: their seeds and numbers.
        steps: steps in all, counted from the very start.
        length_seed: determines the length of each step, for all members.
        at_once: how many members a program maps over; 1 trains one after another
            through a program without a member axis; chosen by device if None. A last
            chunk of fewer is filled up with copies, so that it compiles nothing new.
        mesh: devices over whose axis "population" members are split, one device a
            member; None where the recipe's sharding has a mesh of its own.
        steps_per_dispatch: steps between two looks at the metrics.
        save_every: steps between two checkpoints; the last step is always saved.
        savers: where the checkpoints of each member are, or None.
        on_dispatch: called after each dispatch, before its states are saved.
        params: what all members begin with where they have no checkpoint, such as those
            of an earlier run; the initial ones of each one's seed if None.

    Returns:
        The members' states after `steps` steps.

    Raises:
        ValueError: if a number is not whole or out of range, there are no members or
            not as many savers, a checkpoint is past `steps`, the mesh has no axis
            "population", or `params` are not the model's.
    """
    check_members(members)
    if savers is not None and len(savers) != len(members):
        raise ValueError(
            f"savers must be one a member, or None for no checkpoints; got "
            f"{len(savers)} for {len(members)} members."
        )
    at_once = members_at_once(population, len(members)) if at_once is None else at_once
    steps = whole_number("steps", steps, least=1, most=MOST_STEPS)
    at_once = whole_number("at_once", at_once, least=1)
    steps_per_dispatch = whole_number(
        "steps_per_dispatch", steps_per_dispatch, least=1, most=MOST_PER_DISPATCH
    )
    save_every = whole_number("save_every", save_every, least=1)
    whole_seed("length_seed", length_seed)
    check_mesh(population, mesh)
    parts = member_parts(population, mesh)
    spread = mesh is not None or parts > 1
    if spread:
        at_once = -(-max(at_once, 2) // parts) * parts
    run = _Run(
        population,
        members,
        steps,
        at_once if spread else min(at_once, max(len(members), 1)),
        mesh,
        steps_per_dispatch,
        save_every,
        savers,
        on_dispatch,
    )
    if mesh is not None:
        params = jax.device_get(params)  # they may lie on a device that it lacks
    begin = lambda member: init_member(population, member, length_seed, params)
    states = [begin(member) for member in members]
    for states_at_one_step in _resumed(states, savers, steps):
        pending = list(states_at_one_step.items())
        while pending:
            chunk, pending = pending[: run.at_once], pending[run.at_once :]
            for at, state in run.train(dict(chunk)).items():
                states[at] = state
    return states


def _resumed(
    states: Sequence[TrainState], savers: Sequence[MemberSaver] | None, steps: int
) -> list[dict[int, TrainState]]:
    """Returns the newest states, those of members that can be at one step together."""
    newest = dict(enumerate(states))
    for at, saver in enumerate(savers or ()):
        newest[at] = saver.latest(like=states[at]) or states[at]
    groups: list[dict[int, TrainState]] = []
    for at in sorted(newest, key=lambda at: int(newest[at].step)):
        state = newest[at]
        if int(state.step) > steps:
            raise ValueError(
                f"the checkpoint of member {at} is at step {int(state.step)}, past "
                f"{steps=}; ask for more steps, or use another folder."
            )
        if groups:
            state = _back_to(groups[-1], state, states[at], savers and savers[at])
        if groups and int(state.step) == _step_of(groups[-1]):
            groups[-1][at] = state
        else:
            groups.append({at: state})
    return groups


def _back_to(
    group: dict[int, TrainState],
    state: TrainState,
    like: TrainState,
    saver: MemberSaver | None,
) -> TrainState:
    """Returns a member's state at the step of a group, or as it is if there is none."""
    step = _step_of(group)
    if int(state.step) == step or saver is None or step not in saver.steps():
        return state
    try:
        return saver.at(step, like)
    except Exception:  # damaged: the newer state, which was read, will do
        return state


def _step_of(group: dict[int, TrainState]) -> int:
    return int(next(iter(group.values())).step)


class _Run(NamedTuple):
    """The settings of `train_population`, for a chunk of members at a time."""

    population: Population
    members: Sequence[Member]
    steps: int
    at_once: int
    mesh: Mesh | None
    steps_per_dispatch: int
    save_every: int
    savers: Sequence[MemberSaver] | None
    on_dispatch: Callable[[MemberProgress], None] | None

    def train(self, chunk: dict[int, TrainState]) -> dict[int, TrainState]:
        """Trains one chunk to the end and returns its states."""
        places = tuple(chunk)
        states = list(chunk.values())
        done = int(states[0].step)
        numbers = [self.members[at].numbers for at in places]
        mapped = self.at_once > 1
        if mapped:
            copies = self.at_once - len(places)
            state = stack([*states, *states[:1] * copies])
            numbers = strong([*numbers, *numbers[:1] * copies])
        else:
            # A copy, since the program reuses the buffers of what it is given.
            state = jax.tree.map(jnp.copy, states[0])
            numbers = strong(numbers[0])
        pick = lambda at: unstack(state, at) if mapped else state
        while done < self.steps:
            to_save = self.save_every - done % self.save_every
            count = min(self.steps_per_dispatch, self.steps - done, to_save)
            start = time.perf_counter()
            state, metrics = self.dispatch(state, numbers, count)
            series = (np.asarray(one)[:count] for one in metrics)
            if mapped:
                metrics = StepMetrics(*(one[:, : len(places)] for one in series))
            else:
                metrics = StepMetrics(*(one[:, None] for one in series))
            seconds = time.perf_counter() - start
            done += count
            if self.on_dispatch is not None:
                self.on_dispatch(MemberProgress(places, done, metrics, pick, seconds))
            if done % self.save_every == 0 or done == self.steps:
                self.save(places, done, pick, metrics)
        for at in places if self.savers is not None else ():
            self.savers[at].wait()
        return {at: pick(place) for place, at in enumerate(places)}

    def dispatch(self, state, numbers, count):
        """Takes `count` steps in one compiled call; the given state is consumed."""
        given = self.population, state, numbers, jnp.int32(count)
        if self.at_once == 1:
            return compiled_member(*given, capacity=self.steps_per_dispatch)
        return compiled_population(
            *given, capacity=self.steps_per_dispatch, mesh=self.mesh
        )

    def save(self, places, step, pick, metrics) -> None:
        """Saves each member in its own folder, unless it has been there before."""
        for place, at in enumerate(places if self.savers is not None else ()):
            if step not in self.savers[at].steps():
                loss = metrics.of_member(place).mean_loss()
                self.savers[at].save(pick(place), {"loss": loss})
