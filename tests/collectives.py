"""What devices send each other, read from a compiled program's text.

A collective inside a loop counts as often as the loop goes round, and of a branch both
sides count. What it sends is reckoned by rings: of n devices, a sum sends 2 (n - 1) / n
of its array from each, a gathering and a scattering half of that, a hop all of it.
"""

import collections
import math
import re

import jax
import jax.numpy as jnp

from ropejax.positions.base import Placement
from ropejax.tasks import Batch
from ropejax.training import Recipe
from ropejax.training.gradients import gradients

KINDS = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "s64": 8, "s32": 4, "u32": 4}


def float_shapes(text: str) -> dict[str, set[tuple[int, ...]]]:
    """Returns the shapes of floats that each kind of collective gives."""
    found = collections.defaultdict(set)
    for results, kind in re.findall(rf"= (\(?[^=]*?\)?) ({KINDS})(?:-start)?\(", text):
        for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", results):
            if dtype.startswith(("f", "bf")):
                found[kind].add(tuple(int(n) for n in shape.split(",") if n))
    return dict(found)


def sent_bytes(text: str) -> dict[tuple[str, int], float]:
    """Returns the bytes that a device sends, by kind of collective and group's size.

    Args:
        text: `compiled.as_text()`.
    """
    bodies = dict(
        re.findall(r"^(?:ENTRY )?%([\w.\-]+) \(.*?\{$(.*?)^\}", text, re.M | re.S)
    )
    entry = re.search(r"^ENTRY %([\w.\-]+)", text, re.M).group(1)
    totals: dict[tuple[str, int], float] = collections.defaultdict(float)

    def visit(name: str, times: int) -> None:
        for line in bodies.get(name, "").splitlines():
            kind = re.search(rf" ({KINDS})(?:-start)?\(", line)
            if kind:
                size = _group_size(line)
                share = _share(kind.group(1), size)
                totals[kind.group(1), size] += times * share * _size(line, kind.start())
                continue
            rounds = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            inner = times * (int(rounds.group(1)) if rounds else 1)
            for called in re.findall(r"(?:body|to_apply|calls)=%([\w.\-]+)", line):
                visit(called, inner)
            for branches in re.findall(r"branch_computations=\{([^}]*)\}", line):
                for called in re.findall(r"%([\w.\-]+)", branches):
                    visit(called, times)

    visit(entry, 1)
    return dict(totals)


def _size(line: str, end: int) -> float:
    """Bytes of what a collective gives on one device."""
    shapes = re.findall(r"(\w+)\[([\d,]*)\]", line[line.index(" = ") : end])
    sizes = (
        _BYTES.get(dtype, 1) * math.prod(int(n) for n in shape.split(",") if n)
        for dtype, shape in shapes
    )
    return float(sum(sizes))


def _share(kind: str, size: int) -> float:
    ring = (size - 1) / size
    return {
        "all-reduce": 2 * ring,
        "all-gather": ring,
        "all-to-all": ring,
        "reduce-scatter": size - 1,  # of its result, a part
        "collective-permute": 1,
    }[kind]


def _group_size(line: str) -> int:
    """How many devices speak with each other; 1 of a hop, which has pairs."""
    if groups := re.search(r"replica_groups=\[\d+,(\d+)\]<=", line):
        return int(groups.group(1))
    if groups := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(groups.group(1).split(","))
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\].*? \{('[^}]*)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh.group(1)))
        return math.prod(
            int(sizes[axis]) for axis in re.findall(r"'(\w+)'", mesh.group(2))
        )
    return 1


def gradient_program(recipe: Recipe, length: int) -> str:
    """Returns the compiled text of a gradient step of a recipe on its mesh.

    Args:
        recipe: its model, batch size and sharding count.
        length: tokens a row.
    """
    spec, sharding = recipe.model, recipe.sharding
    params = jax.eval_shape(spec.init, jax.random.key(0))
    where = sharding.parameters(spec, params)
    as_placed = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    params = jax.tree.map(as_placed, params, where)

    def step(params, symbols):
        seen = symbols >= 0
        lengths = jnp.full((recipe.batch_size,), length)
        batch = sharding.batch(Batch(symbols, symbols, seen, seen, lengths))
        return gradients(recipe, params, batch, Placement(), jax.random.key(0))[0]

    symbols = jax.ShapeDtypeStruct((recipe.batch_size, length), jnp.int32)
    program = jax.jit(step, out_shardings=where).lower(params, symbols).compile()
    return program.as_text()
