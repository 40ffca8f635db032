"""Members of a population equal the same runs alone, however they are put together."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from ropejax.sharding import Sharding, make_mesh
from ropejax.training import adam, init_state, population_loop, schedule, train
from ropejax.training.checkpoint import Checkpoints
from ropejax.training.members import Member, Numbers, OptimizerFamily, strong
from ropejax.training.muon import Muon
from ropejax.training.population import (
    AXIS,
    Population,
    compiled_member,
    compiled_population,
    init_member,
    population_step,
    stack,
)
from ropejax.training.population_loop import train_population
from ropejax.training.population_size import members_at_once, step_bytes
from ropejax.training.step import StepMetrics, draw_batch, step_lengths
from tests.training.tiny import tiny_recipe

FAMILY = OptimizerFamily(
    steps=8, warmup_steps=2, final_fraction=0.1, clips=True, decays=True
)
# Two buckets where the choice between them matters, else one: how far a batch is padded
# changes no number (test_step.py), and programs compile in half the time.
POPULATION = Population(tiny_recipe("even_pairs"), FAMILY)
ONE_BUCKET = Population(tiny_recipe("even_pairs", buckets=(6,)), FAMILY)
MEMBERS = [
    Member(3, Numbers(1e-2, weight_decay=0.1, max_grad_norm=0.5)),
    Member(4, Numbers(3e-2, 0.3, max_grad_norm=2.0, b1=0.8, b2=0.9, eps=1e-4)),
]
LENGTH_SEED = 11
SETTINGS = {"steps": 8, "length_seed": LENGTH_SEED, "steps_per_dispatch": 3}


@functools.cache  # an optimizer made anew is another program
def plain_recipe(numbers):
    """The recipe of a run alone, its optimizer made of plain numbers."""
    rate = schedule(numbers.learning_rate, steps=8, warmup_steps=2, final_fraction=0.1)
    others = numbers._asdict()
    del others["learning_rate"]
    return tiny_recipe("even_pairs", buckets=(6,), optimizer=adam(rate, **others))


@pytest.fixture(scope="module")
def alone():
    """Each member's last state and losses, by `train` with an ordinary recipe."""
    ends = []
    for member in MEMBERS:
        losses = []
        state = train(
            plain_recipe(member.numbers),
            seed=member.seed,
            on_dispatch=lambda progress, losses=losses: losses.extend(
                progress.metrics.loss
            ),
            **SETTINGS,
        )
        ends.append((state, losses))
    return ends


def assert_like_alone(states, losses, alone):
    for at, (state, lonely_losses) in enumerate(alone):
        np.testing.assert_allclose(losses[at], lonely_losses, rtol=1e-4)
        assert jax.tree.structure(states[at]) == jax.tree.structure(state)
        assert_params_like(states[at], state)


def assert_params_like(one, two):
    """Adam divides by small gradients, so parameters differ more than losses."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-4),
        one.params,
        two.params,
    )


def trained(population, **settings):
    """Last states, and losses by member, of a population."""
    losses = [[] for _ in MEMBERS]

    def note(progress):
        for place, at in enumerate(progress.members):
            losses[at].extend(progress.metrics.loss[:, place])

    states = train_population(
        population, MEMBERS, on_dispatch=note, **(SETTINGS | settings)
    )
    return states, losses


def test_members_together_equal_the_runs_alone(alone):
    """Different seeds, rates, decays, clipping and moments; the schedule is traced."""
    before = compiled_population._cache_size()
    states, losses = trained(POPULATION, at_once=2)
    assert_like_alone(states, losses, alone)
    # Three dispatches of 3, 3 and 2 steps: one program. A weakly typed number would
    # have compiled a second one.
    assert compiled_population._cache_size() == before + 1


def test_members_one_after_another_share_a_program_and_equal_the_runs_alone(alone):
    before = compiled_member._cache_size()
    states, losses = trained(ONE_BUCKET, at_once=1)
    assert_like_alone(states, losses, alone)
    assert compiled_member._cache_size() == before + 1


def test_members_of_another_optimizer_equal_the_runs_alone():
    """Matrices and the rest have states of their own, within one of a member's."""
    family = OptimizerFamily(steps=3, warmup_steps=1, decays=True, optimizer=Muon())
    population = Population(ONE_BUCKET.recipe, family)
    members = [Member(3, Numbers(1e-2, 0.1)), Member(4, Numbers(3e-2, 0.3, 0.5))]
    settings = {"steps": 3, "length_seed": LENGTH_SEED, "steps_per_dispatch": 3}
    states = train_population(population, members, at_once=2, **settings)
    recipe = tiny_recipe("even_pairs", buckets=(6,))
    recipe = dataclasses.replace(recipe, optimizer=family(members[1].numbers))
    state = train(recipe, seed=members[1].seed, **settings)
    assert jax.tree.structure(states[1]) == jax.tree.structure(state)
    assert_params_like(states[1], state)


def schedule_free(numbers):
    """An optimizer that keeps a copy of the parameters in its state."""
    return optax.contrib.schedule_free_sgd(numbers.learning_rate)


def test_members_that_begin_with_given_parameters_equal_the_runs_alone():
    population = Population(ONE_BUCKET.recipe, schedule_free)
    params = ONE_BUCKET.recipe.model.init(jax.random.key(9))
    settings = SETTINGS | {"steps": 2}
    states = train_population(population, MEMBERS, at_once=1, params=params, **settings)
    recipe = population.recipe_of(MEMBERS[1].numbers)
    state = train(recipe, seed=MEMBERS[1].seed, params=params, **settings)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        (states[1].params, states[1].opt_state),
        (state.params, state.opt_state),
    )
    mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,))
    elsewhere = jax.device_put(params, jax.devices()[3])
    spread = train_population(
        population, MEMBERS, mesh=mesh, params=elsewhere, **settings
    )
    assert_params_like(spread[1], state)
    del params["readout"]
    with pytest.raises(ValueError, match="readout"):
        train_population(population, MEMBERS, params=params, **settings)


def test_members_are_split_over_devices_and_equal_the_runs_alone(alone, monkeypatch):
    """Two members on two of eight devices; no device ever waits for another."""
    mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,))
    programs, places = {}, []

    def compiled_once(population, *arrays, **static):
        if not programs:
            lowered = compiled_population.lower(population, *arrays, **static)
            programs["only"] = lowered.compile()
        states, metrics = programs["only"](*arrays)
        places.extend(
            leaf.addressable_shards for leaf in jax.tree.leaves(states.params)
        )
        return states, metrics

    monkeypatch.setattr(population_loop, "compiled_population", compiled_once)
    states, losses = trained(ONE_BUCKET, at_once=2, mesh=mesh)
    assert_like_alone(states, losses, alone)
    for shards in places:
        owned = {shard.device: shard.data.shape[0] for shard in shards}
        assert owned == dict.fromkeys(mesh.devices.flat, 1)
    text = programs["only"].as_text()
    assert not [
        word for word in ("all-reduce", "all-gather", "permute") if word in text
    ]


def test_a_chunk_too_small_for_the_devices_is_filled_up_with_copies(monkeypatch):
    """Three members over two devices, two at a time: the last one has a copy beside."""
    mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,))
    seen = []

    def none_taken(population, states, numbers, count, **_):
        seen.append(np.asarray(numbers.learning_rate).tolist())
        series = jnp.zeros((3, 2))
        return states, StepMetrics(*[series] * len(StepMetrics._fields))

    monkeypatch.setattr(population_loop, "compiled_population", none_taken)
    members = [Member(seed, Numbers(rate, 0.1)) for seed, rate in enumerate((1, 2, 3))]
    states = train_population(
        ONE_BUCKET, members, steps=1, steps_per_dispatch=3, at_once=1, mesh=mesh
    )
    assert seen == [[1, 2], [3, 3]]
    for seed, state in enumerate(states):
        own = init_member(ONE_BUCKET, members[seed], 0).params["embedding"]
        np.testing.assert_array_equal(state.params["embedding"], own)


def test_members_draw_the_data_of_the_runs_alone_bit_for_bit():
    states = stack([init_member(POPULATION, member, LENGTH_SEED) for member in MEMBERS])
    states = states._replace(step=jnp.int32(5))
    recipe = POPULATION.recipe

    @jax.jit
    def draw(state):
        return draw_batch(recipe, state, step_lengths(recipe, state), 6)[:2]

    axes = states._replace(step=None, params=0, opt_state=0, rng=0, length_rng=None)
    together = jax.jit(jax.vmap(draw, in_axes=(axes,)))(states)
    for at, member in enumerate(MEMBERS):
        state = init_state(recipe, member.seed, LENGTH_SEED)._replace(step=jnp.int32(5))
        jax.tree.map(
            lambda a, b, at=at: np.testing.assert_array_equal(a[at], b),
            together,
            draw(state),
        )
    assert np.any(together[0].tokens[0] != together[0].tokens[1])


def test_under_a_member_axis_the_choice_of_a_bucket_is_still_a_branch():
    """A select would compute every bucket at every step."""
    states = stack([init_member(POPULATION, member, LENGTH_SEED) for member in MEMBERS])
    numbers = strong([member.numbers for member in MEMBERS])
    step = jax.make_jaxpr(partial(population_step, POPULATION))(states, numbers)
    branches = [
        eqn.params["branches"] for eqn in step.eqns if eqn.primitive.name == "cond"
    ]
    assert [len(one) for one in branches] == [len(POPULATION.recipe.buckets)] == [2]


def test_members_resume_together_from_where_each_was_killed(alone, tmp_path):
    """Member 1 was killed before its last checkpoint, a third one never began."""
    savers = [Checkpoints(tmp_path / str(at)) for at in range(3)]
    half = SETTINGS | {"steps": 6, "save_every": 2, "at_once": 1}
    train_population(ONE_BUCKET, MEMBERS, savers=savers[:2], **half)
    savers[1]._manager.delete(6)
    seen = []

    def note(progress):
        seen.append((progress.members, progress.step))
        # Whoever notes metrics has them when what is saved with the state is made.
        assert progress.step not in savers[progress.members[0]].steps()

    states = train_population(
        ONE_BUCKET,
        [*MEMBERS, MEMBERS[0]],
        savers=savers,
        on_dispatch=note,
        **(SETTINGS | {"save_every": 2, "at_once": 2}),
    )
    # Back to step 4, which both have; not to 0, from where the third one starts.
    assert seen == [*(((2,), step) for step in (2, 4, 6, 8)), ((1, 0), 6), ((1, 0), 8)]
    for at, (state, _) in enumerate(alone):
        assert int(states[at].step) == 8
        assert_params_like(states[at], state)
    assert_params_like(states[2], alone[0][0])
    assert [saver.steps()[-1] for saver in savers] == [8, 8, 8]
    # A run alone goes on from a member's checkpoint.
    seen.clear()
    savers[0]._manager.delete(8)
    state = train(
        plain_recipe(MEMBERS[0].numbers),
        seed=MEMBERS[0].seed,
        saver=savers[0],
        on_dispatch=lambda progress: seen.append(progress.step),
        **SETTINGS,
    )
    assert seen == [8]
    assert_params_like(state, alone[0][0])
    for saver in savers:
        saver.close()


@pytest.mark.parametrize(
    "sizes",
    [
        {"population": 2, "data": 2, "tensor": 2},
        pytest.param({"population": 2, "fsdp": 4}, marks=pytest.mark.slow),
        pytest.param({"data": 4, "tensor": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_members_that_several_devices_share_equal_the_runs_alone(
    alone, monkeypatch, sizes
):
    """Members over one axis of the mesh, and each model over the others."""
    found = []

    def looked_at(population, *arrays, **static):
        states, metrics = compiled_population(population, *arrays, **static)
        layer = states.params["layers"]["kind_0"]
        found.append(layer["attention"]["query"]["kernel"].sharding.spec)
        return states, metrics

    monkeypatch.setattr(population_loop, "compiled_population", looked_at)
    sharding = Sharding(make_mesh(sizes))
    recipe = dataclasses.replace(ONE_BUCKET.recipe, sharding=sharding)
    states, losses = trained(Population(recipe, FAMILY), at_once=2)
    assert_like_alone(states, losses, alone)
    # Of members, repeated layers, width, heads and their width.
    own = ("population" if "population" in sizes else None, None)
    own += ("fsdp" if "fsdp" in sizes else None,)
    own += ("tensor" if "tensor" in sizes else None,)
    assert {(*spec, *[None] * (4 - len(spec)))[:4] for spec in found} == {own}


@pytest.mark.fast
def test_programs_are_equal_where_recipes_differ_in_their_optimizer_only():
    other = Population(tiny_recipe("even_pairs", optimizer=adam(0.5)), FAMILY)
    assert other == POPULATION
    assert hash(other) == hash(POPULATION)
    assert Population(tiny_recipe("reverse_string"), FAMILY) != POPULATION
    assert Population(POPULATION.recipe, OptimizerFamily(steps=9)) != POPULATION


@pytest.mark.fast
def test_one_member_at_a_time_on_a_cpu():
    assert members_at_once(POPULATION, 100) == 1
    wider = dataclasses.replace(POPULATION.recipe, batch_size=8)
    assert step_bytes(wider) > step_bytes(POPULATION.recipe) > 0


@pytest.mark.fast
def test_a_loop_is_reckoned_like_as_many_rows_and_a_part_of_a_batch_alone():
    recipe = POPULATION.recipe
    twice = dataclasses.replace(recipe, batch_size=2 * recipe.batch_size)
    looped = dataclasses.replace(
        recipe, model=dataclasses.replace(recipe.model, loops=2)
    )
    in_parts = dataclasses.replace(twice, accumulate=2)
    assert step_bytes(looped) == step_bytes(twice) > step_bytes(recipe)
    assert step_bytes(in_parts) == step_bytes(recipe)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (Numbers(1e-2), "weight_decay=0.0 does not go with decays=True"),
        (Numbers(1e-2, 0.1, 0.0), "max_grad_norm=0.0 does not go with clips=True"),
        (Numbers(-1.0, 0.1), "learning_rate must be positive"),
        (Numbers(1e-2, -0.1), "weight_decay must not be negative"),
    ],
)
def test_numbers_out_of_range_or_of_another_program_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        train_population(POPULATION, [Member(0, numbers)], steps=1)


@pytest.mark.fast
def test_settings_out_of_range_are_refused():
    for name in ("at_once", "steps", "save_every"):
        with pytest.raises(ValueError, match=name):
            train_population(POPULATION, MEMBERS, **{"steps": 1, name: 0})
    with pytest.raises(ValueError, match="number of members"):
        train_population(POPULATION, [], steps=1)
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    with pytest.raises(ValueError, match="axis 'population'"):
        train_population(POPULATION, MEMBERS, steps=1, mesh=mesh)
    one = init_member(POPULATION, MEMBERS[0], 0)
    with pytest.raises(ValueError, match="share a length seed"):
        stack([one, init_member(POPULATION, MEMBERS[1], 1)])
    with pytest.raises(ValueError, match=r"at one step; got steps \[0, 1\]"):
        stack([one, one._replace(step=jnp.int32(1))])
    with pytest.raises(ValueError, match="one member at least"):
        stack([])


@pytest.mark.fast
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([(3, Numbers(1e-2, 0.1))], r"members\[0\] must be Member\(seed, Numbers"),
        ([MEMBERS[0], Member(3, 1e-2)], r"members\[1\] must be Member"),
        ([Member(0.5, MEMBERS[0].numbers)], r"seed of members\[0\] must be a whole"),
        ([Member(-1, MEMBERS[0].numbers)], r"seed of members\[0\] must be in 0"),
        ([Member(0, Numbers("1e-2", 0.1))], r"learning_rate of members\[0\] must be a"),
        ([Member(0, Numbers(True, 0.1))], r"learning_rate of members\[0\] must be a"),
        ([Member(0, Numbers(np.ones(2), 0.1))], r"learning_rate of members\[0\]"),
    ],
)
def test_what_is_no_member_is_refused(members, message):
    with pytest.raises(ValueError, match=message):
        train_population(POPULATION, members, steps=1)


@pytest.mark.fast
@pytest.mark.parametrize("savers", [[], [None], [None] * 3])
def test_savers_are_one_a_member(savers):
    with pytest.raises(ValueError, match=f"got {len(savers)} for 2 members"):
        train_population(POPULATION, MEMBERS, steps=1, savers=savers)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": -1}, "steps must be at least 0"),
        ({"steps": 2.0}, "steps must be a whole number"),
        ({"steps": 5, "warmup_steps": 5}, "warmup_steps must be in 0 .. 4 for steps=5"),
        ({"steps": 5, "final_fraction": 1.5}, "final_fraction must be in"),
    ],
)
def test_a_family_that_cannot_be_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        OptimizerFamily(**given)
