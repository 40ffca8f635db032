"""A mesh of devices with six named axes, its sizes checked against what is there.

replica, data   rows of a batch; parameters are copied
fsdp            rows of a batch, and parameters and optimizer state cut as well
sequence        tokens of a sequence
tensor          heads, hidden width of the MLP, vocabulary
population      members of a population of models
"""

import difflib
import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

MESH_AXES = ("replica", "data", "fsdp", "sequence", "tensor", "population")
"""Names of the axes, slowest network first."""

REST = -1
"""As a size: all devices that the other axes leave."""


def mesh_sizes(sizes: Mapping[str, int], num_devices: int) -> dict[str, int]:
    """Returns the size of every axis, one of them perhaps the rest of the devices.

    Args:
        sizes: sizes by axis, `-1` for the rest; axes that are not given are 1.
        num_devices: devices to be used, all of them.

    Raises:
        ValueError: for an unknown axis, a size that is no size, or sizes whose product
            is not the number of devices.
    """
    for name, size in sizes.items():
        if name not in MESH_AXES:
            close = difflib.get_close_matches(name, MESH_AXES, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"a mesh has the axes {', '.join(MESH_AXES)}, not {name!r}.{hint}"
            )
        is_whole = isinstance(size, int) and not isinstance(size, bool)
        if not is_whole or size < REST or size == 0:
            raise ValueError(
                f"mesh axis {name!r} must be a positive integer, or -1 for the rest, "
                f"got {size!r}."
            )
    full = dict.fromkeys(MESH_AXES, 1) | dict(sizes)
    rest = [name for name, size in full.items() if size == REST]
    if len(rest) > 1:
        raise ValueError(f"only one mesh axis can be the rest (-1), got {rest}.")
    known = math.prod(size for size in full.values() if size != REST)
    given = ", ".join(f"{n}={s}" for n, s in full.items() if s != 1) or "all sizes 1"
    if rest:
        if num_devices % known:
            raise ValueError(
                f"the mesh ({given}) cuts {num_devices} devices into {known} parts, "
                f"which does not divide; {_nearest(known, num_devices)} would."
            )
        full[rest[0]] = num_devices // known
    elif known != num_devices:
        raise ValueError(
            f"the mesh ({given}) has {known} devices, but there are {num_devices}; "
            f"change a size, give one axis -1 for the rest, or use {known} devices."
        )
    return full


def make_mesh(
    sizes: Mapping[str, int],
    *,
    devices: Sequence[jax.Device] | None = None,
    explicit: bool = False,
) -> Mesh:
    """Returns a mesh of all axes, those of size 1 too.

    Args:
        sizes: sizes by axis, as for `mesh_sizes`.
        devices: devices to use; all of every process if None.
        explicit: make the types of arrays carry their sharding (`AxisType.Explicit`),
            instead of leaving it to the compiler (`AxisType.Auto`).

    Raises:
        ValueError: as `mesh_sizes`.
    """
    given = devices
    devices = jax.devices() if devices is None else list(devices)
    full = mesh_sizes(sizes, len(devices))
    types = (AxisType.Explicit if explicit else AxisType.Auto,) * len(MESH_AXES)
    shape = tuple(full.values())
    if given is None:
        return jax.make_mesh(shape, MESH_AXES, axis_types=types)
    return Mesh(np.asarray(devices).reshape(shape), MESH_AXES, axis_types=types)


def abstract_mesh(sizes: Mapping[str, int], num_devices: int) -> AbstractMesh:
    """Returns a mesh of devices that need not be there, for lowering only.

    Args:
        sizes: sizes by axis, as for `mesh_sizes`.
        num_devices: how many devices it has.
    """
    full = mesh_sizes(sizes, num_devices)
    types = (AxisType.Auto,) * len(MESH_AXES)
    return AbstractMesh(tuple(full.values()), MESH_AXES, axis_types=types)


def check_divides(what: str, number: int, parts: int, axes: Sequence[str]) -> None:
    """Raises ValueError, naming the nearest sizes, unless `parts` divides `number`.

    Args:
        what: what is cut, for the message: "batch_size".
        number: how many there are.
        parts: into how many parts.
        axes: mesh axes over which they are spread.
    """
    if parts < 1 or number % parts == 0:
        return
    low = number // parts * parts
    near = f"{low} or {low + parts}" if low else f"{parts}"
    raise ValueError(
        f"{what}={number} does not divide over {parts} devices of the mesh "
        f"({' x '.join(axes)}); the nearest that do are {near}."
    )


def _nearest(known: int, num_devices: int) -> str:
    divisors = [n for n in range(1, num_devices + 1) if num_devices % n == 0]
    below = max((n for n in divisors if n <= known), default=1)
    above = min((n for n in divisors if n >= known), default=num_devices)
    return f"{below}" if below == above else f"{below} or {above}"
