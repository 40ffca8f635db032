"""Tape-RNN: an RNN that writes to a soft tape and moves along it, also by jumps.

It is Joulin and Mikolov's idea with the memory of a Turing machine: each step writes
the cell under the head, and then moves the head by a mixture of five moves. Jumps as
long as the input take it from the end of a string to its beginning in one step.
"""

import dataclasses
import itertools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from ropejax.nn.parameters import projection_init
from ropejax.nn.recurrent.cells import CellSettings, HiddenUnits, Row, check_activation
from ropejax.settings import make_tuples

MOVES = ("stay", "right", "left", "jump right", "jump left")


def update_tape(
    tape: Float[Array, "B S W"],
    actions: Float[Array, "B 5"],
    written: Float[Array, "B W"],
    sizes: Int[Array, " B"],
    jumps: Int[Array, " B"],
) -> Float[Array, "B S W"]:
    """Writes the cell under the head, and moves the head by a mixture of moves.

    The head stands at cell 0 always, and the tape is moved below it: with `w` the tape
    after writing, `tape'[i] = sum_m actions[m] * w[(i + step_m) mod size]`, steps being
    0, 1, -1, jump and -jump in the order of `MOVES`.

    Args:
        tape: cells of width W, `[B, S, W]`; the first `size` of them are a ring, the
            others are left alone.
        actions: probabilities of the moves, `[B, 5]`.
        written: what is written before moving, `[B, W]`.
        sizes: cells of each row's ring, `[B]`, in 1 .. S.
        jumps: how far a jump goes, in cells, `[B]`.

    Returns:
        A tape like `tape`.

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A.
    """
    tape = jnp.concatenate([written[:, None], tape[:, 1:]], axis=1)
    place = jnp.arange(tape.shape[1])
    end = (place == sizes[:, None] - 1)[..., None]
    first = tape[:, :1]
    last = jnp.take_along_axis(tape, sizes[:, None, None] - 1, axis=1)
    moved = (
        tape,
        jnp.where(end, first, jnp.concatenate([tape[:, 1:], first], axis=1)),
        jnp.concatenate([last, tape[:, :-1]], axis=1),
        _turned(tape, jumps, sizes),
        _turned(tape, -jumps, sizes),
    )
    mixed = sum(actions[:, at, None, None] * tape for at, tape in enumerate(moved))
    return jnp.where((place < sizes[:, None])[..., None], mixed, tape)


def _turned(
    tape: Float[Array, "B S W"], steps: Int[Array, " B"], sizes: Int[Array, " B"]
) -> Float[Array, "B S W"]:
    """Returns rings turned so that cell `step` comes to the head."""
    place = jnp.arange(tape.shape[1])
    source = (place + steps[:, None]) % sizes[:, None]
    source = jnp.where(place < sizes[:, None], source, place)
    return jnp.take_along_axis(tape, source[..., None], axis=1)


@dataclasses.dataclass(frozen=True)
class TapeRNN(CellSettings):
    """An RNN with tapes: it reads the cells under the heads, then writes and moves.

    `h' = activation(W [x, cells] + U h + b)`; of each tape, moves are
    `softmax(A h' + a)`, and an MLP of h' is written. Jumps are as long as the input.

    Attributes:
        num_tapes: tapes, each with moves of its own.
        cell_width: numbers a cell holds; 8 in the paper.
        num_cells: cells of the ring that a tape is; 0: as many as a row has tokens.
        hidden: widths of the hidden layers of the MLP that writes.
        activation: of the hidden units, relu or tanh.

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A; code at
        google-deepmind/neural_networks_chomsky_hierarchy, models/tape_rnn.py.

    Departures:
        That code's rings have one size for all lengths (30, or 40 in its example); here
        by default a row's own number of tokens, so that memory never runs out.
    """

    title: ClassVar[str] = "Tape-RNN"
    summary: ClassVar[str] = "an RNN with differentiable tapes, and jumps"
    num_tapes: int = 1
    cell_width: int = 8
    num_cells: int = 0
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"

    def __post_init__(self):
        make_tuples(self)
        check_activation(self.activation)
        least = {"num_tapes": 1, "cell_width": 1, "num_cells": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(
                    f"{name} must be at least {bound}, got {getattr(self, name)}."
                )
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden widths must be at least 1, got {self.hidden}.")

    def make(self, inputs, units, *, dtype, rngs):
        """See `CellSettings.make`."""
        return TapeCell(self, inputs, units, dtype=dtype, rngs=rngs)


class TapeState(NamedTuple):
    """What a Tape-RNN carries from token to token.

    Attributes:
        hidden: state of the hidden units.
        tapes: `[B, M, S, W]`, the cell under the head first.
        sizes: cells of each row's ring, `[B]`.
        jumps: how far a jump goes, `[B]`.
    """

    hidden: Any
    tapes: Float[Array, "B M S W"]
    sizes: Int[Array, " B"]
    jumps: Int[Array, " B"]


class TapeCell(nnx.Module):
    """The Tape-RNN's cell."""

    def __init__(
        self, settings: TapeRNN, inputs: int, units: int, *, dtype, rngs: nnx.Rngs
    ):
        self.settings = settings
        held = settings.num_tapes * settings.cell_width
        linear = lambda width, outputs: nnx.Linear(
            width, outputs, kernel_init=projection_init, dtype=dtype, rngs=rngs
        )
        self.units = HiddenUnits(
            inputs + held, units, settings.activation, dtype=dtype, rngs=rngs
        )
        widths = (units, *settings.hidden, held)
        self.write = nnx.data(
            {
                f"layer_{at}": linear(*pair)
                for at, pair in enumerate(itertools.pairwise(widths))
            }
        )
        self.moves = linear(units, len(MOVES) * settings.num_tapes)

    def initial_state(self, row: Row) -> TapeState:
        """Returns hidden units at zero and empty tapes."""
        hidden, settings = self.units.initial_state(row), self.settings
        cells = settings.num_cells or row.num_tokens
        shape = (hidden.shape[0], settings.num_tapes, cells, settings.cell_width)
        sizes = jnp.maximum(row.lengths, 1)
        if settings.num_cells:
            sizes = jnp.full_like(row.lengths, cells)
        return TapeState(hidden, jnp.zeros(shape, jnp.float32), sizes, row.inputs)

    def __call__(self, state, x):
        """See `Cell`; tapes and probabilities are float32 whatever the dtype."""
        batch, num_tapes, _, width = state.tapes.shape
        read = state.tapes[:, :, 0].reshape(batch, num_tapes * width).astype(x.dtype)
        hidden, out = self.units(state.hidden, jnp.concatenate([x, read], axis=-1))
        written = out
        *inner, last = self.write.values()
        for layer in inner:
            written = jax.nn.relu(layer(written))
        written = last(written).astype(jnp.float32)
        logits = self.moves(out).astype(jnp.float32)
        update = jax.vmap(update_tape, in_axes=(1, 1, 1, None, None), out_axes=1)
        tapes = update(
            state.tapes,
            jax.nn.softmax(logits.reshape(batch, num_tapes, len(MOVES))),
            written.reshape(batch, num_tapes, width),
            state.sizes,
            state.jumps,
        )
        return state._replace(hidden=hidden, tapes=tapes), out
