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

from ropejax.whole_numbers import whole_number

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
    if not isinstance(sizes, Mapping):
        raise ValueError(
            f"a mesh is made of sizes by axis, such as {{'data': 8}}, got {sizes!r}."
        )
    full = dict.fromkeys(MESH_AXES, 1)
    for name, size in sizes.items():
        if name not in MESH_AXES:
            close = difflib.get_close_matches(str(name), MESH_AXES, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"a mesh has the axes {', '.join(MESH_AXES)}, not {name!r}.{hint}"
            )
        full[name] = _size(name, size)
    num_devices = whole_number("the number of devices", num_devices, least=1)
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
            f"{_ways_out(full, known, num_devices)}."
        )
    return full


def _size(name: str, size) -> int:
    """The size of an axis as an int of Python."""
    try:
        whole = whole_number(name, size, least=REST)
    except ValueError:
        whole = 0
    if whole == 0:
        raise ValueError(
            f"mesh axis {name!r} must be a positive integer, or -1 for the rest, "
            f"got {size!r}."
        )
    return whole


def _ways_out(full: Mapping[str, int], known: int, num_devices: int) -> str:
    """What to do where a mesh has not as many devices as there are."""
    rest = [
        name
        for name, size in full.items()
        if (size > 1 or name == "data") and num_devices % (known // size) == 0
    ]
    ways = [f"give {rest[0]} -1 for the rest"] if rest else []
    if known < num_devices:
        ways.append(
            f"use {known} of them: devices=jax.devices()[:{known}], or for a command "
            "CUDA_VISIBLE_DEVICES or TPU_VISIBLE_CHIPS"
        )
    return ", or ".join(ways) or "change a size"


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


def _nearest(known: int, num_devices: int) -> str:
    divisors = [n for n in range(1, num_devices + 1) if num_devices % n == 0]
    below = max((n for n in divisors if n <= known), default=1)
    above = min((n for n in divisors if n >= known), default=num_devices)
    return f"{below}" if below == above else f"{below} or {above}"
