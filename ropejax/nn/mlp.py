"""The MLP of a layer: two projections around an activation, or three with a gate."""

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.nn.parameters import projection_init
from ropejax.settings import Settings

Activation = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class MLP(Settings):
    """`W_out act(W_in x + b_in) + b_out`; what is made otherwise derives from it.

    Attributes:
        bias: projections have biases.
    """

    bias: bool = True

    num_projections: ClassVar[int] = 2
    """Matrices of the model's width by the MLP's."""
    summary: ClassVar[str] = "two projections around an activation"

    def make(
        self, width: int, hidden: int, *, dtype=jnp.float32, rngs: nnx.Rngs
    ) -> dict[str, nnx.Module]:
        """Returns the projections, under the names that a layer holds them by.

        Args:
            width: the model's, D.
            hidden: the MLP's, F.
            dtype: dtype of the computation; parameters stay float32.
            rngs: keys for the initial parameters.
        """
        return {
            "mlp_in": self.projection(width, hidden, dtype=dtype, rngs=rngs),
            "mlp_out": self.projection(hidden, width, dtype=dtype, rngs=rngs),
        }

    def projection(
        self, rows: int, columns: int, *, dtype, rngs: nnx.Rngs
    ) -> nnx.Linear:
        """Returns one projection, `[..., rows]` to `[..., columns]`."""
        return nnx.Linear(
            rows,
            columns,
            use_bias=self.bias,
            kernel_init=projection_init,
            dtype=dtype,
            rngs=rngs,
        )

    def __call__(
        self, layer: Any, activation: Activation, x: Float[Array, "B L D"]
    ) -> Float[Array, "B L D"]:
        """Applies the MLP.

        Args:
            layer: what holds the projections.
            activation: a function of each element.
            x: hidden states, `[B, L, D]`.
        """
        return layer.mlp_out(activation(layer.mlp_in(x)))


@dataclasses.dataclass(frozen=True)
class GatedMLP(MLP):
    """`W_out (act(W_gate x) * W_in x)`: SwiGLU of SiLU, GeGLU of GELU.

    It has three matrices, so one of `2/3` the width has the weights of a plain one.

    Attributes:
        bias: projections have biases, all three.

    References:
        Shazeer 2020, "GLU Variants Improve Transformer", arXiv 2002.05202.
    """

    bias: bool = False

    num_projections: ClassVar[int] = 3
    summary: ClassVar[str] = "with a gate: SwiGLU, GeGLU by activation (Llama)"

    def make(self, width, hidden, *, dtype=jnp.float32, rngs):
        """Returns the projections, that of the gate too: see `MLP.make`."""
        gate = self.projection(width, hidden, dtype=dtype, rngs=rngs)
        made = super().make(width, hidden, dtype=dtype, rngs=rngs)
        return {**made, "mlp_gate": gate}

    def __call__(self, layer, activation, x):
        """Applies the MLP: see `MLP.__call__`."""
        return layer.mlp_out(activation(layer.mlp_gate(x)) * layer.mlp_in(x))


MLPS = MappingProxyType({"plain": MLP, "gated": GatedMLP})
"""Name in configs -> class of settings."""
