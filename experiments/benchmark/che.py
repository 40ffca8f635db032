"""What the Chomsky-hierarchy benchmark costs here, and beside the published code.

Model: 5 layers, width 64, 8 heads, Transformer-XL relative encoding with randomized
distances drawn once a layer, dropout 0.1, Adam: the settings of the published example.
The integrated figures time lengths 1, 10, 41, 100, 250 and 500 and integrate a line
through them over all lengths; they say so.
"""

import argparse
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from experiments.benchmark.timing import (
    Cost,
    compiled,
    in_own_process,
    measure,
    peak_memory_mib,
    wide_console,
)
from ropejax.encodings import ENCODINGS, Dims
from ropejax.evaluation import evaluate_length
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.positions import Randomized
from ropejax.tasks import TASKS
from ropejax.training import Fixed, Recipe, Uniform, adam, even_buckets, init_state
from ropejax.training.buckets import bucket_of, grid_buckets
from ropejax.training.loop import compiled_steps

LENGTHS = (1, 10, 41, 100, 250, 500)
SAMPLES = 512
BATCH = 128

PUBLISHED = {
    "step missing_duplicate_string": {"wall_s": 0.59, "cpu_s": 1.07, "goal": 0.75},
    "step reverse_string": {"wall_s": 1.50, "cpu_s": 2.77, "goal": 0.75},
    "evaluation 1..500": {"cpu_s": 17_500.0, "goal": 0.4},
    "evaluation peak memory": {"mib": 5120.0, "goal": 0.5},
    "compilation 1..40": {"cpu_s": 880.0, "goal": 0.1},
    "500 steps and test to 100": {"cpu_s": 2_650.0, "goal": 0.2},
}
"""google-deepmind/randomized_positional_encodings at the same settings, measured on two
quiet CPU cores; `goal` is the largest ratio that ropejax wants."""


def recipe_of(task: str, **changes) -> Recipe:
    """The published example's training, for any task."""
    task = TASKS[task]()
    spec = TransformerSpec(
        task.num_symbols,
        task.output_vocab,
        Dims(num_heads=8, num_kv_heads=8, head_dim=8, embed_dim=64, num_layers=5),
        BlockSettings(mlp_dim=256, dropout=0.1),
        (LayerKind(ENCODINGS["transformer_xl"]()),),
    )
    recipe = Recipe(
        model=spec,
        task=task,
        positions=Randomized(per_layer=True, distances=True),
        optimizer=adam(1e-3),
        curriculum=Uniform(40),
        buckets=even_buckets(40, 5),
        batch_size=BATCH,
    )
    return dataclasses.replace(recipe, **changes)


def step_cost(task: str, length: int) -> dict:
    """One training step at one length."""
    recipe = recipe_of(task, curriculum=Fixed(length), buckets=(length,))
    return dataclasses.asdict(one_step(recipe)[1])


def one_step(recipe: Recipe) -> tuple[jax.stages.Compiled, Cost]:
    """Returns the compiled program of one training step, and what it costs."""
    state = init_state(recipe, 0)
    program, seconds = compiled(
        compiled_steps, recipe=recipe, state=state, count=jnp.int32(1), capacity=1
    )
    holder = [state]

    def call():
        holder[0], metrics = program(state=holder[0], count=jnp.int32(1))
        return metrics

    return program, measure(program, call, compile_s=seconds)


def steps_part() -> dict:
    """Training steps at length 40: 41 tokens, and 80 tokens."""
    return {
        f"step {task}": step_cost(task, 40)
        for task in ("missing_duplicate_string", "reverse_string")
    }


def training_compilation_part() -> dict:
    """One program that trains all lengths 1 to 40."""
    recipe = recipe_of("missing_duplicate_string")
    state = init_state(recipe, 0)
    _, seconds = compiled(
        compiled_steps, recipe=recipe, state=state, count=jnp.int32(1), capacity=100
    )
    return {
        "compilation 1..40": {"cpu_s": seconds, "compiled_shapes": len(recipe.buckets)}
    }


def evaluation_cost(length: int) -> dict:
    """One length's evaluation in the bucket that serves it."""
    recipe = recipe_of("missing_duplicate_string")
    params = init_state(recipe, 0).params
    bucket = bucket_of(length, grid_buckets(range(1, 501)))
    bucket = min(bucket, 500)
    rng = jax.random.key(0)
    program, seconds = compiled(
        evaluate_length,
        model=recipe.model,
        params=params,
        task=recipe.task,
        positions=recipe.positions,
        rng=rng,
        length=jnp.int32(length),
        bucket=bucket,
        samples=SAMPLES,
        draws=8,
    )
    call = lambda: program(params=params, rng=rng, length=jnp.int32(length))
    cost = dataclasses.asdict(measure(program, call, compile_s=seconds, repeats=3))
    return cost | {"bucket": bucket, "peak_memory_mib": peak_memory_mib()}


def evaluation_part() -> dict:
    """All lengths 1 to 500, 512 samples each, by integration; memory at length 500."""
    costs = {
        length: in_own_process("experiments.benchmark.che", f"--evaluate={length}")
        for length in LENGTHS
    }
    shapes = grid_buckets(range(1, 501))
    compile_s = len(shapes) * float(
        np.mean([cost["compile_s"] for cost in costs.values()])
    )
    result = {f"evaluation length {length}": cost for length, cost in costs.items()}
    for longest in (100, 500):
        asked = np.arange(1, longest + 1)
        each = np.interp(asked, LENGTHS, [costs[at]["cpu_s"] for at in LENGTHS])
        used = [size for size in shapes if size <= bucket_of(longest, shapes)]
        share = compile_s * len(used) / len(shapes)
        result[f"evaluation 1..{longest}"] = {
            "cpu_s": float(each.sum() + share),
            "compile_s": float(share),
            "compiled_shapes": len(used),
            "integrated": True,
        }
    result["evaluation peak memory"] = {"mib": costs[500]["peak_memory_mib"]}
    return result


def run_part(parts: dict) -> dict:
    """500 steps on lengths 1 to 40 and a test to 100, added up from the others."""
    task = "missing_duplicate_string"
    costs = [step_cost(task, length)["cpu_s"] for length in (8, 24, 40)]
    mean_step = float(np.interp(even_buckets(40, 5), (8, 24, 40), costs).mean())
    total = (
        500 * mean_step
        + parts["compilation 1..40"]["cpu_s"]
        + parts["evaluation 1..100"]["cpu_s"]
    )
    return {
        "500 steps and test to 100": {
            "cpu_s": total,
            "mean_step_cpu_s": mean_step,
            "integrated": True,
        }
    }


def sampling_part() -> dict:
    """A batch of 128 of every task at lengths 40 and 500, after compilation."""
    return {
        f"sample {name} {length}": sampling_cost(name, length) | {"limit_ms": limit}
        for name in TASKS
        for length, limit in ((40, 5.0), (500, 20.0))
    }


def sampling_cost(name: str, length: int) -> dict:
    """A batch of one task at one length."""
    task = TASKS[name]()
    sample = lambda rng, lengths: task.sample(rng, lengths, max_length=length)
    rng, lengths = jax.random.key(0), jnp.full((BATCH,), length)
    program, seconds = compiled(sample, rng, lengths)
    call = lambda: program(rng, lengths)
    return dataclasses.asdict(measure(program, call, compile_s=seconds, repeats=21))


PARTS = {
    "steps": steps_part,
    "training_compilation": training_compilation_part,
    "evaluation": evaluation_part,
    "sampling": sampling_part,
}


def show(result: dict) -> None:
    """Prints what was measured, and ratios to the published code where known."""
    table = Table(title="Chomsky-hierarchy benchmark (CPU seconds unless named)")
    for column in ("what", "wall", "cpu", "compile", "MiB", "shapes", "ratio", "goal"):
        words = column == "what"
        table.add_column(column, justify="left" if words else "right", no_wrap=words)
    number = lambda value: "" if value is None else f"{value:,.3g}"
    for name, cost in result.items():
        published = PUBLISHED.get(name, {})
        ratios = [
            cost[key] / published[key] for key in ("cpu_s", "mib") if key in published
        ]
        mib = cost.get("mib", cost.get("temporary_mib"))
        table.add_row(
            name + (" (integrated)" if cost.get("integrated") else ""),
            number(cost.get("wall_s")),
            number(cost.get("cpu_s")),
            number(cost.get("compile_s")),
            number(mib),
            number(cost.get("compiled_shapes")),
            number(ratios[0] if ratios else None),
            number(published.get("goal")),
        )
    wide_console().print(table)


def main(argv: list[str]) -> dict:
    """Runs the parts, each in a process of its own, and shows them."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark che")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--evaluate", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.evaluate:
        return evaluation_cost(arguments.evaluate)
    if arguments.here:
        return PARTS[arguments.part]()
    wanted = PARTS if arguments.part == "all" else [arguments.part]
    result = {}
    for part in wanted:
        result |= in_own_process(
            "experiments.benchmark.che", f"--part={part}", "--here"
        )
    if arguments.part == "all":
        result |= run_part(result)
    for name, published in PUBLISHED.items():
        if name in result:
            result[name]["published"] = published
    show(result)
    return result


if __name__ == "__main__":
    import sys

    print(json.dumps(main(sys.argv[1:])))
