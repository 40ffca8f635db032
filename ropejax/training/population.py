"""Populations: many seeds and hyper-parameters of one architecture, in one program.

Members have their own parameters, data, positions, dropout and numbers of the
optimizer. They share the length of each step, so that the choice of a bucket stays a
real branch outside the member axis: under `vmap` a branch on a member's own length
would compute every bucket and throw all but one away.

A member is the run with the same seed and `length_seed` alone: its data are the same
bit for bit, its numbers to float tolerance, and its state has the same form, so that
either can go on from the other's checkpoint.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from ropejax.seeds import check_seed
from ropejax.settings import Settings
from ropejax.training.optimizer import adam, schedule
from ropejax.training.step import (
    Recipe,
    StepMetrics,
    TrainState,
    draw_batch,
    init_state,
    step_lengths,
    train_steps,
    update,
)
from ropejax.whole_numbers import whole_number

AXIS = "population"
"""Name of the mesh axis over which members are split."""


class Numbers(NamedTuple):
    """Numbers of the optimizer in which members may differ; see `adam`.

    Attributes:
        learning_rate: peak of the schedule.
        weight_decay: decoupled, on projection kernels; 0 unless `AdamFamily.decays`.
        max_grad_norm: longer gradients are cut to it; 0 unless `AdamFamily.clips`.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: added to the root of the second moment.
    """

    learning_rate: float | Float[Array, ""]
    weight_decay: float | Float[Array, ""] = 0.0
    max_grad_norm: float | Float[Array, ""] = 1.0
    b1: float | Float[Array, ""] = 0.9
    b2: float | Float[Array, ""] = 0.999
    eps: float | Float[Array, ""] = 1e-8


@dataclasses.dataclass(frozen=True)
class AdamFamily(Settings):
    """Adam by its numbers: what a program must know beforehand, and nothing else.

    Attributes:
        steps: steps in all, for the schedule.
        warmup_steps: steps of linear warm-up from zero.
        final_fraction: end of the schedule as a fraction of its peak.
        clips: cut long gradients.
        decays: decay weights (AdamW).

    Raises:
        ValueError: if a number is out of range.
    """

    steps: int
    warmup_steps: int = 0
    final_fraction: float = 1.0
    clips: bool = True
    decays: bool = False

    def __post_init__(self):
        whole_number("steps", self.steps, least=1)
        schedule(  # refuses what is out of range
            1.0,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            final_fraction=self.final_fraction,
        )

    def __call__(self, numbers: Numbers) -> optax.GradientTransformation:
        """Returns the optimizer with these numbers, known or traced.

        Raises:
            ValueError: if a known number is out of range or of another family.
        """
        if not isinstance(numbers.weight_decay, jax.core.Tracer):
            self._check_form(numbers)
        return adam(
            schedule(
                numbers.learning_rate,
                steps=self.steps,
                warmup_steps=self.warmup_steps,
                final_fraction=self.final_fraction,
            ),
            weight_decay=numbers.weight_decay if self.decays else 0.0,
            max_grad_norm=numbers.max_grad_norm if self.clips else None,
            b1=numbers.b1,
            b2=numbers.b2,
            eps=numbers.eps,
        )

    def _check_form(self, numbers: Numbers) -> None:
        for name, switch in (("weight_decay", "decays"), ("max_grad_norm", "clips")):
            number, used = getattr(numbers, name), getattr(self, switch)
            if used != (number != 0):
                raise ValueError(
                    f"{name}={number} does not go with {switch}={used}: 0 stands for "
                    "none, and members of one program all have it, or none has."
                )


# Stands where a recipe holds an optimizer, so that recipes that differ in nothing else
# are equal and share their programs.
_BY_MEMBER = optax.identity()


@dataclasses.dataclass(frozen=True)
class Population:
    """Everything static that members share; hashable, equal for equal programs.

    Attributes:
        recipe: what is trained, and how; its optimizer is not used. Its sharding, if
            any, spreads members over the mesh axis "population" and each of them over
            the other axes.
        optimizer: makes a member's optimizer from its numbers; hashable.

    """

    recipe: Recipe
    optimizer: Callable[[Numbers], optax.GradientTransformation]

    def __post_init__(self):
        policy = self.recipe.nonfinite
        bare = dataclasses.replace(
            self.recipe,
            optimizer=_BY_MEMBER,
            # A member that diverges must stop no other.
            nonfinite="count" if policy == "stop" else policy,
        )
        object.__setattr__(self, "recipe", bare)

    def recipe_of(self, numbers: Numbers) -> Recipe:
        """Returns the recipe of one member, as it would be alone."""
        return dataclasses.replace(self.recipe, optimizer=self.optimizer(numbers))


class Member(NamedTuple):
    """One of a population.

    Attributes:
        seed: determines parameters, data, positions and dropout.
        numbers: numbers of the optimizer.
    """

    seed: int
    numbers: Numbers


def check_members(members: Sequence[Member]) -> None:
    """Refuses what is no member, before anything is made of it.

    Raises:
        ValueError: if there is none, one is something else, or a seed or a number is
            none.
    """
    whole_number("the number of members", len(members), least=1)
    for at, member in enumerate(members):
        if not isinstance(member, Member) or not isinstance(member.numbers, Numbers):
            raise ValueError(
                f"members[{at}] must be Member(seed, Numbers(learning_rate, ...)), got "
                f"{member!r}."
            )
        seed = f"seed of members[{at}]"
        check_seed(seed, whole_number(seed, member.seed))
        for name, number in member.numbers._asdict().items():
            kind = getattr(number, "dtype", None) or type(number)
            if jnp.shape(number) or not jnp.issubdtype(kind, jnp.number):
                raise ValueError(
                    f"{name} of members[{at}] must be a number, got {number!r}."
                )


def strong(numbers: Sequence[Numbers] | Numbers) -> Numbers:
    """Returns numbers as float32 arrays, with a member axis if there are several.

    A Python float would be weakly typed: what it becomes in the state changes type
    after one step, and every program compiles twice.
    """
    if isinstance(numbers, Numbers):
        return Numbers(*(jnp.asarray(number, jnp.float32) for number in numbers))
    return Numbers(*(jnp.asarray(row, jnp.float32) for row in zip(*numbers)))  # noqa: B905


def init_member(population: Population, member: Member, length_seed: int) -> TrainState:
    """Returns a member's state before the first step, that of the run alone."""
    population.optimizer(member.numbers)  # refuses numbers out of range
    return _init(population, strong(member.numbers), member.seed, length_seed)


@partial(jax.jit, static_argnames="population")
def _init(population, numbers, seed, length_seed):
    # Called within a program, `init_state` is traced with it: the recipe, whose
    # optimizer is new each time, is no key of a cache.
    init = init_state.__wrapped__
    return init(population.recipe_of(numbers), seed, length_seed)


def _axes(state: TrainState) -> TrainState:
    """Member axes of a state: what all members share has none."""
    return state._replace(step=None, params=0, opt_state=0, rng=0, length_rng=None)


def stack(states: Sequence[TrainState]) -> TrainState:
    """Returns the states of members at the same step as one, with a member axis.

    Raises:
        ValueError: if there are none, or they are at different steps or have different
            lengths.
    """
    if not states:
        raise ValueError("states must be of one member at least, got none.")
    first, steps = states[0], [int(state.step) for state in states]
    if len(set(steps)) > 1:
        raise ValueError(
            f"members of a population are at one step; got steps {steps}, which must "
            "be trained apart."
        )
    for at, state in enumerate(states):
        if bool(jnp.any(state.length_rng != first.length_rng)):
            raise ValueError(
                f"members of a population share a length seed; that of states[{at}] is "
                "not that of states[0]. Make them with init_member and one length_seed."
            )
    joined = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    # Copies: the stacked state is donated to the program, the given ones are not.
    return joined._replace(
        step=jnp.copy(first.step), length_rng=jnp.copy(first.length_rng)
    )


def unstack(states: TrainState, at: int) -> TrainState:
    """Returns the state of one member, as it would be alone."""
    pick = partial(jax.tree.map, lambda leaf: leaf[at])
    return states._replace(
        params=pick(states.params),
        opt_state=pick(states.opt_state),
        rng=states.rng[at],
    )


def population_step(
    population: Population, states: TrainState, numbers: Numbers
) -> tuple[TrainState, StepMetrics]:
    """Takes one step with every member, in the bucket of the length they share.

    Args:
        population: what members share.
        states: from `stack`.
        numbers: from `strong`, with a member axis.

    Returns:
        The states after the step, and metrics `[members]`.
    """
    recipe = population.recipe
    lengths = step_lengths(recipe, states)
    longest = jnp.max(lengths)

    def in_bucket(bucket: int):
        def member(state, own):
            drawn = draw_batch(recipe, state, lengths, bucket)
            return update(population.recipe_of(own), state, *drawn)

        axes = _axes(states)
        along = None if recipe.sharding is None else recipe.sharding.members_axis
        return jax.vmap(
            member, in_axes=(axes, 0), out_axes=(axes, 0), spmd_axis_name=along
        )

    which = jnp.searchsorted(jnp.asarray(recipe.buckets), longest)
    branches = [in_bucket(bucket) for bucket in recipe.buckets]
    states, metrics = jax.lax.switch(which, branches, states, numbers)
    length = jnp.broadcast_to(longest, metrics.length.shape)
    return states, metrics._replace(length=length)


def population_steps(
    population: Population,
    states: TrainState,
    numbers: Numbers,
    count: Int[Array, ""],
    *,
    capacity: int,
) -> tuple[TrainState, StepMetrics]:
    """Takes `count` steps with every member; metrics are `[capacity, members]`."""
    step = lambda state: population_step(population, state, numbers)

    def body(at, carry):
        states, history = carry
        states, metrics = step(states)
        write = lambda series, value: series.at[at].set(value)
        return states, jax.tree.map(write, history, metrics)

    shape = jax.eval_shape(step, states)[1]
    history = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), shape)
    return jax.lax.fori_loop(0, count, body, (states, history))


@partial(
    jax.jit,
    static_argnames=("population", "capacity", "mesh"),
    donate_argnames="states",
)
def compiled_population(
    population: Population,
    states: TrainState,
    numbers: Numbers,
    count: Int[Array, ""],
    *,
    capacity: int,
    mesh: Mesh | None = None,
) -> tuple[TrainState, StepMetrics]:
    """`population_steps` in one compiled call; the given states are consumed.

    Args:
        population: what members share.
        states: from `stack`.
        numbers: from `strong`, with a member axis.
        count: how many steps, at most `capacity`.
        capacity: length of the metrics' axis; another value compiles again.
        mesh: devices over whose axis "population" members are split, each device
            running its own; it divides the number of members. None: one device, or the
            mesh of the recipe's sharding, where several devices run a member.

    Returns:
        The states afterwards, and metrics `[capacity, members]`.

    Raises:
        ValueError: if the mesh has other axes of several devices, or the recipe has
            one too.
    """
    run = partial(population_steps, population, capacity=capacity)
    check_mesh(population, mesh)
    if mesh is not None:
        spec = lambda axis: PartitionSpec() if axis is None else PartitionSpec(AXIS)
        is_axis = lambda axis: axis is None
        of_states = jax.tree.map(spec, _axes(states), is_leaf=is_axis)
        members_last = PartitionSpec(None, AXIS)
        # No member ever needs another, so no collective is to be found here.
        run = jax.shard_map(
            run,
            mesh=mesh,
            in_specs=(of_states, PartitionSpec(AXIS), PartitionSpec()),
            out_specs=(of_states, members_last),
            check_vma=False,
        )
    return run(states, numbers, count)


def check_mesh(population: Population, mesh: Mesh | None) -> None:
    """Raises ValueError where members cannot be split over a mesh.

    Args:
        population: what members share.
        mesh: devices for members that take one each, or None.

    Raises:
        ValueError: if the recipe has a mesh too, or this one has no axis "population",
            or others that nothing is spread over.
    """
    if mesh is None:
        return
    if population.recipe.sharding is not None:
        raise ValueError(
            "the recipe's sharding has a mesh, so another one cannot be given; make "
            f"its axis {AXIS!r} as large as wanted."
        )
    if AXIS not in mesh.shape:
        raise ValueError(
            f"the mesh must have an axis {AXIS!r}, its axes are {mesh.axis_names}."
        )
    idle = {axis: n for axis, n in mesh.shape.items() if axis != AXIS and n > 1}
    if idle:
        raise ValueError(
            f"members are split over the mesh axis {AXIS!r} only, and devices of "
            f"{idle} would all compute the same; give all of them to {AXIS!r}, or "
            "spread each member over them by the recipe's sharding."
        )


def member_parts(population: Population, mesh: Mesh | None) -> int:
    """Returns into how many parts members are split.

    Args:
        population: what members share.
        mesh: devices for members that take one each, or None.
    """
    sharding = population.recipe.sharding
    if sharding is not None:
        return sharding.sizes[AXIS]
    return 1 if mesh is None else mesh.shape[AXIS]


@partial(jax.jit, static_argnames=("population", "capacity"), donate_argnames="state")
def compiled_member(
    population: Population,
    state: TrainState,
    numbers: Numbers,
    count: Int[Array, ""],
    *,
    capacity: int,
) -> tuple[TrainState, StepMetrics]:
    """`count` steps of one member; all members share the program, one after another.

    Args:
        population: what members share.
        state: the member's state, consumed.
        numbers: from `strong`, without a member axis.
        count: how many steps, at most `capacity`.
        capacity: length of the metrics' axis; another value compiles again.

    Returns:
        The state afterwards, and metrics `[capacity]`.
    """
    recipe = population.recipe_of(numbers)
    return train_steps(recipe, state, count, capacity=capacity)
