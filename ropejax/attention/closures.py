"""What a block computes with without having been given it: closures.

A function with a backward pass of its own must be given every traced value: what it
closes over would be called upon again on the way back, when that value is no more. A
mask shows or hides, so nothing of it has a gradient; but it may well be made of a
traced number, such as the width of each layer's window in a scan over layers. So masks
are turned into functions of what they close over. What a method learns are parameters,
and one that closes over them is refused.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array

from ropejax.attention.visibility import asked
from ropejax.masks import Mask
from ropejax.tokens import Tokens


class Opened(NamedTuple):
    """A mask apart from what it closes over.

    Attributes:
        of: `(closed) -> mask`; a mask, or None.
        closed: the arrays; none where it closes over nothing that is traced.
    """

    of: Callable[[list[Array]], Any]
    closed: list[Array]


def opened(mask, query: Tokens, key: Tokens) -> Opened:
    """Returns a mask apart from the traced values that it closes over.

    Args:
        mask: a mask, a function of (query, key), or None.
        query: queries of a block; the mask may be asked about any such block later.
        key: keys of a block.
    """
    if mask is None or isinstance(mask, Mask):
        return Opened(lambda closed: mask, [])
    made = jax.make_jaxpr(functools.partial(asked, mask))(query, key)
    if not any(isinstance(x, jax.core.Tracer) for x in made.consts):
        return Opened(lambda closed: mask, [])

    def of(closed):
        def shown(query, key):
            run = jaxpr_as_fun(ClosedJaxpr(made.jaxpr, closed))
            return run(*jax.tree.leaves((query, key)))[0]

        return shown

    return Opened(of, [jax.lax.stop_gradient(x) for x in made.consts])


@contextlib.contextmanager
def given_all():
    """Raises ValueError where JAX misses a traced value that a method closes over."""
    try:
        yield
    except jax.errors.UnexpectedTracerError as error:
        raise ValueError(
            "the encoding or the normalizer computes with a traced value that it closes"
            " over, which blockwise attention cannot differentiate; make it a parameter"
            ' (params, normalizer_params), or use implementation="dense".'
        ) from error
