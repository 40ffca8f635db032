"""Attention engines beside `jax.nn.dot_product_attention`, in one run.

One layer, batch 1, 8 heads of 64, float32, causal. The comparison is ALiBi with learned
slopes, forward with gradients to queries, keys, values and slopes: `jax.nn` gets the
same bias as an array. Then what a sliding window saves, and what RoPE and ReRoPE add in
the same engine, and what a GPU does, where there is one. `--long` attends forward over
131,072 tokens, `--longest` over any number (minutes).
"""

import argparse
import time

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from experiments.benchmark import attention_gpu as benchmark_attention_gpu
from experiments.benchmark.timing import Cost, compiled, measure, peak_memory_mib
from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import ALiBi, Dims, Encoding, ReRoPE, Rotary
from ropejax.encodings.alibi import alibi_slopes
from ropejax.tokens import tokens

LENGTHS = (1024, 4096, 8192)
LONG = 131_072
HEADS, WIDTH = 8, 64
DIMS = Dims(HEADS, HEADS, WIDTH, HEADS * WIDTH, causal=True)
PEAK_GFLOPS = 157.0
"""Float32 limit of two cores of the reference CPU."""

GOALS = {
    1024: {"wall": 0.5, "cpu": 0.5, "memory": 1 / 10},
    4096: {"wall": 0.33, "cpu": 0.33, "memory": 1 / 100},
    8192: {"wall": 0.33, "cpu": 0.33, "memory": 1 / 200},
}
"""The largest ratios to `jax.nn` that ropejax wants, forward with gradients."""


def inputs(length: int) -> dict:
    """Random queries, keys and values, and the slopes of ALiBi."""
    rngs = jax.random.split(jax.random.key(0), 3)
    shape = (1, length, HEADS, WIDTH)
    arrays = {
        name: jax.random.normal(rng, shape)
        for name, rng in zip("qkv", rngs, strict=True)
    }
    return arrays | {"slopes": jnp.array(alibi_slopes(HEADS))}


def by_jax_nn(arrays: dict) -> jax.Array:
    """Attention with ALiBi as `jax.nn` wants it: the bias as an array."""
    place = jnp.arange(arrays["q"].shape[1])
    bias = arrays["slopes"][:, None, None] * (place[None, :] - place[:, None])
    return jax.nn.dot_product_attention(
        arrays["q"], arrays["k"], arrays["v"], bias=bias[None], is_causal=True
    )


def by_attend(encoding: Encoding, implementation: str, mask=None):
    """Returns a function of `inputs` that attends under an encoding."""
    mask = masks.Causal() if mask is None else mask

    def run(arrays: dict) -> jax.Array:
        where = tokens(arrays["q"].shape[1])
        layer = {}
        if isinstance(encoding, ALiBi):
            layer = {"log_slopes": jnp.log(arrays["slopes"])}
        return attend(
            arrays["q"],
            arrays["k"],
            arrays["v"],
            encoding=encoding,
            params=encoding.prepare({}, layer, where, where, DIMS),
            query=where,
            key=where,
            mask=mask,
            implementation=implementation,
        )

    return run


def cost(function, length: int, *, gradient: bool) -> Cost:
    """Times a function of `inputs`, alone or with gradients to all of them."""
    arrays = inputs(length)
    timed = function
    if gradient:
        timed = jax.grad(lambda arrays: jnp.sum(function(arrays) ** 2))
    program, seconds = compiled(timed, arrays)
    return measure(program, lambda: program(arrays), compile_s=seconds)


def flops(length: int, *, gradient: bool) -> float:
    """Multiplications and additions of causal attention's matrix products.

    Two products forward; five backward, of which one is computed again.
    """
    products = 7 if gradient else 2
    return products * 2 * HEADS * WIDTH * length * (length + 1) / 2


def described(spent: Cost, length: int, *, gradient: bool) -> dict:
    """One row of the result."""
    rate = flops(length, gradient=gradient) / spent.wall_s / 1e9
    return {
        "wall_ms": spent.wall_s * 1e3,
        "cpu_ms": spent.cpu_s * 1e3,
        "temporary_mib": spent.temporary_mib,
        "compile_cpu_s": spent.compile_s,
        "gflops": rate,
        "of_peak": rate / PEAK_GFLOPS,
    }


def beside_jax_nn(length: int) -> dict:
    """Both engines and `jax.nn`, forward and with gradients, and their ratios."""
    found = {}
    for name, gradient in (("forward", False), ("gradient", True)):
        ours = cost(
            by_attend(ALiBi(learned=True), "blockwise"), length, gradient=gradient
        )
        theirs = cost(by_jax_nn, length, gradient=gradient)
        found[name] = {
            "blockwise": described(ours, length, gradient=gradient),
            "jax.nn": described(theirs, length, gradient=gradient),
            "ratio": {
                "wall": ours.wall_s / theirs.wall_s,
                "cpu": ours.cpu_s / theirs.cpu_s,
                "memory": ours.temporary_mib / theirs.temporary_mib,
            },
        }
    if length in GOALS:
        found["goal"] = GOALS[length]
    return found


def beside_full(length: int, window: int) -> dict:
    """What a sliding window costs beside full causal attention, with gradients."""
    encoding = ALiBi(learned=True)
    full = cost(by_attend(encoding, "blockwise"), length, gradient=True)
    mask = masks.Window.sliding(window)
    near = cost(by_attend(encoding, "blockwise", mask), length, gradient=True)
    found = {
        "window": window,
        "length": length,
        "full_cpu_ms": full.cpu_s * 1e3,
        "window_cpu_ms": near.cpu_s * 1e3,
        "ratio": {"wall": near.wall_s / full.wall_s, "cpu": near.cpu_s / full.cpu_s},
    }
    return found | ({"goal": 1 / 8} if (length, window) == (8192, 256) else {})


def beside_each_other(length: int) -> dict:
    """No encoding, RoPE and ReRoPE in the same engine, with gradients."""
    methods = {
        "none": Encoding(),
        "rope": Rotary(),
        "rerope": ReRoPE(window=length // 4),
    }
    spent = {
        name: cost(by_attend(encoding, "blockwise"), length, gradient=True)
        for name, encoding in methods.items()
    }
    return {
        "length": length,
        **{f"{name}_cpu_ms": each.cpu_s * 1e3 for name, each in spent.items()},
        "rope/none": spent["rope"].cpu_s / spent["none"].cpu_s,
        "rope/none goal": 1.1,
        "rerope/rope": spent["rerope"].cpu_s / spent["rope"].cpu_s,
        "rerope/rope goal": 1.3,
    }


def forward_alone(length: int) -> dict:
    """One forward pass over a long sequence, and how memory grew towards it.

    Memory linear in length makes `memory_growth` 4, quadratic 16.
    """
    run = by_attend(ALiBi(learned=True), "blockwise")
    arrays = inputs(length)
    program, seconds = compiled(run, arrays)
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(program(arrays))  # minutes: nothing to warm up for
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    quarter, _ = compiled(run, inputs(length // 4))
    temporary, of_quarter = (
        each.memory_analysis().temp_size_in_bytes / 2**20 for each in (program, quarter)
    )
    spent = Cost(wall, cpu, seconds, temporary)
    return {
        "length": length,
        **described(spent, length, gradient=False),
        "memory_growth": temporary / of_quarter,
        "peak_memory_mib": peak_memory_mib(),
    }


def show(result: dict) -> None:
    """Prints the comparison with `jax.nn` as a table, the rest as lines."""
    table = Table(title="blockwise beside jax.nn, ALiBi with learned slopes, causal")
    for column in ("tokens", "pass", "wall ms", "CPU ms", "temporary MiB", "of peak"):
        table.add_column(column, justify="right")
    for column in ("wall", "CPU", "memory"):
        table.add_column(f"{column} ratio", justify="right")
    for length, found in result["beside jax.nn"].items():
        for name in ("forward", "gradient"):
            ours, ratio = found[name]["blockwise"], found[name]["ratio"]
            table.add_row(
                f"{length:,}",
                name,
                f"{ours['wall_ms']:.0f}",
                f"{ours['cpu_ms']:.0f}",
                f"{ours['temporary_mib']:.1f}",
                f"{ours['of_peak']:.0%}",
                f"{ratio['wall']:.2f}",
                f"{ratio['cpu']:.2f}",
                f"1/{1 / ratio['memory']:.0f}",
            )
    console = Console(stderr=True)
    console.print(table)
    for name in ("sliding window", "encodings", "longest", "gpu"):
        if name in result:
            console.print(name, result[name])


def _length(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"must be a positive number of tokens, such as 1024, got {text!r}"
        )
    return int(text)


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(map(_length, text.split(",")))


def main(argv: list[str]) -> dict:
    """Measures, prints a table, and returns the numbers."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark attention")
    parser.add_argument(
        "--lengths",
        type=_lengths,
        default=LENGTHS,
        help="comma-separated numbers of tokens",
    )
    parser.add_argument(
        "--only-jax-nn", action="store_true", help="leave window and encodings out"
    )
    parser.add_argument(
        "--longest",
        type=_length,
        default=0,
        help="also attend forward over so many tokens",
    )
    parser.add_argument(
        "--long",
        dest="longest",
        action="store_const",
        const=LONG,
        help=f"the same over {LONG:,} tokens",
    )
    given = parser.parse_args(argv)
    lengths = given.lengths
    result = {
        "device": jax.devices()[0].device_kind,
        "beside jax.nn": {length: beside_jax_nn(length) for length in lengths},
    }
    if not given.only_jax_nn:
        result["sliding window"] = beside_full(
            max(lengths), max(1, min(256, max(lengths) // 8))
        )
        result["encodings"] = beside_each_other(min(4096, max(lengths)))
    if given.longest:
        result["longest"] = forward_alone(given.longest)
    result["gpu"] = benchmark_attention_gpu.measured()
    show(result)
    return result
