"""Stack Manipulation: the stack after a sequence of pushes and pops."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from ropejax.tasks import draws
from ropejax.tasks.base import Example, Level, Task
from ropejax.tasks.termination import END, terminate
from ropejax.typing import Rng

_POP, _PUSH_ZERO = 2, 3


@dataclasses.dataclass(frozen=True)
class StackManipulation(Task):
    """Applies pushes and pops to a stack and reads it from the top.

    The input is a stack of 0 and 1 from bottom to top, then actions: 2 pops, 3 pushes
    0, 4 pushes 1; popping an empty stack does nothing. The stack's size is uniform in
    1 .. length - 1 (1 at length 1), symbols and actions are uniform. The answer is the
    last stack from top to bottom, the end symbol 2, and zeros up to length + 1 symbols;
    accuracy ignores those zeros.

    Examples:
        0110422 -> 11020000  (push 1, pop, pop: 011 remains)
        110222 -> 2000000    (three pops empty the stack)
        1024 -> 11200        (pop and push 1)

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.2.
        google-deepmind/neural_networks_chomsky_hierarchy,
        tasks/dcf/stack_manipulation.py.

    Departures:
        None.
    """

    title = "Stack Manipulation"
    summary = "the stack after pushes and pops, from the top"
    level = Level.DETERMINISTIC_CONTEXT_FREE

    @property
    def input_vocab(self) -> int:
        """0 and 1 on the stack, then pop, push 0, push 1."""
        return 5

    @property
    def output_vocab(self) -> int:
        """0, 1 and the end symbol."""
        return END + 1

    @property
    def end_symbol(self) -> int:
        """The symbol after the answer."""
        return END

    def output_length(self, length):
        """A full stack and the end symbol."""
        return length + 1

    def sample_row(self, rng: Rng, length: Int[Array, ""], max_length: int) -> Example:
        """Draws one example, as `Task.sample_row` says."""
        size_rng, symbols_rng = jax.random.split(rng)
        word = draws.words(size_rng, 1)[0]
        stack_size = 1 + draws.below(word, jnp.maximum(length - 1, 1))
        # One draw serves both roles of a place: 0 or 1 on the stack, or an action.
        drawn = draws.symbols(symbols_rng, max_length, 2 * 3)
        is_stack = jnp.arange(max_length) < stack_size
        inputs = jnp.where(is_stack, drawn % 2, _POP + drawn % 3)
        targets, score_mask = terminate(*_last_stack(inputs, length))
        return Example(inputs, targets, score_mask)


def _last_stack(
    inputs: Int[Array, " X"], length: Int[Array, ""]
) -> tuple[Int[Array, " X+1"], Int[Array, ""]]:
    """The symbols left on the stack, top first, and their number.

    The stack's height is a walk held up at zero: h_t = c_t - min(0, min_{u <= t} c_u),
    with c_t the pushes less the pops up to t. What t pushed remains if the height never
    again falls below h_t, and it then is the h_t-th symbol from the bottom.
    """
    max_length = inputs.shape[0]
    is_push = inputs != _POP
    step = jnp.where(is_push, 1, -1)
    step = jnp.where(jnp.arange(max_length) < length, step, 0)
    walk = jnp.cumsum(step)
    height = walk - jnp.minimum(lax.cummin(walk), 0)
    remains = (step == 1) & (height == lax.cummin(height, reverse=True))
    last_height = height[-1]
    depth = jnp.where(remains, last_height - height, max_length + 1)
    symbol = jnp.where(inputs >= _PUSH_ZERO, inputs - _PUSH_ZERO, inputs)
    stack = jnp.zeros(max_length + 1, inputs.dtype)
    return stack.at[depth].set(symbol, mode="drop"), last_height
