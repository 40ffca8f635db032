"""What each position encoding adds to an attention layer.

One layer at L = 1,024, 8 heads of 64, batch 1, float32: features, rotations, logits and
softmax, forward alone, and forward with gradients to inputs and the encoding's own
parameters. Each is shown beside no encoding and beside RoPE, measured in the same run.
Attention is causal; so a method's cost in the engine that skips what is masked shows.
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
from rich.table import Table

from experiments.benchmark.timing import compiled, measure, wide_console
from ropejax.encodings import ENCODINGS, Dims, Encoding
from ropejax.testing import example, run
from ropejax.tokens import tokens

LENGTH = 1024
DIMS = Dims(
    num_heads=8, num_kv_heads=8, head_dim=64, embed_dim=512, num_layers=1, causal=True
)


def encoding_cost(encoding: Encoding, length: int, implementation: str) -> dict:
    """Forward, and forward with gradients, of one layer under an encoding."""
    inputs = example(encoding, dims=DIMS, length=length, batch=1)
    where = positions_of(encoding, length)
    attended = lambda inputs: run(
        encoding, inputs, where, dims=DIMS, implementation=implementation
    )
    backward = jax.grad(lambda inputs: jnp.sum(attended(inputs) ** 2))
    costs = {}
    for name, function in (("forward", attended), ("gradient", backward)):
        program, seconds = compiled(function, inputs)
        call = lambda program=program: program(inputs)
        costs[name] = dataclasses.asdict(
            measure(program, call, compile_s=seconds, repeats=5, budget_s=5.0)
        )
    return costs


def positions_of(encoding: Encoding, length: int):
    """Consecutive tokens, on as many axes as the encoding reads."""
    axes = encoding.num_axes
    if axes == 1:
        return tokens(length)
    ids = jnp.broadcast_to(jnp.arange(length)[None, :, None], (1, length, axes))
    return tokens(length, positions=ids)


def show(result: dict, length: int, implementation: str) -> None:
    """Prints times and memory, and ratios to no encoding and to RoPE."""
    table = Table(title=f"encodings at L={length}, {implementation} attention, CPU ms")
    for column in ("encoding", "forward", "gradient", "/ none", "/ rope", "MiB"):
        table.add_column(column, justify="left" if column == "encoding" else "right")
    base = {name: result[name]["gradient"]["cpu_s"] for name in ("none", "rope")}
    for name, cost in result.items():
        if "refused" in cost:
            table.add_row(name, cost["refused"])
            continue
        spent = cost["gradient"]["cpu_s"]
        table.add_row(
            name,
            f"{cost['forward']['cpu_s'] * 1e3:.0f}",
            f"{spent * 1e3:.0f}",
            f"{spent / base['none']:.2f}",
            f"{spent / base['rope']:.2f}",
            f"{cost['gradient']['temporary_mib']:.0f}",
        )
    wide_console().print(table)


def main(argv: list[str]) -> dict:
    """Measures all encodings, or those named."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark encodings")
    parser.add_argument("--only", help="comma-separated names; none and rope are added")
    parser.add_argument("--length", type=int, default=LENGTH, help="tokens")
    parser.add_argument(
        "--implementation", default="auto", help="attention engine: dense, blockwise"
    )
    given = parser.parse_args(argv)
    names = list(ENCODINGS)
    if given.only:
        names = list(dict.fromkeys(["none", "rope", *given.only.split(",")]))
    result = {}
    for name in names:
        try:
            result[name] = encoding_cost(
                ENCODINGS[name](), given.length, given.implementation
            )
        except ValueError as error:
            result[name] = {"refused": str(error)}
    show(result, given.length, given.implementation)
    return result
