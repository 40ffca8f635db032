"""How many floating point operations a function asks for, counted from its jaxpr.

Nothing is compiled or run, so the count is there in a moment for models of any size. It
is what the program's text asks for: a compiler may do less by folding what is constant,
and more by recomputing.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jax.extend import core

_REDUCTIONS = frozenset(
    {
        *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin"),
        *("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
    }
)
_ARITHMETIC = frozenset(
    {
        *("add", "sub", "mul", "div", "max", "min", "pow", "integer_pow", "neg", "abs"),
        *("exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "sin", "cos"),
        *("sqrt", "rsqrt", "cbrt", "erf", "square", "add_any", "select_n", "atan2"),
    }
)


class Operations(NamedTuple):
    """Floating point operations of a function, by kind.

    Attributes:
        products: in matrix products, a multiplication and an addition being two.
        elementwise: one for each element of an arithmetic operation or a reduction.
        unbounded_loops: loops whose number of rounds is not known; each was counted
            once, so that the count is too low unless this is 0.
    """

    products: float = 0.0
    elementwise: float = 0.0
    unbounded_loops: int = 0

    @property
    def total(self) -> float:
        """Products and elementwise operations together."""
        return self.products + self.elementwise

    def times(self, rounds: int) -> "Operations":
        """Returns the operations of `rounds` repetitions."""
        return Operations(
            self.products * rounds, self.elementwise * rounds, self.unbounded_loops
        )


def count_operations(function: Callable, *args, **kwargs) -> Operations:
    """Returns the floating point operations of `function(*args, **kwargs)`.

    A scan counts its body as often as it runs, a branch as much as its costliest
    alternative; integer arithmetic and the movement of data count nothing.

    Args:
        function: what is counted; traced, never run.
        *args: its arguments, arrays or `jax.ShapeDtypeStruct`s.
        **kwargs: the same, by name.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from ropejax.operations import count_operations
        >>> a = jax.ShapeDtypeStruct((3, 4), jnp.float32)
        >>> b = jax.ShapeDtypeStruct((4, 5), jnp.float32)
        >>> count_operations(lambda a, b: a @ b, a, b).products
        120.0
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*args, **kwargs).jaxpr)


def largest_array(function: Callable, *args, **kwargs) -> jax.ShapeDtypeStruct:
    """Returns shape and dtype of the largest array that a function computes.

    Args:
        function: what is looked at; traced, never run.
        *args: its arguments, arrays or `jax.ShapeDtypeStruct`s.
        **kwargs: the same, by name.
    """
    jaxpr = jax.make_jaxpr(function)(*args, **kwargs).jaxpr
    size = lambda aval: math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 0)
    largest = max(_made(jaxpr), key=size)
    return jax.ShapeDtypeStruct(largest.shape, largest.dtype)


def _made(jaxpr) -> Iterable:
    for equation in jaxpr.eqns:
        yield from (v.aval for v in equation.outvars if hasattr(v.aval, "shape"))
        for inner in _inner_jaxprs(equation.params):
            yield from _made(inner)


def _of_jaxpr(jaxpr) -> Operations:
    return _sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation) -> Operations:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return Operations(products=_product(equation))
    if name in _ARITHMETIC or name in _REDUCTIONS:
        side = equation.outvars if name in _ARITHMETIC else equation.invars
        sizes = [math.prod(v.aval.shape) for v in side if _is_float(v.aval)]
        return Operations(elementwise=float(sum(sizes)))
    if name == "cond":
        branches = [_of_jaxpr(branch.jaxpr) for branch in params["branches"]]
        return max(branches, key=lambda found: found.total)
    inner = _sum(_of_jaxpr(jaxpr) for jaxpr in _inner_jaxprs(params))
    if name == "scan":
        return inner.times(params["length"])
    if name == "while":
        return inner._replace(unbounded_loops=inner.unbounded_loops + 1)
    return inner


def _inner_jaxprs(params: dict[str, Any]) -> Iterable:
    """The programs inside an equation: those of calls, loops and derivatives."""
    for value in params.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item


def _product(equation) -> float:
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (v.aval.shape for v in equation.invars)
    summed = math.prod(left[axis] for axis in contracted)
    shared = math.prod(left[axis] for axis in batch)
    return 2.0 * math.prod(left) * math.prod(right) / (summed * shared or 1)


def _is_float(aval) -> bool:
    return jax.numpy.issubdtype(aval.dtype, jax.numpy.floating)


def _sum(parts: Iterable[Operations]) -> Operations:
    total = Operations()
    for part in parts:
        total = Operations(*(a + b for a, b in zip(total, part, strict=True)))
    return total
