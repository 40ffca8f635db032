"""What a loss or a gradient that is not finite does to training.

Adam forgets nothing: one NaN in its moments is there in every later step. So a step
that is not finite is told from the others inside the compiled program, where its
parameters can still be refused.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ropejax.encodings.choices import check_choice

POLICIES = ("stop", "skip", "count")
"""stop: stand still before that step; skip: change no parameter; count: nothing."""


class NonFiniteError(RuntimeError):
    """Training met a loss or a gradient that is not finite, under the policy "stop".

    Attributes:
        step: the step, counted from 0: the state has taken so many.
        state: the training state before that step.
    """

    def __init__(self, step: int, state: Any):
        super().__init__(
            f"the loss or the gradient of step {step} is not finite; training stopped "
            "before it."
        )
        self.step, self.state = step, state


def check_policy(policy: str) -> None:
    """Raises ValueError, with the nearest name, for what is no policy."""
    check_choice("nonfinite", policy, POLICIES)


def is_finite(metrics) -> Bool[Array, "*steps"]:
    """Returns where steps had a finite loss and a finite gradient.

    A gradient whose squares overflow float32 is not finite: nothing can be made of it.

    Args:
        metrics: `StepMetrics` of one step or of many.
    """
    return jnp.isfinite(metrics.loss) & jnp.isfinite(metrics.grad_norm)


def unless_finite(policy: str, finite: Bool[Array, ""], before, after):
    """Returns the state after a step, or what the policy makes of it.

    Args:
        policy: one of `POLICIES`.
        finite: whether the step was.
        before: the `TrainState` before the step.
        after: the state after it.
    """
    if policy == "count":
        return after
    kept = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old),
        (after.params, after.opt_state),
        (before.params, before.opt_state),
    )
    step = after.step
    if policy == "stop":
        step = jnp.where(finite, after.step, before.step)
    return after._replace(step=step, params=kept[0], opt_state=kept[1])
