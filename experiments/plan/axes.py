"""Mesh axes of arrays, and how much of an array the usual algorithms send over one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ropejax.sharding import MESH_AXES, Sharding


def spread_axes(sharding: Sharding, name: str) -> tuple[str, ...]:
    """Returns the mesh axes of a logical axis that have more than one device.

    Args:
        sharding: a mesh and the table.
        name: the logical axis.
    """
    sizes = sharding.sizes
    return tuple(a for a in sharding.rules.mesh_axes(name) if sizes[a] > 1)


def mesh_axes(spec: Iterable) -> list[str]:
    """Returns all mesh axes that a cut names.

    Args:
        spec: the cut of an array.
    """
    named = ((entry,) if isinstance(entry, str) else entry for entry in spec)
    return [axis for entry in named for axis in entry or ()]


def gathered_shares(
    axes: Sequence[str], sizes: Mapping[str, int]
) -> Iterator[tuple[str, float]]:
    """Yields shares of a part that gathering it over several mesh axes sends over each.

    The slowest network comes first, while what is gathered is small.

    Args:
        axes: over which it is cut.
        sizes: of mesh axes.
    """
    whole = 1
    for axis in sorted(axes, key=MESH_AXES.index):
        whole *= sizes[axis]
        yield axis, ring(sizes[axis]) * whole


def ring(parts: int) -> float:
    """Returns the share of an array that a device of a ring sends to gather it."""
    return (parts - 1) / parts
