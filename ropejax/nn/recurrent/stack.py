"""Stack-RNN: an RNN that pushes to, pops from, and reads the top of a soft stack.

The stack is differentiable: an action is a probability of each of three, and the next
stack is their mean. With probabilities of 0 and 1 it is an ordinary stack, with which a
network may reverse strings of any length or evaluate nested expressions.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.nn.parameters import projection_init
from ropejax.nn.recurrent.cells import CellSettings, HiddenUnits, Row, check_activation

PUSH, POP, KEEP = range(3)


def update_stack(
    stack: Float[Array, "*B S W"],
    actions: Float[Array, "*B 3"],
    pushed: Float[Array, "*B W"],
) -> Float[Array, "*B S W"]:
    """Returns the stack after a mixture of push, pop and no operation.

    `top' = push * pushed + pop * stack[1] + keep * stack[0]`, and below it
    `stack'[i] = push * stack[i-1] + pop * stack[i+1] + keep * stack[i]`; under the
    lowest cell there are zeros, and what is pushed out of it is lost.

    Args:
        stack: cells of width W, the top first, `[*B, S, W]`.
        actions: probabilities of push, pop and no operation, `[*B, 3]`.
        pushed: what a push puts on top, `[*B, W]`.

    Returns:
        A stack like `stack`.

    References:
        Joulin and Mikolov 2015, arXiv 1503.01007, equations 3 and 4, with the no
        operation of its section 3.2.
    """
    push, pop, keep = (actions[..., at, None, None] for at in (PUSH, POP, KEEP))
    down = jnp.concatenate([pushed[..., None, :], stack[..., :-1, :]], axis=-2)
    up = jnp.concatenate([stack[..., 1:, :], jnp.zeros_like(stack[..., :1, :])], -2)
    return push * down + pop * up + keep * stack


@dataclasses.dataclass(frozen=True)
class StackRNN(CellSettings):
    """An RNN with stacks: it reads their tops, and then acts on them.

    `h' = activation(W [x, tops] + U h + b)`; of each stack, actions are
    `softmax(A h' + a)`, and `P h' + p` is pushed. A stack holds all that can ever be
    read, so that it behaves as one without bottom.

    Attributes:
        num_stacks: stacks, each with actions of its own.
        cell_width: numbers a cell holds; 8 in the paper.
        activation: of the hidden units, relu or tanh.

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A; code at
        google-deepmind/neural_networks_chomsky_hierarchy, models/stack_rnn.py.

    Departures:
        With several stacks that code takes one softmax over the actions of all; here
        each stack's sum to one (Joulin and Mikolov). Its stack has a fixed size.
        Joulin and Mikolov push a sigmoid of the hidden units, Deletang et al. a linear
        function of them, as here.
    """

    title: ClassVar[str] = "Stack-RNN"
    summary: ClassVar[str] = "an RNN with differentiable stacks (Joulin and Mikolov)"
    num_stacks: int = 1
    cell_width: int = 8
    activation: str = "relu"

    def __post_init__(self):
        check_activation(self.activation)
        for name in ("num_stacks", "cell_width"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}."
                )

    def make(self, inputs, units, *, dtype, rngs):
        """See `CellSettings.make`."""
        return StackCell(self, inputs, units, dtype=dtype, rngs=rngs)


class StackCell(nnx.Module):
    """The Stack-RNN's cell; its state is the stacks and the hidden units."""

    def __init__(
        self, settings: StackRNN, inputs: int, units: int, *, dtype, rngs: nnx.Rngs
    ):
        self.settings = settings
        held = settings.num_stacks * settings.cell_width
        linear = lambda outputs: nnx.Linear(
            units, outputs, kernel_init=projection_init, dtype=dtype, rngs=rngs
        )
        self.hidden = HiddenUnits(
            inputs + held, units, settings.activation, dtype=dtype, rngs=rngs
        )
        self.push = linear(held)
        self.actions = linear(3 * settings.num_stacks)

    def initial_state(self, row: Row) -> tuple[Any, Float[Array, "B M S W"]]:
        """Returns hidden units at zero, and stacks of zeros, deep enough for the row.

        A cell at depth d was pushed d steps ago at least, and is read d steps later at
        the soonest, so half of the tokens bound the depth that matters.
        """
        hidden = self.hidden.initial_state(row)
        depth = row.num_tokens // 2 + 1
        settings = self.settings
        shape = (hidden.shape[0], settings.num_stacks, depth, settings.cell_width)
        return hidden, jnp.zeros(shape, jnp.float32)

    def __call__(self, state, x):
        """See `Cell`; stacks and probabilities are float32 whatever the dtype."""
        hidden, stacks = state
        batch, num_stacks, _, width = stacks.shape
        tops = stacks[:, :, 0].reshape(batch, num_stacks * width).astype(x.dtype)
        hidden, out = self.hidden(hidden, jnp.concatenate([x, tops], axis=-1))
        logits = self.actions(out).astype(jnp.float32).reshape(batch, num_stacks, 3)
        pushed = self.push(out).astype(jnp.float32).reshape(batch, num_stacks, width)
        stacks = update_stack(stacks, jax.nn.softmax(logits), pushed)
        return (hidden, stacks), out
