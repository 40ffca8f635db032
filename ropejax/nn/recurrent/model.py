"""Recurrent models under the contract of `ropejax.nn.TransformerSpec`.

Input symbols and placeholders are read one by one, as one-hot vectors, and logits come
from the hidden units at each token (Deletang et al. 2022, arXiv 2207.02098, appendix
A). Training, evaluation and results do not know that the model is no Transformer.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from ropejax.encodings import Dims, Encoding
from ropejax.masks import Causal
from ropejax.nn.dropout import check_rate, dropout
from ropejax.nn.dtypes import check_floating
from ropejax.nn.initial import Keys, bound, initial
from ropejax.nn.parameters import projection_init
from ropejax.nn.recurrent.cells import Cell, CellSettings, Row
from ropejax.nn.recurrent.rows import check_rows
from ropejax.nn.transformer import LayerKind
from ropejax.nn.whole_pass import compiled_once
from ropejax.positions.base import Placement
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True)
class RecurrentSpec:
    """All that makes a recurrent model but its parameters: one frozen, hashable value.

    Attributes:
        num_symbols: size of the input alphabet, the placeholder last.
        num_outputs: number of output classes, V.
        cell: settings of the cell.
        units: hidden units a layer, U; 256 in the paper.
        num_layers: cells on top of each other; 1 in the paper.
        dropout: probability of dropping an element of a layer's outputs; 0 in the
            paper.
        dtype: dtype of the computation; parameters stay float32.

    Raises:
        ValueError: if a size is below 1, or `dtype` no floating-point type.
    """

    num_symbols: int
    num_outputs: int
    cell: CellSettings
    units: int = 256
    num_layers: int = 1
    dropout: float = 0.0
    dtype: jnp.dtype = jnp.dtype("float32")

    def __post_init__(self):
        for name in ("num_symbols", "num_outputs", "units", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}."
                )
        check_rate(self.dropout)
        check_floating("dtype", self.dtype)

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return self.cell.title

    @property
    def dims(self) -> Dims:
        """The sizes, as those of a causal Transformer with one head would be named."""
        return Dims(
            num_heads=1,
            num_kv_heads=1,
            head_dim=self.units,
            embed_dim=self.units,
            num_layers=self.num_layers,
            causal=True,
        )

    @property
    def separator(self) -> int:
        """The symbol behind a row's input: the placeholder."""
        return self.num_symbols - 1

    @property
    def pattern(self) -> tuple[LayerKind, ...]:
        """All layers alike: no encoding, and no token sees a later one."""
        return (LayerKind(Encoding(), Causal()),)

    def init(self, rng: Rng) -> Params:
        """Returns initial parameters: a tree of dicts, float32."""
        return initial(Recurrent, self, rng)

    def bind(self, params: Params) -> "Recurrent":
        """Returns the model with these parameters."""
        return bound(Recurrent, self, params)


class Recurrent(nnx.Module):
    """Reads symbols one by one through its cells; logits are `C relu(h) + c`.

    Args:
        spec: sizes, and what the cells are.
        rngs: keys for the initial parameters.

    References:
        Deletang et al. 2022, arXiv 2207.02098, appendix A; code at
        google-deepmind/neural_networks_chomsky_hierarchy, models/rnn.py, from which the
        ReLU before the readout is taken.

    Departures:
        Recurrent kernels start orthogonal, which Flax's cells do, rather than as
        truncated normals. Tapes get no computation tokens, of which the paper tried 0,
        1 and 2 an input symbol.
    """

    def __init__(self, spec: RecurrentSpec, *, rngs: nnx.Rngs | Keys):
        self.spec = spec
        widths = [spec.num_symbols] + [spec.units] * (spec.num_layers - 1)
        self.cells = nnx.data(
            {
                f"layer_{at}": spec.cell.make(
                    width, spec.units, dtype=spec.dtype, rngs=rngs
                )
                for at, width in enumerate(widths)
            }
        )
        self.readout = nnx.Linear(
            spec.units, spec.num_outputs, kernel_init=projection_init, rngs=rngs
        )

    def __call__(
        self,
        tokens: Int[Array, "B L"],
        placement: Placement,
        *,
        valid: Bool[Array, "B L"] | None = None,
        segments: Int[Array, "B L"] | None = None,
        rng: Rng | None = None,
        first_row: int | Int[Array, ""] = 0,
    ) -> Float[Array, "B L V"]:
        """Returns logits over output classes at every token.

        Args:
            tokens: symbols, `[B, L]`, each below `num_symbols`, the input first.
            placement: not looked at: order is all that a recurrent model knows.
            valid: False at padding, `[B, L]`, which must come last in its row; None if
                there is none.
            segments: None; packed rows would need a fresh state in the middle.
            rng: PRNG key for dropout; None at evaluation, where nothing is dropped.
            first_row: row of the whole batch with which these start: dropout.

        Returns:
            Logits `[B, L, V]`, float32. Those of a token depend on it and on those
            before it, and, of a Tape-RNN, on the row's numbers of tokens.

        Raises:
            ValueError: if `segments` are given, or padding is known not to come last.
        """
        check_rows(valid, segments)
        row = describe_rows(tokens, valid, placeholder=self.spec.separator)
        x = jax.nn.one_hot(tokens, self.spec.num_symbols, dtype=self.spec.dtype)
        x = self._apply_cells(x, row, rng, first_row)
        return self.readout(jax.nn.relu(x).astype(jnp.float32))

    @compiled_once
    def _apply_cells(self, x, row, rng, first_row):
        rngs = [None] * len(self.cells)
        if rng is not None:
            rngs = jax.random.split(rng, len(self.cells))
        for cell, own in zip(self.cells.values(), rngs, strict=True):
            x = dropout(_unroll(cell, x, row), self.spec.dropout, own, first_row)
        return x


def _unroll(cell: Cell, x: Float[Array, "B L I"], row: Row) -> Float[Array, "B L U"]:
    """Returns a cell's outputs at all tokens."""
    time_major = jnp.swapaxes(x, 0, 1)
    _, outputs = jax.lax.scan(cell, cell.initial_state(row), time_major)
    return jnp.swapaxes(outputs, 0, 1)


def describe_rows(
    tokens: Int[Array, "B L"], valid: Bool[Array, "B L"] | None, *, placeholder: int
) -> Row:
    """Returns how long rows and their inputs are.

    Args:
        tokens: symbols, `[B, L]`.
        valid: False at padding, `[B, L]`; None if there is none.
        placeholder: the symbol at which outputs are read; a row without any is all
            input.
    """
    batch, num_tokens = tokens.shape
    lengths = jnp.full((batch,), num_tokens, jnp.int32)
    if valid is not None:
        lengths = valid.sum(-1, dtype=jnp.int32)
    asked = tokens == placeholder
    first = jnp.argmax(asked, axis=-1).astype(jnp.int32)
    return Row(num_tokens, lengths, jnp.where(asked.any(-1), first, lengths))
