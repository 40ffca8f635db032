"""Identities that let gradients through, and name the remedy where there are no others.

JAX refuses forward-mode derivatives of a function with a backward pass of its own, but
inside `jax.jit`, `jax.checkpoint` or a loop it does so when the derivative is compiled,
where no caller can catch it and say what else to do. So the tangent passes through an
operation that exists in reverse mode only: it can be transposed, but not computed.

Nor does JAX differentiate a backward pass whose loops end where the arrays say; it
speaks of loops then, not of attention.
"""

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

MESSAGE = (
    "only dense attention has a forward-mode derivative (jax.jvp, jax.jacfwd, "
    'jax.hessian); use reverse mode, or implementation="dense".'
)

MESSAGE_ONCE = (
    "only dense attention has second derivatives (jax.grad of jax.grad, jax.hessian); "
    'use implementation="dense".'
)

_identity = Primitive("reverse_mode_only")
_tangent = Primitive("reverse_mode_only_tangent")
_once = Primitive("differentiated_once")


def reverse_only(x: Array) -> Array:
    """Returns x; its forward-mode derivative raises TypeError, naming dense.

    Args:
        x: any floating-point array.
    """
    return _identity.bind(x)


def once_only(x: Array) -> Array:
    """Returns x, for use in a backward pass; its derivative raises TypeError.

    Args:
        x: any floating-point array.
    """
    return _once.bind(x)


def _refuse(*_, **__):
    raise TypeError(MESSAGE)


def _refuse_twice(*_, **__):
    raise TypeError(MESSAGE_ONCE)


for _primitive in (_identity, _tangent, _once):
    _primitive.def_abstract_eval(lambda x: x)
for _primitive in (_identity, _once):
    _primitive.def_impl(lambda x: x)
    batching.defvectorized(_primitive)
    mlir.register_lowering(_primitive, lambda _, x: [x])
ad.defjvp(_once, _refuse_twice)
ad.defjvp(_identity, lambda tangent, _: _tangent.bind(tangent))

_tangent.def_impl(_refuse)
mlir.register_lowering(_tangent, _refuse)
ad.deflinear2(_tangent, lambda cotangent, _: [cotangent])
batching.primitive_batchers[_tangent] = _refuse  # before JAX refuses it in its words
