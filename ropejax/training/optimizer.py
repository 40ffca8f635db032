"""Optimizers and schedules: optax chains from explicit numbers."""

import jax
import numpy as np
import optax

_SMALLEST, _LARGEST = (
    float(size) for size in (np.finfo(np.float32).tiny, np.finfo(np.float32).max)
)


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
    _check_numbers(learning_rate=learning_rate, final_fraction=final_fraction)
    if _is_known(learning_rate) and not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, got {learning_rate}.")
    if not 0 <= warmup_steps < max(steps, 1):
        raise ValueError(f"warmup_steps must be below {steps=}, got {warmup_steps}.")
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
    _check_numbers(
        weight_decay=weight_decay, max_grad_norm=max_grad_norm, b1=b1, b2=b2, eps=eps
    )
    if not callable(learning_rate):
        _check_numbers(learning_rate=learning_rate)
    for name, decay in (("b1", b1), ("b2", b2)):
        # In float32, which the moments are computed in, 0.99999999 is 1.
        if _is_known(decay) and not 0 <= np.float32(decay) < 1:
            raise ValueError(
                f"{name} must be in [0, 1), got {decay}; usual are b1=0.9, b2=0.999."
            )
    if _is_known(eps) and not eps > 0:
        raise ValueError(f"eps must be positive, got {eps}; usual is 1e-8.")
    if _is_known(weight_decay) and weight_decay < 0:
        raise ValueError(f"weight_decay must not be negative, got {weight_decay}.")
    if _is_known(max_grad_norm) and max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(
            f"max_grad_norm must be positive (None: no clipping), got {max_grad_norm}."
        )
    clip = (
        optax.identity()
        if max_grad_norm is None
        else optax.clip_by_global_norm(max_grad_norm)
    )
    if _is_known(weight_decay) and weight_decay == 0:
        return optax.chain(clip, optax.adam(learning_rate, b1=b1, b2=b2, eps=eps))
    return optax.chain(
        clip,
        optax.adamw(
            learning_rate,
            b1=b1,
            b2=b2,
            eps=eps,
            weight_decay=weight_decay,
            mask=_matrices,
        ),
    )


def _check_numbers(**given) -> None:
    """Raises ValueError, by name, for what is known and no finite number of float32.

    There a larger number is infinite, and a smaller one zero: a rate that teaches
    nothing, an `eps` that keeps no division by zero from happening.
    """
    for name, number in given.items():
        if number is None or not _is_known(number):
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


def _is_known(number) -> bool:
    """False for a traced number, which cannot be compared while a program is made."""
    return not isinstance(number, jax.core.Tracer)


def _matrices(params):
    """True for kernels of projections: not for norms, biases, embeddings, tables."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: any(getattr(part, "key", None) == "kernel" for part in path),
        params,
    )
