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

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from ropejax.training.members import Member, strong
from ropejax.training.optimizer_numbers import Numbers
from ropejax.training.starting import begun, renamed
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
from ropejax.typing import Params

AXIS = "population"
"""Name of the mesh axis over which members are split."""

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


def init_member(
    population: Population,
    member: Member,
    length_seed: int,
    params: Params | None = None,
    *,
    allow_new: bool = False,
) -> TrainState:
    """Returns a member's state before the first step, that of the run alone.

    Args:
        population: what members share.
        member: its seed and numbers.
        length_seed: determines the lengths, for all members.
        params: what it begins with, as in `start_from`; its seed's own if None.
        allow_new: as there.

    Raises:
        ValueError: if a number is out of range, or the model has other parameters.
    """
    population.optimizer(member.numbers)  # refuses numbers out of range
    of_member = population, strong(member.numbers), member.seed, length_seed
    if params is None:
        return _init(*of_member)
    wanted = _init(*of_member) if allow_new else _shapes(*of_member)
    return _started(*of_member, renamed(params, wanted.params, allow_new=allow_new))


@partial(jax.jit, static_argnames="population")
def _init(population, numbers, seed, length_seed):
    # Called within a program, `init_state` is traced with it: the recipe, whose
    # optimizer is new each time, is no key of a cache.
    init = init_state.__wrapped__
    return init(population.recipe_of(numbers), seed, length_seed)


def _shapes(population, *numbers_and_seeds):
    return jax.eval_shape(partial(_init, population), *numbers_and_seeds)


@partial(jax.jit, static_argnames="population")
def _started(population, numbers, seed, length_seed, params):
    return begun.__wrapped__(population.recipe_of(numbers), params, seed, length_seed)


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
