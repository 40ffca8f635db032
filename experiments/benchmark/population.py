"""Models x steps a second of populations: mapped over at once, and one after another.

Model: that of the Chomsky-hierarchy benchmark (5 layers, width 64, 8 heads), RoPE, with
randomized positions drawn once a layer, Even Pairs. `--tiny` takes the quickstart's
size instead. Members have seeds and learning rates of their own. One after another
needs one program and one model's memory; mapped needs one program a number of members.
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from rich.table import Table

from experiments.benchmark.timing import compiled, measure, wide_console
from ropejax.encodings import ENCODINGS, Dims
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Randomized
from ropejax.tasks import TASKS
from ropejax.training import Fixed, Numbers, OptimizerFamily, Recipe, adam
from ropejax.training.members import Member, strong
from ropejax.training.population import (
    AXIS,
    Population,
    compiled_member,
    compiled_population,
    init_member,
    stack,
)

STEPS = 10
"""Steps a dispatch; a call is one dispatch."""


def population_of(batch: int, length: int, tiny: bool) -> Population:
    """The published model on Even Pairs at one length, or a small one."""
    task = TASKS["even_pairs"]()
    width, layers, heads = (32, 2, 4) if tiny else (64, 5, 8)
    spec = TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=width // heads,
            embed_dim=width,
            num_layers=layers,
        ),
        BlockSettings(mlp_dim=4 * width, dropout=0.0 if tiny else 0.1),
        (LayerKind(ENCODINGS["rope"]()),),
    )
    recipe = Recipe(
        model=spec,
        task=task,
        positions=Randomized(per_layer=True),
        optimizer=adam(1e-3),
        curriculum=Fixed(length),
        buckets=(length,),
        batch_size=batch,
    )
    return Population(recipe, OptimizerFamily(steps=1000))


def members_of(count: int) -> list[Member]:
    """Members with seeds and learning rates of their own."""
    return [Member(seed, Numbers(1e-4 * (1 + seed % 3))) for seed in range(count)]


def mapped_cost(population: Population, count: int, mesh: Mesh | None) -> dict:
    """One dispatch of all members at once."""
    members = members_of(count)
    states = stack([init_member(population, member, 0) for member in members])
    numbers = strong([member.numbers for member in members])
    program, seconds = compiled(
        compiled_population,
        population,
        states,
        numbers,
        jnp.int32(STEPS),
        capacity=STEPS,
        mesh=mesh,
    )
    holder = [states]

    def call():
        holder[0], metrics = program(holder[0], numbers, jnp.int32(STEPS))
        return metrics

    return _cost(program, call, count, seconds)


def one_by_one_cost(population: Population, count: int) -> dict:
    """One dispatch of each member in turn, all through one program."""
    members = members_of(count)
    states = [init_member(population, member, 0) for member in members]
    numbers = [strong(member.numbers) for member in members]
    program, seconds = compiled(
        compiled_member,
        population,
        states[0],
        numbers[0],
        jnp.int32(STEPS),
        capacity=STEPS,
    )

    def call():
        for at, own in enumerate(numbers):
            states[at], metrics = program(states[at], own, jnp.int32(STEPS))
        return metrics

    return _cost(program, call, count, seconds)


def _cost(program, call, count: int, seconds: float) -> dict:
    cost = measure(program, call, compile_s=seconds, repeats=5, budget_s=15.0)
    return dataclasses.asdict(cost) | {
        "models_x_steps_a_s": count * STEPS / cost.wall_s,
        "cpu_ms_a_model_step": 1e3 * cost.cpu_s / (count * STEPS),
    }


def show(result: dict, batch: int, length: int) -> None:
    """Prints throughput, memory and compile time by number of members."""
    device = jax.devices()[0]
    table = Table(
        title=f"populations, batch {batch}, length {length}, "
        f"{jax.device_count()} x {device.device_kind}"
    )
    for column in (
        "members",
        "how",
        "models x steps / s",
        "to one alone",
        "CPU ms / model step",
        "MiB",
        "compile s",
    ):
        table.add_column(column, justify="left" if column == "how" else "right")
    alone = result["1 one after another"]["models_x_steps_a_s"]
    for name, cost in result.items():
        members, _, how = name.partition(" ")
        if "failed" in cost:
            table.add_row(members, how, cost["failed"])
            continue
        speed = cost["models_x_steps_a_s"]
        table.add_row(
            members,
            how,
            f"{speed:,.4g}",
            f"{speed / alone:.2f}",
            f"{cost['cpu_ms_a_model_step']:.3g}",
            f"{cost['temporary_mib']:,.0f}",
            f"{cost['compile_s']:.1f}",
        )
    wide_console().print(table)


def main(argv: list[str]) -> dict:
    """Measures populations of several sizes."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark population")
    parser.add_argument(
        "--members", default="1,4,16", help="comma-separated (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=128, help="sequences a step")
    parser.add_argument("--length", type=int, default=40, help="symbols")
    parser.add_argument("--tiny", action="store_true", help="the quickstart's size")
    given = parser.parse_args(argv)
    population = population_of(given.batch, given.length, given.tiny)
    devices = jax.devices()
    result = {}
    for count in sorted({1, *map(int, given.members.split(","))}):
        result[f"{count} one after another"] = one_by_one_cost(population, count)
        mesh = None
        if len(devices) > 1 and count % len(devices) == 0:
            mesh = Mesh(devices, (AXIS,))
        try:
            result[f"{count} mapped"] = mapped_cost(population, count, mesh)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            result[f"{count} mapped"] = {"failed": "out of memory"}
    show(result, given.batch, given.length)
    return result
