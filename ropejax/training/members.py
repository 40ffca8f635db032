"""Members of a population: their seeds, and the numbers in which optimizers differ."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import optax

from ropejax.seeds import whole_seed
from ropejax.settings import Settings
from ropejax.training.optimizer import clipped, schedule
from ropejax.training.optimizer_numbers import Numbers, is_known
from ropejax.training.optimizers import Adam, Optimizer
from ropejax.whole_numbers import whole_number


@dataclasses.dataclass(frozen=True)
class OptimizerFamily(Settings):
    """An optimizer but for its numbers: what a program must know beforehand.

    Attributes:
        steps: steps in all, for the schedule.
        warmup_steps: steps of linear warm-up from zero.
        final_fraction: end of the schedule as a fraction of its peak.
        clips: cut long gradients.
        decays: decay weights.
        optimizer: which one it is.

    Raises:
        ValueError: if a number is out of range, or weights of an optimizer are to decay
            that cannot be told to.
    """

    steps: int
    warmup_steps: int = 0
    final_fraction: float = 1.0
    clips: bool = True
    decays: bool = False
    optimizer: Optimizer = Adam()

    def __post_init__(self):
        whole_number("steps", self.steps, least=0)
        if self.decays and "weight_decay" not in self.optimizer.heeds:
            raise ValueError(
                f"decays=True does nothing: {self.optimizer!r} takes no weight_decay "
                "from numbers."
            )
        schedule(  # refuses what is out of range
            1.0,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            final_fraction=self.final_fraction,
        )

    def __call__(self, numbers: Numbers) -> optax.GradientTransformation:
        """Returns the optimizer with these numbers, known or traced.

        Raises:
            ValueError: if a known number is out of range, of another family, or of no
                effect on the optimizer.
        """
        if is_known(numbers.weight_decay):
            self._check_form(numbers)
        rate = schedule(
            numbers.learning_rate,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            final_fraction=self.final_fraction,
        )
        own = numbers if self.decays else numbers._replace(weight_decay=0.0)
        return clipped(
            self.optimizer(rate, own), numbers.max_grad_norm if self.clips else None
        )

    def _check_form(self, numbers: Numbers) -> None:
        self.optimizer.check_unheeded(numbers)
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
