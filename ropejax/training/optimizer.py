"""Schedules, clipping, and Adam with both: optax chains from explicit numbers."""

import optax

from ropejax.training.optimizer_numbers import (
    Numbers,
    check_numbers,
    is_known,
)
from ropejax.training.optimizers import Adam


def schedule(
    learning_rate: float,
    *,
    steps: int,
    warmup_steps: int = 0,
    final_fraction: float = 1.0,
) -> optax.Schedule:
    """Returns a learning rate that warms up linearly and then decays by a cosine.

    Args:
        learning_rate: the peak, reached after `warmup_steps`; may be traced.
        steps: steps in all; the schedule stays at its end value beyond.
        warmup_steps: steps of linear warm-up from zero; 0 for none.
        final_fraction: end value as a fraction of the peak; 1 keeps the peak
            (constant).

    Returns:
        A function of the step.

    Raises:
        ValueError: if a number is out of range, that of float32 included.
    """
    check_numbers(learning_rate=learning_rate, final_fraction=final_fraction)
    if is_known(learning_rate) and not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, got {learning_rate}.")
    if not 0 <= warmup_steps < max(steps, 1):
        raise ValueError(
            f"warmup_steps must be in 0 .. {max(steps, 1) - 1} for {steps=}, got "
            f"{warmup_steps}."
        )
    if not 0 <= final_fraction <= 1:
        raise ValueError(f"final_fraction must be in [0, 1], got {final_fraction}.")
    warmup = optax.linear_schedule(0.0, learning_rate, warmup_steps)
    decay = optax.cosine_decay_schedule(
        learning_rate, max(steps - warmup_steps, 1), alpha=final_fraction
    )
    if final_fraction == 1:
        decay = optax.constant_schedule(learning_rate)
    return optax.join_schedules([warmup, decay], [warmup_steps])


def adam(
    learning_rate: float | optax.Schedule,
    *,
    weight_decay: float = 0.0,
    max_grad_norm: float | None = 1.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    """Returns Adam (AdamW if `weight_decay` is not zero) behind global-norm clipping.

    Numbers may be traced, so that the members of a population have their own; a traced
    `weight_decay` makes AdamW.

    Args:
        learning_rate: a number or a schedule.
        weight_decay: decoupled weight decay on projection kernels; 0 for Adam.
        max_grad_norm: gradients of a larger global norm are scaled to it; None for
            none.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: added to the root of the second moment.

    Returns:
        A gradient transformation.

    Raises:
        ValueError: if a number is not finite, or infinite or zero in float32 alone,
            `weight_decay` is negative, `max_grad_norm` or `eps` is not positive, or
            `b1` or `b2` is not in [0, 1), in float32 neither.

    References:
        Kingma and Ba 2015, arXiv 1412.6980; Loshchilov and Hutter 2019, arXiv
        1711.05101.
    """
    numbers = Numbers(0.0, weight_decay, 0.0, b1, b2, eps)
    return clipped(Adam()(learning_rate, numbers), max_grad_norm)


def clipped(
    optimizer: optax.GradientTransformation, max_grad_norm: float | None
) -> optax.GradientTransformation:
    """Returns an optimizer that gets gradients of no larger global norm than given.

    Args:
        optimizer: any.
        max_grad_norm: longer gradients are scaled to it; None for none; may be traced.

    Raises:
        ValueError: if the norm is not positive, or not finite in float32.
    """
    check_numbers(max_grad_norm=max_grad_norm)
    if is_known(max_grad_norm) and max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(
            f"max_grad_norm must be positive (None: no clipping), got {max_grad_norm}."
        )
    clip = (
        optax.identity()
        if max_grad_norm is None
        else optax.clip_by_global_norm(max_grad_norm)
    )
    return optax.chain(clip, optimizer)
