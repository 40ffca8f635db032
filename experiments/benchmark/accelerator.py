"""All that is worth measuring on one accelerator, in one run of a few minutes.

    python -m experiments.benchmark accelerator --out=accelerator.json

Training steps and evaluation of the Chomsky-hierarchy benchmark, attention beside
cuDNN, populations of 1 to 256 models, and one step of a decoder beside what
`experiments.plan` says of it. What was measured is written after each part, and a part
that fails says so and leaves the others alone: the machine may be lent for minutes.
`--small` takes sizes that a CPU can do, to try the command itself.
"""

import argparse
import dataclasses
import json
import pathlib
import traceback
from collections.abc import Callable

import jax
import jax.numpy as jnp
from rich.console import Console

from experiments.benchmark import attention_gpu, che, population
from experiments.plan.costs import make_plan, roofline
from experiments.plan.hardware import HARDWARE
from ropejax.encodings import Dims, Rotary
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Consecutive
from ropejax.tasks import TASKS
from ropejax.training import Fixed, Recipe, adam


def steps_part(small: bool) -> dict:
    """Training steps of the published example."""
    tasks = ("missing_duplicate_string", "reverse_string")
    length = 4 if small else 40
    return {task: che.step_cost(task, length) for task in tasks}


def evaluation_part(small: bool) -> dict:
    """512 samples of Missing Duplicate at several lengths."""
    lengths = (4,) if small else (41, 250, 500)
    return {length: che.evaluation_cost(length) for length in lengths}


def attention_part(small: bool) -> dict:
    """Attention beside cuDNN; skipped where there is no NVIDIA GPU."""
    sizes = attention_gpu.Sizes(1, 128, 2, 64, 256) if small else None
    return attention_gpu.measured(sizes)


def population_part(small: bool) -> dict:
    """Models x steps a second, by number of members."""
    if small:
        return population.main(["--members=2", "--tiny", "--batch=4", "--length=4"])
    return population.main(["--members=1,4,16,64,256"])


def decoder_part(small: bool) -> dict:
    """A step of a causal model beside its estimate: 135 million parameters, bfloat16.

    Reverse String at 511 symbols, batch 16, so 1,022 tokens a row.
    """
    recipe = decoder_recipe(small)
    program, cost = che.one_step(recipe)
    plan = make_plan(recipe)
    memory = program.memory_analysis()
    result = dataclasses.asdict(cost) | {
        "parameters": plan.parameters,
        "planned_mib": plan.peak_bytes / 2**20,
        "compiled_mib": (memory.temp_size_in_bytes + memory.argument_size_in_bytes)
        / 2**20,
    }
    kind = jax.devices()[0].device_kind
    for hardware in HARDWARE.values():
        if kind.startswith(hardware.device_kinds):
            limits = roofline(plan, plan.shapes[-1], hardware, "bfloat16")
            result["roofline_s"] = limits._asdict()
            result["of_roofline"] = limits.overlapped_s / cost.wall_s
            break
    return result


def decoder_recipe(small: bool) -> Recipe:
    """A causal model on Reverse String; a tiny one if small."""
    layers, heads, width, length = (2, 2, 16, 4) if small else (12, 12, 64, 511)
    dims = Dims(heads, heads, width, heads * width, num_layers=layers, causal=True)
    settings = BlockSettings(
        mlp_dim=4 * heads * width, pre_norm=True, dropout=0.0, dtype=jnp.bfloat16
    )
    vocabulary = 8 if small else 32_768  # embeddings as large as a language model's
    task = TASKS["reverse_string"]()
    model = TransformerSpec(
        vocabulary, task.output_vocab, dims, settings, (LayerKind(Rotary(), Causal()),)
    )
    return Recipe(
        model=model,
        task=task,
        positions=Consecutive(),
        optimizer=adam(1e-4),
        curriculum=Fixed(length),
        buckets=(length,),
        batch_size=2 if small else 16,
    )


PARTS: dict[str, Callable[[bool], dict]] = {
    "steps": steps_part,
    "evaluation": evaluation_part,
    "attention": attention_part,
    "decoder": decoder_part,
    "population": population_part,
}


def main(argv: list[str]) -> dict:
    """Measures the parts one after another."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark accelerator")
    parser.add_argument(
        "--parts", default=",".join(PARTS), help="comma-separated (default: all)"
    )
    parser.add_argument("--out", type=pathlib.Path, help="JSON, after each part")
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    given = parser.parse_args(argv)
    wanted = given.parts.split(",")
    if unknown := sorted({*wanted} - {*PARTS}):
        parser.error(f"--parts: unknown {unknown}; choose from {sorted(PARTS)}")
    device = jax.devices()[0]
    if device.platform == "cpu" and not given.small:
        parser.error("JAX found no accelerator; --small tries the command on a CPU")
    result = {
        "device": device.device_kind,
        "devices": jax.device_count(),
        "jax": jax.__version__,
    }
    console = Console(stderr=True)
    for name in wanted:
        console.print(f"[bold]{name}[/bold]: {PARTS[name].__doc__.splitlines()[0]}")
        try:
            result[name] = PARTS[name](given.small)
        except Exception as error:  # what the other parts measured must not be lost
            traceback.print_exc()
            result[name] = {"failed": f"{type(error).__name__}: {error}"}
        if given.out:
            given.out.write_text(json.dumps(result, indent=2))
    return result
