"""Attention on a GPU: the fused engine beside cuDNN without an encoding, and others.

One layer, batch 4, 16 heads of 128, 8,192 tokens, bfloat16, causal, forward and with
gradients to queries, keys and values. Nothing runs where there is no NVIDIA GPU; the
result says so. Goals: RoPE through "fused" at 0.9 of cuDNN's own speed, ALiBi at 0.5,
and blockwise at 3 times dense. Not run yet: no GPU was at hand.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.benchmark.timing import compiled, measure
from ropejax import masks
from ropejax.attention import attend
from ropejax.attention.requests import current_platform
from ropejax.encodings import ALiBi, Dims, Encoding, Rotary
from ropejax.tokens import tokens

GOALS = {"fused rope": 0.9, "fused alibi": 0.5}
"""The least speed that ropejax wants, as a part of cuDNN's without an encoding."""

BLOCKWISE_GOAL = 3.0
"""How many times faster than dense blockwise is to be."""


class Sizes(NamedTuple):
    """What is attended to.

    Attributes:
        batch: rows.
        length: tokens.
        heads: heads of queries and of keys.
        width: channels of a head.
        longest: tokens of one more run, forward, one row.
    """

    batch: int = 4
    length: int = 8192
    heads: int = 16
    width: int = 128
    longest: int = 131_072


def measured(sizes: Sizes | None = None) -> dict:
    """Returns milliseconds by engine and method, their ratios, and the goals.

    Args:
        sizes: what is attended to; those of the goals if None.
    """
    sizes = Sizes() if sizes is None else sizes
    platform = current_platform()
    if platform != "gpu":
        return {"skipped": f"this section needs an NVIDIA GPU, and JAX has {platform}"}
    found = {
        name: {
            kind: _milliseconds(run, sizes, gradient=kind == "gradient")
            for kind in ("forward", "gradient")
        }
        for name, run in programs(sizes).items()
    }
    plain = found["cudnn, no encoding"]
    ratios = {
        name: {kind: plain[kind] / found[name][kind] for kind in plain}
        for name in GOALS
    }
    blockwise = {
        kind: found["dense rope"][kind] / found["blockwise rope"][kind]
        for kind in plain
    }
    longest = sizes._replace(batch=1, length=sizes.longest)
    run = programs(longest)["fused rope"]
    return {
        "sizes": sizes._asdict(),
        "milliseconds": found,
        "speed of cudnn": ratios,
        "speed of cudnn, goals": GOALS,
        "blockwise, times dense": blockwise,
        "blockwise, goal": BLOCKWISE_GOAL,
        "longest, forward ms": _milliseconds(run, longest, gradient=False),
    }


def programs(sizes: Sizes) -> dict[str, Callable]:
    """Returns functions of queries, keys and values, by engine and method."""
    cudnn = functools.partial(
        jax.nn.dot_product_attention, is_causal=True, implementation="cudnn"
    )
    return {
        "cudnn, no encoding": cudnn,
        "fused none": attending(Encoding(), "fused", sizes),
        "fused rope": attending(Rotary(), "fused", sizes),
        "fused alibi": attending(ALiBi(), "fused", sizes),
        "pallas alibi": attending(ALiBi(), "pallas", sizes),
        "blockwise rope": attending(Rotary(), "blockwise", sizes),
        "dense rope": attending(Rotary(), "dense", sizes),
    }


def attending(encoding: Encoding, implementation: str, sizes: Sizes) -> Callable:
    """Returns attention under an encoding, causal, as a function of q, k and v."""
    dims = Dims(sizes.heads, sizes.heads, sizes.width, sizes.heads * sizes.width)

    def run(q, k, v):
        where = tokens(sizes.length)
        return attend(
            q,
            k,
            v,
            encoding=encoding,
            params=encoding.prepare({}, {}, where, where, dims),
            query=where,
            key=where,
            mask=masks.Causal(),
            implementation=implementation,
        )

    return run


def _milliseconds(run: Callable, sizes: Sizes, *, gradient: bool) -> float:
    shape = (sizes.batch, sizes.length, sizes.heads, sizes.width)
    rngs = jax.random.split(jax.random.key(0), 3)
    arrays = [jax.random.normal(rng, shape, jnp.bfloat16) for rng in rngs]
    if gradient:
        total = lambda *x: jnp.sum(run(*x).astype(jnp.float32) ** 2)
        timed = jax.grad(total, (0, 1, 2))
    else:
        timed = run
    program, seconds = compiled(timed, *arrays)
    spent = measure(program, lambda: program(*arrays), compile_s=seconds)
    return spent.wall_s * 1e3
