"""Whether a scheme that reads symbols can place the rows that a task draws.

How wide a row's numbers are, and how many it adds, its symbols say, which are not known
while a program is traced. There, ids past a table become NaN in the loss, and under an
encoding without a table positions leave the range that the scheme promises, without a
word. So some rows are drawn and placed beforehand.
"""

import functools

import jax
import jax.numpy as jnp

from ropejax.positions.base import PositionScheme
from ropejax.tasks.base import Task
from ropejax.training.reading import said

ROWS = 16
"""So many rows are drawn: numbers of a task's rows may differ in width."""


def check_rows(scheme: PositionScheme, task: Task, length: int, *, what: str) -> None:
    """Raises ValueError where a scheme refuses some of a task's rows.

    Args:
        scheme: where tokens are placed.
        task: what gives the rows.
        length: their input length, in symbols; the longest that is placed.
        what: what they are of, for messages.
    """
    if isinstance(jax.random.key(0), jax.core.Tracer):
        return  # a recipe made within a program is a copy of one that was checked
    if not said(scheme, task.num_tokens(length), 1)[1]:
        return  # nothing follows from symbols
    if problem := _problem(scheme, task, length):
        placing = f"{scheme.title.lower()} positions"
        raise ValueError(f"{what}, at {placing}: {problem}")


@functools.lru_cache(maxsize=256)
def _problem(scheme: PositionScheme, task: Task, length: int) -> str:
    """Returns why rows are refused; nothing if they are not."""

    @jax.jit
    def drawn(rng):
        batch = task.sample(rng, jnp.full((ROWS,), length), max_length=length)
        return task.placing_tokens(batch), batch.lengths

    rng = jax.random.key(0)
    tokens, lengths = drawn(rng)
    try:
        scheme(rng, lengths, num_tokens=tokens.shape[1], tokens=tokens)
    except ValueError as error:
        return str(error)
    return ""
