"""One table: what an axis of an array means -> the mesh axes that it is cut over."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from types import MappingProxyType

from jax.sharding import PartitionSpec

from ropejax.settings import Settings
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
class Rules(Settings):
    """The table, with what a config changes in it.

    Attributes:
        changes: pairs of a logical axis and its mesh axes.

    Raises:
        ValueError: for an unknown logical or mesh axis, one that is named twice, or
            another place for the members of a population.
    """

    changes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self):
        if not isinstance(self.changes, tuple):
            raise ValueError(
                f"changes must be pairs of a logical axis and its mesh axes, got "
                f"{self.changes!r}; Rules.of takes a mapping."
            )
        _check_once("logical axes", [name for name, _ in self.changes])
        for name, mesh_axes in self.changes:
            _check_known("a logical axis", name, RULES)
            if not isinstance(mesh_axes, tuple):
                raise ValueError(
                    f"changes: {name!r} must have a tuple of mesh axes, got "
                    f"{mesh_axes!r}; Rules.of takes a single one as well."
                )
            for axis in mesh_axes:
                _check_known(f"a mesh axis for {name!r}", axis, MESH_AXES)
            _check_once(f"mesh axes for {name!r}", mesh_axes)
            if name == "population" and tuple(mesh_axes) != RULES[name]:
                raise ValueError(
                    "members of a population are spread over the mesh axis of that "
                    f"name and no other, got {mesh_axes}; leave 'population' out."
                )

    @classmethod
    def of(cls, changes: Mapping[str, tuple[str, ...] | str]) -> "Rules":
        """Returns the table with some entries changed.

        Args:
            changes: mesh axes by logical axis; one name stands for a tuple of one.
        """

        def as_tuple(name, axes) -> tuple[str, ...]:
            if isinstance(axes, str):
                return (axes,)
            if not isinstance(axes, tuple | list):
                raise ValueError(
                    f"{name!r} must be a mesh axis or a tuple of them, got {axes!r}."
                )
            return tuple(axes)

        pairs = ((name, as_tuple(name, axes)) for name, axes in changes.items())
        return cls(tuple(sorted(pairs)))

    @property
    def names(self) -> tuple[str, ...]:
        """All logical axes."""
        return tuple(RULES)

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


def _check_once(what: str, names) -> None:
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)} is named twice in {names}.")


def _check_known(what: str, name: str, known) -> None:
    if name in known:
        return
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{what} is one of {', '.join(known)}, not {name!r}.{hint}")
