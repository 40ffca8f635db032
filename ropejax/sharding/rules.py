"""One table: what an axis of an array means -> the mesh axes that it is cut over."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from types import MappingProxyType

from jax.sharding import PartitionSpec

from ropejax.sharding.mesh import MESH_AXES

RULES = MappingProxyType(
    {
        "batch": ("replica", "data", "fsdp"),
        "length": ("sequence",),
        "heads": ("tensor",),
        "kv_heads": ("tensor",),
        "embed": ("fsdp",),
        "mlp": ("tensor",),
        "vocab": ("tensor",),
        "layers": (),
        "population": ("population",),
        "rest": ("fsdp",),
    }
)
"""Logical axis -> mesh axes. "rest" is the largest axis of a leaf that nobody named."""

Names = tuple[str | None, ...]
"""What each axis of an array means; None for an axis that is never cut."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The table, with what a config changes in it.

    Attributes:
        changes: pairs of a logical axis and its mesh axes.

    Raises:
        ValueError: for an unknown logical or mesh axis.
    """

    changes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self):
        for name, mesh_axes in self.changes:
            _check_known("a logical axis", name, RULES)
            for axis in mesh_axes:
                _check_known(f"a mesh axis for {name!r}", axis, MESH_AXES)

    @classmethod
    def of(cls, changes: Mapping[str, tuple[str, ...] | str]) -> "Rules":
        """Returns the table with some entries changed.

        Args:
            changes: mesh axes by logical axis; one name stands for a tuple of one.
        """
        as_tuple = lambda axes: (axes,) if isinstance(axes, str) else tuple(axes)
        pairs = ((name, as_tuple(axes)) for name, axes in changes.items())
        return cls(tuple(sorted(pairs)))

    def mesh_axes(self, name: str) -> tuple[str, ...]:
        """Returns the mesh axes of a logical axis."""
        return dict(RULES, **dict(self.changes))[name]

    def parts(self, name: str, sizes: Mapping[str, int]) -> int:
        """Returns into how many parts a mesh of these sizes cuts a logical axis."""
        return math.prod(sizes[axis] for axis in self.mesh_axes(name))

    def spec(
        self, names: Names, shape: tuple[int, ...], sizes: Mapping[str, int]
    ) -> PartitionSpec:
        """Returns how an array is cut.

        An axis whose size does not divide stays whole (small vocabularies, say; batch,
        length, heads and widths are checked beforehand), and so does one whose mesh
        axes an earlier axis of the array has taken.

        Args:
            names: what each axis means.
            shape: the array's.
            sizes: of the mesh, by axis.
        """
        taken: set[str] = set()
        cut = []
        for name, size in zip(names, shape, strict=True):
            axes = () if name is None else self.mesh_axes(name)
            axes = tuple(axis for axis in axes if sizes[axis] > 1 and axis not in taken)
            parts = math.prod(sizes[axis] for axis in axes)
            if not axes or size % parts:
                cut.append(None)
                continue
            taken |= set(axes)
            cut.append(axes[0] if len(axes) == 1 else axes)
        while cut and cut[-1] is None:
            cut.pop()
        return PartitionSpec(*cut)


def _check_known(what: str, name: str, known) -> None:
    if name in known:
        return
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{what} is one of {', '.join(known)}, not {name!r}.{hint}")
