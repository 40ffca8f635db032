"""Sharding: one table from the meaning of axes to a mesh, applied from outside."""

from ropejax.sharding.checks import ORDERS as ORDERS
from ropejax.sharding.layout import Sharding as Sharding
from ropejax.sharding.mesh import MESH_AXES as MESH_AXES
from ropejax.sharding.mesh import abstract_mesh as abstract_mesh
from ropejax.sharding.mesh import make_mesh as make_mesh
from ropejax.sharding.mesh import mesh_sizes as mesh_sizes
from ropejax.sharding.names import encoding_names as encoding_names
from ropejax.sharding.names import parameter_names as parameter_names
from ropejax.sharding.rules import RULES as RULES
from ropejax.sharding.rules import Rules as Rules
