"""An optimizer of one's own: a function of a learning rate, optax's among them."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import optax

from ropejax.training.optimizer_numbers import check_weight_decay
from ropejax.training.optimizers import Optimizer
from ropejax.training.parameter_kinds import projection_kernels

MASKS = ("mask", "weight_decay_mask")
"""Arguments by which optax's optimizers are told where weights decay."""


@dataclasses.dataclass(frozen=True)
class OwnOptimizer(Optimizer):
    """`function(learning_rate, **options)`, which is any optax transformation.

    A function that has an argument `weight_decay` gets this one, and, if it has an
    argument `mask` or `weight_decay_mask` too, is told to decay projection kernels
    alone. Members of a population may differ in seed, learning rate and clipping.

    Attributes:
        function: such as `optax.radam`; the learning rate, its first argument, is a
            schedule.
        options: other arguments by name.
        weight_decay: what it gets for its argument of that name; 0 if it has none.

    Raises:
        ValueError: if there are no such arguments, one is missing, or one cannot be
            hashed, as a list.
    """

    summary: ClassVar[str] = "an optax transformation by the function that makes it"
    function: Callable
    options: tuple[tuple[str, Any], ...] = ()
    weight_decay: float = 0.0

    def __post_init__(self):
        check_weight_decay(self.weight_decay)
        for option, value in self.options:
            if type(value).__hash__ is None:
                raise ValueError(
                    f"option {option}={value!r} must be hashable, as a number, a "
                    "string, a function or a tuple of these is."
                )
        named = arguments(self.function)
        if "weight_decay" in dict(self.options):
            raise ValueError("give weight_decay beside the options, not among them.")
        if self.weight_decay != 0 and "weight_decay" not in named:
            raise ValueError(
                f"weight_decay={self.weight_decay} does nothing with {self.name}, "
                "which has no argument weight_decay; leave it at 0."
            )
        try:
            inspect.signature(self.function).bind(1.0, **self._given())
        except TypeError as error:
            known = ", ".join(named) or "none"
            raise ValueError(
                f"{self.name} cannot be called with a learning rate and these options: "
                f"{error}. Its other arguments: {known}."
            ) from None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return getattr(self.function, "__qualname__", repr(self.function))

    def _given(self) -> dict[str, Any]:
        named, given = arguments(self.function), dict(self.options)
        if "weight_decay" in named:
            given = {"weight_decay": self.weight_decay} | given
            masks = {name: projection_kernels for name in MASKS if name in named}
            given = masks | given
        return given

    def __call__(self, learning_rate, numbers):
        """See `Optimizer.__call__`; ValueError if it gives no transformation."""
        try:
            made = self.function(learning_rate, **self._given())
        except (TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.name} cannot be called with a learning rate that is a function "
                f"of the step, and its options: {error}"
            ) from error
        if not isinstance(made, optax.GradientTransformation):
            raise ValueError(
                f"{self.name} must return an optax.GradientTransformation for a "
                f"learning rate, got {made!r}."
            )
        return made


def arguments(function: Callable) -> dict[str, inspect.Parameter]:
    """Returns what a function of a learning rate takes besides it, by name.

    Args:
        function: whatever can be called.

    Raises:
        ValueError: if it takes no argument without a name.
    """
    known = inspect.signature(function).parameters.values()
    in_order = [one for one in known if one.kind in (one.POSITIONAL_ONLY, _EITHER)]
    if not in_order:
        raise ValueError(
            f"{function!r} must take a learning rate as its first argument."
        )
    return {
        one.name: one
        for one in known
        if one is not in_order[0] and one.kind in (_EITHER, one.KEYWORD_ONLY)
    }


_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
