"""Numbers of optimizers: which there are, and what none of them may be."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

_SMALLEST, _LARGEST = (
    float(size) for size in (np.finfo(np.float32).tiny, np.finfo(np.float32).max)
)


class Numbers(NamedTuple):
    """Numbers of an optimizer, in which members of a population may differ.

    Attributes:
        learning_rate: peak of the schedule.
        weight_decay: decoupled, on projection kernels; 0 unless the family decays.
        max_grad_norm: longer gradients are cut to it; 0 unless the family clips.
        b1: decay of Adam's first moment.
        b2: decay of Adam's second moment.
        eps: added to the root of Adam's second moment.
    """

    learning_rate: float | Float[Array, ""]
    weight_decay: float | Float[Array, ""] = 0.0
    max_grad_norm: float | Float[Array, ""] = 1.0
    b1: float | Float[Array, ""] = 0.9
    b2: float | Float[Array, ""] = 0.999
    eps: float | Float[Array, ""] = 1e-8


def check_numbers(**given) -> None:
    """Raises ValueError, by name, for what is known and no finite number of float32.

    There a larger number is infinite, and a smaller one zero: a rate that teaches
    nothing, an `eps` that keeps no division by zero from happening.
    """
    for name, number in given.items():
        if number is None or not is_known(number):
            continue
        if isinstance(number, bool | str) or not np.all(np.isfinite(number)):
            raise ValueError(f"{name} must be a finite number, got {number!r}.")
        size = np.abs(np.asarray(number, np.float64))
        if np.any(size > _LARGEST) or np.any((size > 0) & (size < _SMALLEST)):
            raise ValueError(
                f"{name} must be a number that float32 holds, in which training "
                f"computes: between {_SMALLEST:.2g} and {_LARGEST:.2g}, or 0; got "
                f"{number!r}."
            )


def check_fractions(usual: str, **given) -> None:
    """Raises ValueError, by name, for what is known and not in [0, 1) in float32.

    Args:
        usual: what they usually are, for the message.
        **given: decays of moments, which are computed in float32: there 0.99999999
            is 1.
    """
    check_numbers(**given)
    for name, decay in given.items():
        if is_known(decay) and not 0 <= np.float32(decay) < 1:
            raise ValueError(f"{name} must be in [0, 1), got {decay}; usual {usual}.")


def check_weight_decay(weight_decay) -> None:
    """Raises ValueError for a known weight decay that is negative or not finite."""
    check_numbers(weight_decay=weight_decay)
    if is_known(weight_decay) and weight_decay < 0:
        raise ValueError(f"weight_decay must not be negative, got {weight_decay}.")


def is_known(number) -> bool:
    """False for a traced number, which cannot be compared while a program is made."""
    return not isinstance(number, jax.core.Tracer)
