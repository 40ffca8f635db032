"""Cells without a memory of their own: the plain RNN and the LSTM.

A cell is one step of a recurrent network: it takes a state and what is read now, and
returns the next state and an output. Settings are frozen values; `make` turns them into
a Flax module.
"""

import dataclasses
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from ropejax.nn.parameters import projection_init
from ropejax.settings import Settings

ACTIVATIONS = MappingProxyType({"relu": jax.nn.relu, "tanh": jnp.tanh})


class Row(NamedTuple):
    """What a memory must know of the rows that will be read.

    Attributes:
        num_tokens: tokens read in all, padding included (static).
        lengths: real tokens of each row, `[B]`.
        inputs: input symbols of each row, before the first placeholder, `[B]`.
    """

    num_tokens: int
    lengths: Int[Array, " B"]
    inputs: Int[Array, " B"]


class Cell(Protocol):
    """A Flax module that takes one step."""

    def initial_state(self, row: Row) -> Any:
        """Returns the state before the first token."""

    def __call__(
        self, state: Any, x: Float[Array, "B I"]
    ) -> tuple[Any, Float[Array, "B U"]]:
        """Returns the state after a token, and the output at it."""


@dataclasses.dataclass(frozen=True)
class CellSettings(Settings):
    """Settings of a cell; the number of units is the model's."""

    title: ClassVar[str] = ""
    summary: ClassVar[str] = ""

    def make(self, inputs: int, units: int, *, dtype, rngs: nnx.Rngs) -> Cell:
        """Returns the cell with initial parameters.

        Args:
            inputs: width of what is read, I.
            units: hidden units, U; an output is as wide.
            dtype: dtype of the computation; parameters stay float32.
            rngs: keys for the initial parameters.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class RNN(CellSettings):
    """Elman's network: `h' = activation(W x + U h + b)`.

    Attributes:
        activation: relu, as in the code of Deletang et al. (Haiku's VanillaRNN), or
            tanh.

    References:
        Elman 1990, Cognitive Science 14(2).
    """

    title: ClassVar[str] = "RNN"
    summary: ClassVar[str] = "hidden units alone (Elman)"
    activation: str = "relu"

    def __post_init__(self):
        check_activation(self.activation)

    def make(self, inputs, units, *, dtype, rngs):
        """See `CellSettings.make`."""
        return HiddenUnits(inputs, units, self.activation, dtype=dtype, rngs=rngs)


@dataclasses.dataclass(frozen=True)
class LSTM(CellSettings):
    """Long short-term memory, forget gates open at the start.

    `i, f, g, o = W x + U h + b`, `c' = sigmoid(f) c + sigmoid(i) tanh(g)`,
    `h' = sigmoid(o) tanh(c')`.

    References:
        Hochreiter and Schmidhuber 1997, Neural Computation 9(8); forget gates: Gers,
        Schmidhuber and Cummins 2000; their bias of 1: Jozefowicz, Zaremba and Sutskever
        2015, and Haiku's LSTM, with which Deletang et al. trained.

    Departures:
        The bias of 1 is where training starts, rather than added to a trained one;
        gradients and updates are the same.
    """

    title: ClassVar[str] = "LSTM"
    summary: ClassVar[str] = "gated hidden units"

    def make(self, inputs, units, *, dtype, rngs):
        """See `CellSettings.make`."""
        return GatedUnits(inputs, units, dtype=dtype, rngs=rngs)


class HiddenUnits(nnx.Module):
    """The RNN's cell; its state is its output."""

    def __init__(
        self, inputs: int, units: int, activation: str, *, dtype, rngs: nnx.Rngs
    ):
        self.units, self.dtype = units, dtype
        self.cell = nnx.SimpleCell(
            inputs,
            units,
            activation_fn=ACTIVATIONS[activation],
            kernel_init=projection_init,
            dtype=dtype,
            rngs=rngs,
        )

    def initial_state(self, row: Row) -> Float[Array, "B U"]:
        """Returns zeros."""
        return jnp.zeros((row.lengths.shape[0], self.units), self.dtype)

    def __call__(self, state, x):
        """See `Cell`."""
        return self.cell(state, x)


class GatedUnits(nnx.Module):
    """The LSTM's cell; its state is cell values and output."""

    def __init__(self, inputs: int, units: int, *, dtype, rngs: nnx.Rngs):
        self.units, self.dtype = units, dtype
        self.cell = nnx.OptimizedLSTMCell(
            inputs,
            units,
            kernel_init=projection_init,
            bias_init=_open_forget_gates,
            dtype=dtype,
            rngs=rngs,
        )

    def initial_state(self, row: Row) -> tuple[Array, Array]:
        """Returns zeros."""
        zeros = jnp.zeros((row.lengths.shape[0], self.units), self.dtype)
        return zeros, zeros

    def __call__(self, state, x):
        """See `Cell`."""
        return self.cell(state, x)


def _open_forget_gates(rng, shape, dtype=jnp.float32, **placed) -> Float[Array, " G"]:
    """Returns biases of the gates i, f, g, o: one for f, zero for the others."""
    units = shape[0] // 4
    return jnp.zeros(shape, dtype).at[units : 2 * units].set(1)


def check_activation(name: str) -> None:
    """Raises ValueError for an activation that no recurrent network here has."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be relu or tanh, got {name!r}.")
