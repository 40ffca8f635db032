"""Sharding: one table from the meaning of axes to a mesh, applied from outside."""

from ropejax.sharding.checks import ORDERS
from ropejax.sharding.layout import Sharding
from ropejax.sharding.mesh import MESH_AXES, abstract_mesh, make_mesh, mesh_sizes
from ropejax.sharding.names import encoding_names, parameter_names
from ropejax.sharding.rules import RULES, Rules

__all__ = [
    "MESH_AXES",
    "ORDERS",
    "RULES",
    "Rules",
    "Sharding",
    "abstract_mesh",
    "encoding_names",
    "make_mesh",
    "mesh_sizes",
    "parameter_names",
]
