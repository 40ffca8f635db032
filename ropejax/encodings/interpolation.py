"""RoPE extensions that scale frequencies by fixed rules: interpolation and NTK.

A model trained to length N meets, beyond it, angles that it has never seen. Dividing
all frequencies by the extension s (position interpolation) brings all angles back into
range but blurs near positions; the NTK family divides slow frequencies by s and fast
ones not at all. All of these are settings of test time, perhaps with a little
finetuning.
"""

import dataclasses
import math
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from ropejax.encodings.angles import share_of
from ropejax.encodings.choices import check_choice, not_negative, positive
from ropejax.encodings.frequency_map import FrequencyMap, Ratios, Scale, beside


@dataclasses.dataclass(frozen=True)
class PositionInterpolation(FrequencyMap):
    """Divides all frequencies, which is to divide all positions: `f / scale`.

    Attributes:
        scale: how many times longer sequences may be than in training, s.

    References:
        Chen et al. (2023), arXiv:2306.15595; kaiokendev (2023).
    """

    scale: float = 1.0

    title: ClassVar[str] = "position interpolation"
    reference: ClassVar[str] = "Chen et al. 2023, arXiv:2306.15595"

    def __post_init__(self):
        super().__post_init__()
        positive(scale=self.scale)

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns `1 / scale` everywhere."""
        return np.full_like(frequencies, 1 / self.scale)


@dataclasses.dataclass(frozen=True)
class NTKAware(FrequencyMap):
    """Raises the base, so that the slowest frequency is divided by the scale.

    `base' = base * scale ** (d / (d - 2))`, that is `f_r * scale ** (-2 r / (d - 2))`.

    Attributes:
        scale: how many times longer sequences may be than in training.

    References:
        bloc97 (2023), "NTK-aware scaled RoPE"; as `LlamaNTKScaledRotaryEmbedding` of
        jquesnelle/yarn@995db5b.
    """

    scale: float = 1.0

    title: ClassVar[str] = "NTK-aware"
    reference: ClassVar[str] = "bloc97 2023; Peng et al. 2023, arXiv:2309.00071"

    def __post_init__(self):
        super().__post_init__()
        positive(scale=self.scale)

    def check(self, pairs: int) -> None:
        """Raises ValueError for a single pair, where the exponent is undefined."""
        if pairs < 2:
            raise ValueError(f"{self.title} needs a rotated width of 4 or more.")

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns powers of the scale from 0 to -1."""
        return ntk_ratios(len(frequencies), float(self.scale))


def ntk_ratios(pairs: int, scale: Scale) -> Ratios:
    """Returns `scale ** (-r / (pairs - 1))` for pairs r = 0 .. pairs - 1."""
    exponents = -np.arange(pairs) / max(pairs - 1, 1)
    return scale ** beside(exponents, scale)


@dataclasses.dataclass(frozen=True)
class SuNTK(FrequencyMap):
    """Su's three readings of NTK-RoPE, which take base-10000 digits seriously.

    With m = 1 .. d/2 and scale k, frequency m is multiplied by
    `k ** (-2 (m - 1) / d)` ("old": base times k), `k ** (-2 m / d)` ("fixed"), or
    `exp(-a m ** exponent)` with `a = ln k / (d / 2) ** exponent` ("mixed").

    Attributes:
        scale: how many times longer sequences may be than in training, k.
        form: "old", "fixed" or "mixed". Mixed with exponent 1 is fixed, with exponent 0
            position interpolation.
        exponent: of the mixed form; 0.625 in the article, 0.75 in the code.

    References:
        Su (2023), spaces.ac.cn/archives/9675 and 9706; bojone/rerope@acfe788,
        `ntk_patch.py`.
    """

    scale: float = 1.0
    form: Literal["old", "fixed", "mixed"] = "mixed"
    exponent: float = 0.625

    title: ClassVar[str] = "NTK-RoPE (Su)"
    reference: ClassVar[str] = "Su 2023, spaces.ac.cn/archives/9706"

    def __post_init__(self):
        super().__post_init__()
        positive(scale=self.scale)
        not_negative(exponent=self.exponent)
        check_choice("form", self.form, ("old", "fixed", "mixed"))

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns the factors of the chosen form."""
        pairs = len(frequencies)
        m = np.arange(1, pairs + 1)
        if self.form == "old":
            return self.scale ** (-(m - 1) / pairs)
        exponent = 1.0 if self.form == "fixed" else self.exponent
        return np.exp(-math.log(self.scale) * (m / pairs) ** exponent)


@dataclasses.dataclass(frozen=True)
class Llama3Scaling(FrequencyMap):
    """Keeps fast frequencies, divides slow ones, and goes smoothly between.

    With wavelength w and trained length N: f if `w < N / high`, f / scale if
    `w > N / low`, else `(1 - t) f / scale + t f`, `t = (N / w - low) / (high - low)`.
    There is nothing between if high equals low, as in Llama 4 Scout.

    Attributes:
        scale: how many times longer sequences may be than in training.
        train_length: trained length N, in tokens.
        low: turns within N below which a frequency is divided.
        high: turns within N above which it is kept.

    References:
        Llama 3.1 (2024), reference code; as in transformers 5.24 ("llama3").
    """

    scale: float = 8.0
    train_length: int = 8192
    low: float = 1.0
    high: float = 4.0

    title: ClassVar[str] = "Llama-3 scaling"
    reference: ClassVar[str] = "Llama team 2024, arXiv:2407.21783"

    def __post_init__(self):
        super().__post_init__()
        positive(scale=self.scale, train_length=self.train_length, low=self.low)
        if self.high < self.low:
            raise ValueError(f"high={self.high} must be at least low={self.low}.")

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns 1, `1 / scale`, or a mean of both."""
        turns = frequencies * self.train_length / (2 * math.pi)
        kept = part_between(turns, self.low, self.high)
        return kept + (1 - kept) / self.scale


def part_between(
    turns: Float[np.ndarray, " R"], low: float, high: float
) -> Float[np.ndarray, " R"]:
    """Returns 0 below low, 1 from high on, and a line between; a step if they agree."""
    if high == low:
        return (turns >= high).astype(np.float64)
    return np.clip((turns - low) / (high - low), 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class HighestFrequencies(FrequencyMap):
    """Turns a part of the pairs, the fastest, and leaves the rest without position.

    Frequencies are those of the whole width, unlike `rotary_fraction`, which computes
    them over the rotated part.

    Attributes:
        fraction: part of the pairs that keep their frequency.

    References:
        Barbero et al. (2024), p-RoPE, arXiv:2410.06205; Gemma 4 and transformers 5.24
        ("proportional") use it with 0.25.
    """

    fraction: float = 0.75

    title: ClassVar[str] = "p-RoPE"
    reference: ClassVar[str] = "Barbero et al. 2024, arXiv:2410.06205"

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"fraction must be within [0, 1], got {self.fraction}.")

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns 1 for the fastest pairs and 0 for the others."""
        pairs = len(frequencies)
        kept = share_of(2 * pairs, self.fraction) // 2
        return (np.arange(pairs) < kept).astype(np.float64)


@dataclasses.dataclass(frozen=True)
class FullTurns(FrequencyMap):
    """Turns only pairs that complete a turn within the trained length.

    `f` if `2 pi / f <= train_length`, else 0.

    Attributes:
        train_length: trained length, in tokens.

    References:
        Chen et al. (2024), HoPE, arXiv:2410.21216.

    Departures:
        The exact rule of the paper for which components are kept was not verified
        against its text or code; this is the rule as secondary sources state it.
    """

    train_length: int = 512

    title: ClassVar[str] = "HoPE"
    reference: ClassVar[str] = "Chen et al. 2024, arXiv:2410.21216"

    def __post_init__(self):
        super().__post_init__()
        positive(train_length=self.train_length)

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns 1 for pairs that turn at least once, else 0."""
        return (2 * math.pi <= frequencies * self.train_length).astype(np.float64)
