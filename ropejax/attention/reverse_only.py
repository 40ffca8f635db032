"""An identity that lets gradients through, and names the remedy in forward mode.

JAX refuses forward-mode derivatives of a function with a backward pass of its own, but
inside `jax.jit`, `jax.checkpoint` or a loop it does so when the derivative is compiled,
where no caller can catch it and say what else to do. So the tangent passes through an
operation that exists in reverse mode only: it can be transposed, but not computed.
"""

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

MESSAGE = (
    "only dense attention has a forward-mode derivative (jax.jvp, jax.jacfwd, "
    'jax.hessian); use reverse mode, or implementation="dense".'
)

_identity = Primitive("reverse_mode_only")
_tangent = Primitive("reverse_mode_only_tangent")


def reverse_only(x: Array) -> Array:
    """Returns x; its forward-mode derivative raises TypeError, naming dense.

    Args:
        x: any floating-point array.
    """
    return _identity.bind(x)


def _refuse(*_, **__):
    raise TypeError(MESSAGE)


for _primitive in (_identity, _tangent):
    _primitive.def_abstract_eval(lambda x: x)
    batching.defvectorized(_primitive)
_identity.def_impl(lambda x: x)
mlir.register_lowering(_identity, lambda _, x: [x])
ad.defjvp(_identity, lambda tangent, _: _tangent.bind(tangent))

_tangent.def_impl(_refuse)
mlir.register_lowering(_tangent, _refuse)
ad.deflinear2(_tangent, lambda cotangent, _: [cotangent])
