"""Attention on a mesh of virtual devices, beside dense attention on one."""

import jax
from jax.sharding import AxisType

from tests.attention import cases

LENGTH = 32


def mesh_of(**sizes):
    return jax.make_mesh(
        tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes)
    )


def results(encoding, where=None, mask=None, *, mesh=None, seed=0, **settings):
    """Outputs and gradients, on a mesh or (dense) on one device."""
    case = cases.case(encoding, LENGTH, seed=seed)
    run = cases.attention(encoding, where, mask, **settings)
    run = cases.value_and_grads(run, case.cotangent)
    if mesh is None:
        return run(case.arrays)
    with jax.set_mesh(mesh):
        return run(case.arrays)


def assert_spread_equals_dense(how, encoding, mesh, where=None, mask=None, **settings):
    got, wanted = both(how, encoding, mesh, where, mask, **settings)
    cases.assert_same(got, wanted, grad_tolerance=2e-5)


def both(how, encoding, mesh, where=None, mask=None, **settings):
    wanted = results(encoding, where, mask, implementation="dense", **settings)
    settings |= {"implementation": how, "block_q": 4, "block_k": 4}
    return results(encoding, where, mask, mesh=mesh, **settings), wanted
