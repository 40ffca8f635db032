"""Muon: momentum whose matrices are made orthogonal before each step."""

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from ropejax.settings import check_finite
from ropejax.training.optimizer_numbers import check_fractions
from ropejax.training.optimizers import Optimizer, check_moments, decay_of
from ropejax.training.parameter_kinds import is_stacked, names_of
from ropejax.typing import Params

_COEFFICIENTS = np.array((3.4445, -4.7750, 2.0315), np.float32)
"""Of the quintic that brings singular values near 1 soonest (Jordan's), float32 under
`jax_enable_x64` too: they are part of the state."""


@dataclasses.dataclass(frozen=True)
class Muon(Optimizer):
    """`-rate (s O + decay w)`, `O` near `U V^T` of the momentum `U S V^T`.

    That is for the projections within layers, each layer's a matrix of inputs by
    outputs, all heads together: `[D, N, H]` is `[D, N H]`. The rest (embeddings, the
    readout, norms, biases, what belongs to encodings and other parts) is Adam's.

    Attributes:
        beta: decay of the momentum.
        nesterov: look ahead by a step of the momentum.
        ns_steps: Newton-Schulz iterations, which make the momentum orthogonal.
        consistent_rms: `s` is this times `sqrt(max(inputs, outputs))`, so that updates
            are as large as Adam's, and a learning rate of Adam's fits; None for
            `s = sqrt(max(1, outputs / inputs))`, which wants a rate near 0.02.
        others_rate: learning rate of the rest, over that of the matrices.

    Raises:
        ValueError: if a number is out of range.

    References:
        Jordan et al. 2024, KellerJordan/Muon; `consistent_rms`: Liu et al. 2025, arXiv
        2502.16982.
    """

    summary: ClassVar[str] = (
        "orthogonal momentum of matrices, Adam beside; heeds the same"
    )
    heeds: ClassVar[tuple[str, ...]] = ("weight_decay", "b1", "b2", "eps")
    beta: float = 0.95
    nesterov: bool = True
    ns_steps: int = 5
    consistent_rms: float | None = 0.2
    others_rate: float = 1.0

    def __post_init__(self):
        check_finite(self)
        check_fractions("is 0.95", beta=self.beta)
        if self.nesterov and self.beta == 0:
            raise ValueError("nesterov=True does nothing at beta=0; set it to False.")
        for name in ("ns_steps", "consistent_rms", "others_rate"):
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise ValueError(f"{name} must be positive, got {number}.")

    def __call__(self, learning_rate, numbers):
        """See `Optimizer.__call__`."""
        matrices = optax.chain(
            scale_by_muon(
                _COEFFICIENTS,
                ns_steps=self.ns_steps,
                beta=self.beta,
                nesterov=self.nesterov,
                weight_dimension_numbers=_axes,
            ),
            optax.stateless(self._scaled),
            *decay_of(numbers),
            optax.scale_by_learning_rate(learning_rate),
        )
        others = optax.chain(
            optax.scale_by_adam(**check_moments(numbers)),
            *decay_of(numbers),
            optax.scale_by_learning_rate(learning_rate),
            *([optax.scale(self.others_rate)] if self.others_rate != 1 else []),
        )
        return optax.partition({"matrices": matrices, "others": others}, _labels)

    def _scaled(self, updates: Params, params: Params | None = None) -> Params:
        """Makes orthogonal matrices as large as wanted, each by its shape."""

        def scaled(path, update):
            axes = matrix_axes(path, update)
            inputs, outputs = (
                math.prod(update.shape[axis] for axis in side) for side in axes
            )
            size = math.sqrt(max(1, outputs / inputs))
            if self.consistent_rms is not None:
                size = self.consistent_rms * math.sqrt(max(inputs, outputs))
            return jnp.asarray(size, update.dtype) * update

        return jax.tree_util.tree_map_with_path(scaled, updates)


def _labels(params: Params) -> Params:
    """Says whose each parameter is: "matrices" or "others"."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: "matrices" if matrix_axes(path, leaf) else "others", params
    )


def _axes(params: Params) -> Params:
    """The axes of matrices as optax wants them."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: MuonDimensionNumbers(*matrix_axes(path, leaf)), params
    )


def matrix_axes(
    path: tuple[Any, ...], leaf: Any
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns a projection's axes of inputs and of outputs; None for what is none.

    An axis of layers is neither. What attention returns, `[N, H, D]`, has its inputs
    first, all but the last; other projections have one axis of inputs.
    """
    names = names_of(path)
    if names[-1] != "kernel" or names[0] == "readout":
        return None
    if any(str(name).endswith("_params") for name in names):  # of an encoding, a gate
        return None
    first = int(is_stacked(path))
    axes = tuple(range(first, leaf.ndim))
    if len(axes) < 2:
        return None
    inputs = len(axes) - 1 if names[-2] == "out" else 1
    return axes[:inputs], axes[inputs:]
