"""Inside `jax.shard_map`: arrays whose type must say that they differ over devices.

There an array's type holds the mesh axes over which its value varies. The carry of a
loop must start with the type that it ends with, and both branches of a condition must
give one type; so a constant is declared to vary like the arrays that it stands in for.
"""

from typing import Any

import jax
from jaxtyping import Array


def varying_like(x: Array, refs: Any) -> Array:
    """Returns x, declared to vary over the mesh axes that any of `refs` varies over.

    Args:
        x: an array; outside `jax.shard_map` it comes back as it is.
        refs: a pytree of arrays.
    """
    axes = set().union(*map(_axes, jax.tree.leaves(refs))) - _axes(x)
    return jax.lax.pcast(x, tuple(sorted(axes)), to="varying") if axes else x


def _axes(x: Array) -> set:
    return set(jax.typeof(x).manual_axis_type.varying)
