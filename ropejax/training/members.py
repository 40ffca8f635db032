"""Members of a population: their seeds, and the numbers in which optimizers differ."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ropejax.seeds import whole_seed
from ropejax.settings import Settings
from ropejax.training.optimizer import adam, schedule
from ropejax.whole_numbers import whole_number


class Numbers(NamedTuple):
    """Numbers of the optimizer in which members may differ; see `adam`.

    Attributes:
        learning_rate: peak of the schedule.
        weight_decay: decoupled, on projection kernels; 0 unless `AdamFamily.decays`.
        max_grad_norm: longer gradients are cut to it; 0 unless `AdamFamily.clips`.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: added to the root of the second moment.
    """

    learning_rate: float | Float[Array, ""]
    weight_decay: float | Float[Array, ""] = 0.0
    max_grad_norm: float | Float[Array, ""] = 1.0
    b1: float | Float[Array, ""] = 0.9
    b2: float | Float[Array, ""] = 0.999
    eps: float | Float[Array, ""] = 1e-8


@dataclasses.dataclass(frozen=True)
class AdamFamily(Settings):
    """Adam by its numbers: what a program must know beforehand, and nothing else.

    Attributes:
        steps: steps in all, for the schedule.
        warmup_steps: steps of linear warm-up from zero.
        final_fraction: end of the schedule as a fraction of its peak.
        clips: cut long gradients.
        decays: decay weights (AdamW).

    Raises:
        ValueError: if a number is out of range.
    """

    steps: int
    warmup_steps: int = 0
    final_fraction: float = 1.0
    clips: bool = True
    decays: bool = False

    def __post_init__(self):
        whole_number("steps", self.steps, least=1)
        schedule(  # refuses what is out of range
            1.0,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            final_fraction=self.final_fraction,
        )

    def __call__(self, numbers: Numbers) -> optax.GradientTransformation:
        """Returns the optimizer with these numbers, known or traced.

        Raises:
            ValueError: if a known number is out of range or of another family.
        """
        if not isinstance(numbers.weight_decay, jax.core.Tracer):
            self._check_form(numbers)
        return adam(
            schedule(
                numbers.learning_rate,
                steps=self.steps,
                warmup_steps=self.warmup_steps,
                final_fraction=self.final_fraction,
            ),
            weight_decay=numbers.weight_decay if self.decays else 0.0,
            max_grad_norm=numbers.max_grad_norm if self.clips else None,
            b1=numbers.b1,
            b2=numbers.b2,
            eps=numbers.eps,
        )

    def _check_form(self, numbers: Numbers) -> None:
        for name, switch in (("weight_decay", "decays"), ("max_grad_norm", "clips")):
            number, used = getattr(numbers, name), getattr(self, switch)
            if used != (number != 0):
                raise ValueError(
                    f"{name}={number} does not go with {switch}={used}: 0 stands for "
                    "none, and members of one program all have it, or none has."
                )


class Member(NamedTuple):
    """One of a population.

    Attributes:
        seed: determines parameters, data, positions and dropout.
        numbers: numbers of the optimizer.
    """

    seed: int
    numbers: Numbers


def check_members(members: Sequence[Member]) -> None:
    """Refuses what is no member, before anything is made of it.

    Raises:
        ValueError: if there is none, one is something else, or a seed or a number is
            none.
    """
    whole_number("the number of members", len(members), least=1)
    for at, member in enumerate(members):
        if not isinstance(member, Member) or not isinstance(member.numbers, Numbers):
            raise ValueError(
                f"members[{at}] must be Member(seed, Numbers(learning_rate, ...)), got "
                f"{member!r}."
            )
        whole_seed(f"seed of members[{at}]", member.seed)
        for name, number in member.numbers._asdict().items():
            kind = getattr(number, "dtype", None) or type(number)
            if jnp.shape(number) or not jnp.issubdtype(kind, jnp.number):
                raise ValueError(
                    f"{name} of members[{at}] must be a number, got {number!r}."
                )


def strong(numbers: Sequence[Numbers] | Numbers) -> Numbers:
    """Returns numbers as float32 arrays, with a member axis if there are several.

    A Python float would be weakly typed: what it becomes in the state changes type
    after one step, and every program compiles twice.
    """
    if isinstance(numbers, Numbers):
        return Numbers(*(jnp.asarray(number, jnp.float32) for number in numbers))
    return Numbers(*(jnp.asarray(row, jnp.float32) for row in zip(*numbers)))  # noqa: B905
