"""Optimizers by name: settings that make optax transformations.

The learning rate, its schedule and the clipping of gradients belong to no optimizer
and stand around all of them. Of the other `Numbers`, each says which it heeds.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import optax

from ropejax.settings import Settings, check_finite
from ropejax.training.optimizer_numbers import (
    Numbers,
    check_fractions,
    check_numbers,
    check_weight_decay,
    is_known,
)
from ropejax.training.parameter_kinds import layer_by_layer, projection_kernels

Rate = float | Callable
"""A learning rate: a number, perhaps traced, or a function of the step."""


@dataclasses.dataclass(frozen=True)
class Optimizer(Settings):
    """What makes a transformation of gradients from a learning rate and numbers.

    Its attributes are what a program must know beforehand; they are hashed.
    """

    summary: ClassVar[str] = ""
    heeds: ClassVar[tuple[str, ...]] = ()
    """Which of `Numbers` beside learning rate and clipping make a difference to it."""

    def __call__(
        self, learning_rate: Rate, numbers: Numbers
    ) -> optax.GradientTransformation:
        """Returns the transformation, which clips nothing.

        Args:
            learning_rate: a number or a schedule.
            numbers: those of them that it heeds are looked at; may be traced. A known
                `weight_decay` of 0 leaves decay out.

        Raises:
            ValueError: if a number that is known is out of range.
        """
        raise NotImplementedError

    def check_unheeded(self, numbers: Numbers) -> None:
        """Raises ValueError for a known number that would do nothing.

        Args:
            numbers: those that it heeds not must be as they are if not given.
        """
        for name, usual in Numbers._field_defaults.items():
            number = getattr(numbers, name)
            if name in (*self.heeds, "max_grad_norm") or not is_known(number):
                continue
            if number != usual:
                raise ValueError(
                    f"{name}={number} does nothing with {type(self).__name__}; leave "
                    f"it at {usual}."
                )


def decay_of(numbers: Numbers) -> list[optax.GradientTransformation]:
    """Returns what adds decayed projection kernels to updates, or nothing.

    Args:
        numbers: of an optimizer that scales updates by its learning rate afterwards.
    """
    check_weight_decay(numbers.weight_decay)
    if is_known(numbers.weight_decay) and numbers.weight_decay == 0:
        return []
    return [optax.add_decayed_weights(numbers.weight_decay, projection_kernels)]


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """`-rate m / (sqrt(v) + eps)` of unbiased moments `m`, `v` of the gradient.

    References:
        Kingma and Ba 2015, arXiv 1412.6980; Loshchilov and Hutter 2019, arXiv
        1711.05101.
    """

    summary: ClassVar[str] = "Adam; AdamW under weight_decay; heeds b1, b2, eps"
    heeds: ClassVar[tuple[str, ...]] = ("weight_decay", "b1", "b2", "eps")

    def __call__(self, learning_rate, numbers):
        """See `Optimizer.__call__`."""
        if not callable(learning_rate):
            check_numbers(learning_rate=learning_rate)
        weight_decay = numbers.weight_decay
        moments = check_moments(numbers)
        check_weight_decay(weight_decay)
        if is_known(weight_decay) and weight_decay == 0:
            return optax.adam(learning_rate, **moments)
        return optax.adamw(
            learning_rate,
            **moments,
            weight_decay=weight_decay,
            mask=projection_kernels,
        )


def check_moments(numbers: Numbers) -> dict:
    """Returns the arguments of Adam's moments.

    Args:
        numbers: of an optimizer.

    Raises:
        ValueError: if one that is known is out of range.
    """
    b1, b2, eps = numbers.b1, numbers.b2, numbers.eps
    check_fractions("are b1=0.9, b2=0.999", b1=b1, b2=b2)
    check_numbers(eps=eps)
    if is_known(eps) and not eps > 0:
        raise ValueError(f"eps must be positive, got {eps}; usual is 1e-8.")
    return {"b1": b1, "b2": b2, "eps": eps}


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent with momentum: `-rate (t + decay w)`, `t = momentum t + g`.

    Attributes:
        momentum: decay of the trace `t` of gradients; 0 for none.
        nesterov: take `g + momentum t` for the trace.

    Raises:
        ValueError: if the momentum is not in [0, 1), or nesterov without momentum.

    References:
        Sutskever et al. 2013, "On the importance of initialization and momentum in
        deep learning"; decoupled decay: arXiv 1711.05101.
    """

    summary: ClassVar[str] = "gradient descent with momentum; heeds weight_decay"
    heeds: ClassVar[tuple[str, ...]] = ("weight_decay",)
    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self):
        check_fractions("is 0.9", momentum=self.momentum)
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov=True does nothing without momentum; set one.")

    def __call__(self, learning_rate, numbers):
        """See `Optimizer.__call__`."""
        trace = [optax.trace(self.momentum, self.nesterov)] if self.momentum else []
        scale = optax.scale_by_learning_rate(learning_rate)
        return optax.chain(*trace, *decay_of(numbers), scale)


@dataclasses.dataclass(frozen=True)
class Lion(Optimizer):
    """`-rate (sign(b1 m + (1 - b1) g) + decay w)`, then `m = b2 m + (1 - b2) g`.

    It wants a third to a tenth of Adam's learning rate.

    Attributes:
        b1: share of the momentum in the update.
        b2: decay of the momentum.

    Raises:
        ValueError: if a number is not in [0, 1).

    References:
        Chen et al. 2023, arXiv 2302.06675.
    """

    summary: ClassVar[str] = "the sign of momentum and gradient; heeds weight_decay"
    heeds: ClassVar[tuple[str, ...]] = ("weight_decay",)
    b1: float = 0.9
    b2: float = 0.99

    def __post_init__(self):
        check_fractions("are b1=0.9, b2=0.99", b1=self.b1, b2=self.b2)

    def __call__(self, learning_rate, numbers):
        """See `Optimizer.__call__`."""
        return optax.chain(
            optax.scale_by_lion(self.b1, self.b2),
            *decay_of(numbers),
            optax.scale_by_learning_rate(learning_rate),
        )


@dataclasses.dataclass(frozen=True)
class Adafactor(Optimizer):
    """Gradients over the root of their second moment, kept as rows and columns.

    A parameter of each layer counts as one of its own. Its two largest axes are
    factored: of a projection to heads `[D, N, H]`, `D` and the larger of the others.

    Attributes:
        min_dim_size_to_factor: shorter axes are not factored.
        decay_rate: the second moment decays by `1 - t^-decay_rate` at step `t`.
        multiply_by_parameter_scale: the learning rate is relative to a parameter's
            root mean square.
        clipping_threshold: updates of a larger root mean square are scaled to it; None
            for none.
        momentum: decay of an average of updates; None for none.

    Raises:
        ValueError: if a number is out of range.

    References:
        Shazeer and Stern 2018, arXiv 1804.04235.

    Departures:
        Weights decay by the learning rate times `weight_decay`, as under the other
        optimizers; `optax.adafactor` leaves the rate out.
    """

    summary: ClassVar[str] = "a factored second moment (T5); heeds weight_decay"
    heeds: ClassVar[tuple[str, ...]] = ("weight_decay",)
    min_dim_size_to_factor: int = 128
    decay_rate: float = 0.8
    multiply_by_parameter_scale: bool = True
    clipping_threshold: float | None = 1.0
    momentum: float | None = None

    def __post_init__(self):
        check_finite(self)
        for name in ("min_dim_size_to_factor", "decay_rate", "clipping_threshold"):
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise ValueError(f"{name} must be positive, got {number}.")
        if self.momentum is not None:
            check_fractions("is 0.9, or None", momentum=self.momentum)

    def __call__(self, learning_rate, numbers):
        """See `Optimizer.__call__`."""
        rate = learning_rate
        if not callable(rate):
            rate = optax.constant_schedule(learning_rate)
        decays = bool(decay_of(numbers))
        factored = optax.adafactor(
            rate,
            **dataclasses.asdict(self),
            weight_decay_rate=(lambda step: rate(step) * numbers.weight_decay)
            if decays
            else None,
            weight_decay_mask=projection_kernels,
        )
        return layer_by_layer(factored)
