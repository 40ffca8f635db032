"""Length curricula: which input length a training step sees, as a pure function.

A curriculum maps a PRNG key and a step to a length, both traced, so it runs inside the
compiled loop, and a length depends on nothing but the run's seed and the step.
"""

import dataclasses
import math
from types import MappingProxyType
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.settings import Settings, check_finite
from ropejax.typing import Rng

_LARGEST = 2**31 - 2
"""The largest number of symbols or steps: one more is still an int32."""


@dataclasses.dataclass(frozen=True)
class Curriculum(Settings):
    """A rule for lengths; one that never asks for the shortest says so by `shortest`.

    Attributes:
        max_length: the longest length that it ever asks for, in symbols.
    """

    summary: ClassVar[str] = ""
    max_length: int = 40

    def __post_init__(self):
        check_finite(self)
        _check_count(max_length=self.max_length)

    @property
    def shortest(self) -> int:
        """The shortest length that it ever asks for, in symbols."""
        return 1

    def __call__(self, rng: Rng, step: Int[Array, ""]) -> Int[Array, ""]:
        """Returns the length of a step.

        Args:
            rng: PRNG key of this step.
            step: the step's number, from 0.

        Returns:
            A length in 1 .. `max_length`, int32.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Uniform(Curriculum):
    """Uniform over `min_length .. max_length`, as in Deletang et al. 2022."""

    summary: ClassVar[str] = "uniform over all training lengths (the papers' choice)"
    min_length: int = 1

    def __post_init__(self):
        super().__post_init__()
        _check_order(self.min_length, self.max_length)

    @property
    def shortest(self) -> int:
        """See `Curriculum.shortest`."""
        return self.min_length

    def __call__(self, rng: Rng, step: Int[Array, ""]) -> Int[Array, ""]:
        """See `Curriculum.__call__`."""
        end = self.max_length + 1
        return jax.random.randint(rng, (), self.min_length, end, jnp.int32)


@dataclasses.dataclass(frozen=True)
class Fixed(Curriculum):
    """Always `max_length`."""

    summary: ClassVar[str] = "always the longest length"

    @property
    def shortest(self) -> int:
        """See `Curriculum.shortest`."""
        return self.max_length

    def __call__(self, rng: Rng, step: Int[Array, ""]) -> Int[Array, ""]:
        """See `Curriculum.__call__`."""
        return jnp.int32(self.max_length)


@dataclasses.dataclass(frozen=True)
class Increasing(Curriculum):
    """A top that grows: `min(max_length, min_length + amount * (step // every))`.

    Attributes:
        min_length: the top length at the start.
        amount: by how much the top grows.
        every: after how many steps it grows.
        sample_all: draw uniformly from 1 to the top, rather than the top itself.
    """

    summary: ClassVar[str] = "lengths up to a top that grows every N steps"
    min_length: int = 1
    amount: int = 1
    every: int = 1000
    sample_all: bool = True

    def __post_init__(self):
        super().__post_init__()
        _check_order(self.min_length, self.max_length)
        _check_count(amount=self.amount, every=self.every)

    @property
    def shortest(self) -> int:
        """See `Curriculum.shortest`."""
        return 1 if self.sample_all else self.min_length

    def __call__(self, rng: Rng, step: Int[Array, ""]) -> Int[Array, ""]:
        """See `Curriculum.__call__`."""
        # Counted up to the last growth and no further, so that no int32 overflows.
        room = self.max_length - self.min_length
        times, most = step // self.every, room // self.amount
        grown = jnp.where(times > most, room, jnp.minimum(times, most) * self.amount)
        top = self.min_length + grown
        if not self.sample_all:
            return top
        return jax.random.randint(rng, (), 1, top + 1, jnp.int32)


@dataclasses.dataclass(frozen=True)
class ReverseExponential(Curriculum):
    """Favors long lengths: `P(length) ~ base ** length` over `1 .. max_length`.

    The fraction of steps at a length grows by the factor `base` a symbol; base 1 is
    uniform.
    """

    summary: ClassVar[str] = "long lengths exponentially more often than short ones"
    base: float = 1.1

    def __post_init__(self):
        super().__post_init__()
        if not self.base > 0:
            raise ValueError(f"base must be positive, got {self.base}.")

    def __call__(self, rng: Rng, step: Int[Array, ""]) -> Int[Array, ""]:
        """See `Curriculum.__call__`."""
        lengths = jnp.arange(1, self.max_length + 1, dtype=jnp.int32)
        # The logarithm of a float64: bases beyond float32 are infinite, or 0, there.
        chosen = jax.random.categorical(rng, lengths * jnp.float32(math.log(self.base)))
        return lengths[chosen]


_TRIED = (0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
"""Steps at which a curriculum of one's own is asked for lengths."""


def check_curriculum(curriculum: Curriculum) -> None:
    """Raises ValueError where a curriculum of one's own gives what is no length.

    In the compiled step nothing could be refused, and a row that is too long would be
    cut. Those of the catalogue are as they should be.

    Args:
        curriculum: a function of a PRNG key and a step, with `max_length`.
    """
    if type(curriculum) in CURRICULA.values():
        return
    name = type(curriculum).__name__
    rng, step = jax.random.key(0), jnp.int32(0)
    given = jax.eval_shape(curriculum, rng, step)
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if shape != () or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            f"curriculum {name} must return one integer, got shape {shape}, {dtype}."
        )
    keys, steps = jax.random.split(rng, (len(_TRIED), 64)), jnp.asarray(_TRIED)
    each = jax.vmap(jax.vmap(curriculum, (0, None)))
    lengths = jax.device_get(jax.jit(each)(keys, steps))
    for step, found in zip(_TRIED, lengths, strict=True):
        low, high = int(found.min()), int(found.max())
        if low < 1 or high > curriculum.max_length:
            raise ValueError(
                f"curriculum {name} gives lengths from {low} to {high} at step {step}; "
                f"they must lie in 1 .. max_length={curriculum.max_length}."
            )


def _check_count(**given: int) -> None:
    for name, number in given.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")
        if number > _LARGEST:
            raise ValueError(
                f"{name} must be at most {_LARGEST}, got {number}: steps and lengths "
                "are int32."
            )


def _check_order(min_length: int, max_length: int) -> None:
    if not 1 <= min_length <= max_length:
        raise ValueError(
            f"min_length must lie in 1 .. max_length, got {min_length=}, {max_length=}."
        )


CURRICULA = MappingProxyType(
    {
        "uniform": Uniform,
        "fixed": Fixed,
        "increasing": Increasing,
        "reverse_exponential": ReverseExponential,
    }
)
"""Name in configs -> class of settings."""
