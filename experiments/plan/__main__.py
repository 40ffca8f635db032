r"""Says what a training run will cost on a mesh of accelerators, before it is paid for.

    python -m experiments.plan --config=configs/che.py:task=reverse_string \
        --mesh=data=4,tensor=2 --hardware=h100

Nothing is compiled or run, and no such device is needed. Printed are parameters, memory
of a device, operations, what devices send each other, and the least time of a step on
the named hardware. The exit code is 1 if a device's memory will not do.
"""

import dataclasses
import json
import math
from collections.abc import Sequence

from experiments import command
from experiments.building import overrides

_ROOM = 0.92
"""Share of a device's memory that programs can have; the rest is the runtime's."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    from experiments.plan.hardware import HARDWARE

    parser = command.parser(__doc__)
    parser.add_argument("--config", metavar="FILE[:ARG]", help="what to train")
    parser.add_argument(
        "--mesh",
        metavar="AXIS=N,...",
        help="sizes of its axes, such as data=4,tensor=2 (default: the config's)",
    )
    parser.add_argument(
        "--hardware",
        metavar="NAME",
        default="h100",
        help=f"one of {', '.join(HARDWARE)} (default: %(default)s)",
    )
    for field, unit in _EDITABLE.items():
        parser.add_argument(
            f"--{field}", type=float, metavar="X", help=f"another figure: {unit}"
        )
    parser.add_argument("--json", action="store_true", help="print JSON, not tables")
    given, rest = command.parse(parser, argv)
    if given.config is None:
        raise command.UsageError("--config is missing; --help shows an example.")
    hardware = _hardware(given)
    config = overrides.load(given.config, rest)

    from experiments.plan.costs import make_plan

    sizes = _sizes_of(config) if given.mesh is None else _sizes(given.mesh)
    recipe = _recipe(config, sizes)
    plan = make_plan(recipe)
    dtype = config.model.dtype
    fits = plan.peak_bytes <= _ROOM * hardware.memory_gb * 1e9
    if given.json:
        print(json.dumps(_as_dict(plan, hardware, dtype) | {"fits": fits}, indent=2))
    else:
        _show(plan, hardware, dtype)
        _advise(plan, hardware, fits)
    return 0 if fits else 1


_EDITABLE = {
    "bfloat16_tflops": "peak of products in bfloat16, 1e12 a second",
    "float32_tflops": "the same in float32",
    "memory_gb": "memory, 1e9 bytes",
    "bandwidth_gb_s": "its bandwidth, 1e9 bytes a second",
    "link_gb_s": "sent to neighbours, 1e9 bytes a second",
}


def _hardware(given):
    """Returns the named hardware, with the figures that the command line changes."""
    from experiments.building.options import look_up
    from experiments.plan.hardware import HARDWARE

    hardware = look_up(given.hardware, HARDWARE, "--hardware")
    changes = {
        field: getattr(given, field)
        for field in _EDITABLE
        if getattr(given, field) is not None
    }
    for field, value in changes.items():
        if not 0 < value < math.inf:
            raise command.UsageError(
                f"--{field} must be a positive, finite number, got {value}."
            )
    return dataclasses.replace(hardware, **changes)


def _sizes(text: str) -> dict[str, int]:
    """Returns sizes by mesh axis of `data=4,tensor=2`."""
    from experiments.building.mesh import parse_sizes

    sizes = parse_sizes(text, "--mesh")
    if -1 in sizes.values():
        raise command.UsageError(
            f"--mesh={text!r}: a plan needs no devices, so there is no rest (-1) of "
            "them; give a size."
        )
    return sizes


def _sizes_of(config) -> dict[str, int]:
    """Returns sizes by mesh axis of the config itself."""
    from experiments.building.mesh import AXES
    from ropejax.sharding.mesh import REST

    sizes = {axis: config.mesh[axis] for axis in AXES}
    rest = [axis for axis, size in sizes.items() if size == REST]
    if rest:
        raise command.UsageError(
            f"mesh.{rest[0]}={REST} depends on the devices; give a size by "
            f"--mesh or --config.mesh.{rest[0]}."
        )
    return sizes


def _recipe(config, sizes: dict[str, int]):
    """Returns the config's recipe on an abstract mesh of these sizes."""
    from experiments.building.build import build
    from experiments.building.mesh import sharding_on, without_mesh
    from experiments.running import workdir
    from ropejax.sharding import abstract_mesh

    mesh = abstract_mesh(sizes, math.prod(sizes.values()))
    sharding = sharding_on(config, mesh)
    recipe = build(without_mesh(workdir.plain(config))).recipe
    return dataclasses.replace(recipe, sharding=sharding)


def _as_dict(plan, hardware, dtype: str) -> dict:
    """Returns everything that is printed, as plain values."""
    from experiments.plan.costs import roofline

    fields = plan._asdict()
    fields |= {"update_bytes": plan.update_bytes, "peak_bytes": plan.peak_bytes}
    fields["update_operations"] = plan.update_operations._asdict()
    fields["hardware"] = dataclasses.asdict(hardware)
    fields["shapes"] = [
        shape._asdict()
        | {"operations": shape.operations._asdict()}
        | {"roofline": roofline(plan, shape, hardware, dtype)._asdict()}
        for shape in plan.shapes
    ]
    return fields


def _show(plan, hardware, dtype: str) -> None:
    """Prints the tables."""
    from rich.console import Console
    from rich.table import Table

    from experiments.plan.costs import roofline

    console = Console()
    devices = f"{plan.devices} device{'s' if plan.devices > 1 else ''}"
    console.print(f"{devices}, {hardware.title} ({hardware.source})")
    table = Table(title="memory of one device", title_justify="left")
    table.add_column("what")
    table.add_column("bytes", justify="right")
    for what, size in (
        (f"parameters ({plan.parameters:,} numbers in all)", plan.parameter_bytes),
        ("optimizer state", plan.optimizer_bytes),
        ("backward pass: gradients", plan.gradient_bytes),
        ("  gathered: a layer, and its gradient", plan.gathered_bytes),
        ("  activations, longest bucket", plan.activation_bytes),
        ("update: gradients, and a copied state", plan.update_bytes),
        ("at a time, at most", plan.peak_bytes),
        ("of", hardware.memory_gb * 1e9),
    ):
        table.add_row(what, _bytes(size))
    console.print(table)
    table = Table(title="one step, by bucket", title_justify="left")
    for column in ("length", "tokens", "operations", "activations", "sent", "time"):
        table.add_column(column, justify="right")
    for shape in plan.shapes:
        least = roofline(plan, shape, hardware, dtype)
        sent = ", ".join(f"{a} {_bytes(n)}" for a, n in shape.sent_bytes.items())
        table.add_row(
            str(shape.bucket),
            str(shape.tokens),
            f"{shape.operations.total:.3g}",
            _bytes(shape.activation_bytes),
            sent or "nothing",
            f"{_time(least.overlapped_s)} to {_time(least.in_turn_s)}",
        )
    console.print(table)
    console.print(
        "Operations are those of all devices, those of the optimizer beside them: "
        f"{plan.update_operations.total:.3g}. The times are bounds from below: "
        "products at their peak, memory and links at theirs, all at once to one after "
        "the other; small models are slower, by the time to start each kernel."
    )
    if any(shape.operations.unbounded_loops for shape in plan.shapes):
        console.print(
            "Some loops have an unknown number of rounds and were counted once: the "
            "operations are too few."
        )


def _advise(plan, hardware, fits: bool) -> None:
    """Says whether a device's memory will do, and what would help."""
    if fits:
        print("It fits.")
        return
    way = (
        "a larger fsdp or tensor axis"
        if plan.activation_bytes < plan.peak_bytes / 2
        else "a larger train.accumulate, a smaller train.batch_size, or a larger data "
        "or sequence axis"
    )
    print(
        f"It does not fit: a device needs {_bytes(plan.peak_bytes)} of "
        f"{_bytes(_ROOM * hardware.memory_gb * 1e9)} that can be used; try {way}."
    )


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us"


if __name__ == "__main__":
    command.run(main)
