"""What a RoPE extension is: new frequencies for old, and a factor on what it rotates.

A `FrequencyMap` is a frozen value. It says by what ratio each frequency changes, so
that it applies to constant and to learned frequencies alike, and maps compose by
`Chain`. Maps that need the current length get it traced; all others are worked out on
the host in float64.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ropejax.encodings.choices import positive
from ropejax.settings import Settings, check_finite, make_tuples

Ratios = Float[np.ndarray, " R"] | Float[Array, "#B R"]
Length = Int[Array, " B"]
Scale = float | Float[Array, "B 1"]


@dataclasses.dataclass(frozen=True)
class FrequencyMap(Settings):
    """Leaves all frequencies as they are.

    Attributes:
        title: what the extension is called.
        reference: paper and arXiv id.
        length_dependent: True if ratios or factor depend on the current length.
    """

    title: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    length_dependent: ClassVar[bool] = False

    def __post_init__(self):
        make_tuples(self)
        check_finite(self)

    @property
    def keep_first(self) -> int:
        """Tokens at positions below this keep the original rotation."""
        return 0

    def check(self, pairs: int) -> None:
        """Raises ValueError if the map does not fit this number of rotated pairs."""

    def ratios(
        self,
        frequencies: Float[np.ndarray, " R"],
        max_wavelength: float,
        length: Length | None = None,
    ) -> Ratios:
        """Returns new frequency over old, for each pair.

        Args:
            frequencies: radians a token, `[R]`, float64, highest first.
            max_wavelength: the base they were made from.
            length: number of tokens of each sequence, `[B]`; None unless
                `length_dependent`.

        Returns:
            Ratios `[R]`, float64 on the host; `[B, R]`, traced, if `length_dependent`.
        """
        return np.ones_like(frequencies)

    def factor(self, length: Length | None = None) -> float | Float[Array, " B"]:
        """Returns what multiplies rotated queries and, again, rotated keys."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class Chain(FrequencyMap):
    """Applies maps one after another; ratios and factors multiply.

    Attributes:
        maps: the maps, first to act first. One that depends on the length must be last,
            because the others work on the host.

    Raises:
        ValueError: if a length-dependent map is not the last.
    """

    maps: tuple[FrequencyMap, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        if any(each.length_dependent for each in self.maps[:-1]):
            raise ValueError(
                f"only the last map of a Chain may depend on the length: {self.maps}."
            )

    @property
    def title(self) -> str:
        """The titles of the parts."""
        return " + ".join(each.title for each in self.maps if each.title)

    @property
    def reference(self) -> str:
        """The references of the parts."""
        return "; ".join(each.reference for each in self.maps if each.reference)

    @property
    def length_dependent(self) -> bool:
        """True if the last part is."""
        return any(each.length_dependent for each in self.maps)

    @property
    def keep_first(self) -> int:
        """The greatest of the parts'."""
        return max((each.keep_first for each in self.maps), default=0)

    def check(self, pairs: int) -> None:
        """Raises ValueError if a part does not fit this number of rotated pairs."""
        for each in self.maps:
            each.check(pairs)

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns the product of the parts' ratios, each seeing frequencies so far."""
        total = np.ones_like(frequencies)
        for each in self.maps:
            ratios = each.ratios(frequencies * total, max_wavelength, length)
            total = beside(total, ratios) * ratios
        return total

    def factor(self, length=None) -> float | Float[Array, " B"]:
        """Returns the product of the parts' factors."""
        total = 1.0
        for each in self.maps:
            total = total * each.factor(length)
        return total


@dataclasses.dataclass(frozen=True)
class AttentionFactor(FrequencyMap):
    """Multiplies rotated queries and keys by a constant, so logits by its square."""

    value: float = 1.0

    title: ClassVar[str] = "attention factor"

    def __post_init__(self):
        super().__post_init__()
        positive(value=self.value)

    def factor(self, length=None) -> float:
        """Returns the constant."""
        return self.value


def beside(constants: Float[np.ndarray, " R"], scale: Scale | Ratios) -> Ratios:
    """Returns constants shaped to meet a scale: as they are, or `[1, R]` if traced."""
    if isinstance(scale, float | np.ndarray):
        return constants
    return jnp.asarray(constants, jnp.float32)[None]


def current_scale(length: Length, train_length: int) -> Float[Array, "B 1"]:
    """Returns how many times a sequence exceeds the trained length, at least 1."""
    scale = length.astype(jnp.float32)[:, None] / train_length
    return jnp.maximum(scale, 1.0)
