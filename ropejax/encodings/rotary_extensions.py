"""RoPE with changed frequencies, each extension under its own name.

Each class is `Rotary` with one frequency map, and has the same parameters, so a model
trained under plain RoPE runs under any of them. What the settings mean is said at the
map. Defaults suit sequences trained to 40 tokens, the setting of Ruoss et al. (2023),
and tested on four times as many.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.interpolation import (
    FullTurns,
    HighestFrequencies,
    Llama3Scaling,
    NTKAware,
    PositionInterpolation,
    SuNTK,
)
from ropejax.encodings.length_scaling import DynamicNTK, LongRoPEScaling
from ropejax.encodings.rotary import RotaryAttention
from ropejax.encodings.yarn_map import ByParts, Form, YaRNScaling


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterpolatedRoPE(RotaryAttention):
    """Position interpolation: see `PositionInterpolation`."""

    scale: float = 4.0

    title: ClassVar[str] = "Position interpolation"
    summary: ClassVar[str] = "RoPE with all frequencies divided by a scale"
    reference: ClassVar[str] = PositionInterpolation.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """All divided by the scale."""
        return PositionInterpolation(self.scale)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NTKRoPE(RotaryAttention):
    """NTK-aware RoPE: see `NTKAware`."""

    scale: float = 4.0

    title: ClassVar[str] = "NTK-aware RoPE"
    summary: ClassVar[str] = "RoPE with a raised base"
    reference: ClassVar[str] = NTKAware.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """Of a raised base."""
        return NTKAware(self.scale)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuNTKRoPE(RotaryAttention):
    """NTK-RoPE in Su's forms, old, fixed and mixed: see `SuNTK`."""

    scale: float = 4.0
    form: Literal["old", "fixed", "mixed"] = "mixed"
    exponent: float = 0.625

    title: ClassVar[str] = "NTK-RoPE (Su)"
    summary: ClassVar[str] = "RoPE with frequencies scaled digit by digit"
    reference: ClassVar[str] = SuNTK.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """By the chosen form."""
        return SuNTK(self.scale, self.form, self.exponent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NTKByPartsRoPE(RotaryAttention):
    """NTK by parts, in the code's or the paper's form: see `ByParts`."""

    scale: float = 4.0
    train_length: int = 40
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    form: Form = "code"
    truncate: bool = True

    title: ClassVar[str] = "NTK by parts"
    summary: ClassVar[str] = "RoPE with only the slow frequencies divided by a scale"
    reference: ClassVar[str] = ByParts.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """Kept or divided, by how often they turn."""
        return ByParts(
            scale=self.scale,
            train_length=self.train_length,
            beta_fast=self.beta_fast,
            beta_slow=self.beta_slow,
            form=self.form,
            truncate=self.truncate,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class YaRN(RotaryAttention):
    """YaRN: NTK by parts and a factor on the logits; see `YaRNScaling`."""

    scale: float = 4.0
    train_length: int = 40
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    form: Form = "code"
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    title: ClassVar[str] = "YaRN"
    summary: ClassVar[str] = "NTK by parts with a factor on the logits"
    reference: ClassVar[str] = YaRNScaling.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """Kept or divided, by how often they turn; and the factor."""
        return YaRNScaling(
            scale=self.scale,
            train_length=self.train_length,
            beta_fast=self.beta_fast,
            beta_slow=self.beta_slow,
            form=self.form,
            truncate=self.truncate,
            attention_factor=self.attention_factor,
            mscale=self.mscale,
            mscale_all_dim=self.mscale_all_dim,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicYaRN(RotaryAttention):
    """YaRN by the current length over the trained one; see `YaRNScaling`."""

    train_length: int = 40
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    form: Form = "code"
    truncate: bool = True

    title: ClassVar[str] = "Dynamic YaRN"
    summary: ClassVar[str] = "YaRN by the current length"
    reference: ClassVar[str] = YaRNScaling.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """Kept or divided by the current scale."""
        return YaRNScaling(
            train_length=self.train_length,
            beta_fast=self.beta_fast,
            beta_slow=self.beta_slow,
            form=self.form,
            truncate=self.truncate,
            dynamic=True,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicNTKRoPE(RotaryAttention):
    """Dynamic NTK: a base that grows with the current length; see `DynamicNTK`."""

    scale: float = 1.0
    train_length: int = 40

    title: ClassVar[str] = "Dynamic NTK"
    summary: ClassVar[str] = "RoPE with a base that grows with the current length"
    reference: ClassVar[str] = DynamicNTK.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """Of a base that grows."""
        return DynamicNTK(self.scale, self.train_length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongRoPE(RotaryAttention):
    """LongRoPE: each frequency has a divisor of its own; see `LongRoPEScaling`.

    Without factors it is plain RoPE with LongRoPE's factor on the logits.
    """

    long_factors: Sequence[float] | None = None
    short_factors: Sequence[float] | None = None
    train_length: int = 40
    scale: float = 4.0
    attention_factor: float | None = None
    magnitude: Literal["longrope", "yarn"] = "longrope"
    interpolate: bool = False
    keep_first: int = 0

    title: ClassVar[str] = "LongRoPE"
    summary: ClassVar[str] = "RoPE with a searched divisor for each frequency"
    reference: ClassVar[str] = LongRoPEScaling.reference

    def __post_init__(self):
        """Makes tuples of lists, so that settings stay hashable."""
        for name in ("long_factors", "short_factors"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))
        super().__post_init__()

    @property
    def frequencies(self) -> FrequencyMap:
        """Divided by the factors in force."""
        return LongRoPEScaling(
            long_factors=self.long_factors,
            short_factors=self.short_factors,
            train_length=self.train_length,
            scale=self.scale,
            attention_factor=self.attention_factor,
            magnitude=self.magnitude,
            interpolate=self.interpolate,
            keep_first=self.keep_first,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3RoPE(RotaryAttention):
    """Llama 3's RoPE: slow frequencies divided, fast ones kept; see `Llama3Scaling`."""

    scale: float = 8.0
    train_length: int = 40
    low: float = 1.0
    high: float = 4.0

    title: ClassVar[str] = "Llama-3 RoPE"
    summary: ClassVar[str] = "RoPE with slow frequencies divided, smoothly"
    reference: ClassVar[str] = Llama3Scaling.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """Kept or divided, by wavelength."""
        return Llama3Scaling(self.scale, self.train_length, self.low, self.high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PRoPE(RotaryAttention):
    """p-RoPE: only the fastest pairs turn; see `HighestFrequencies`."""

    fraction: float = 0.75

    title: ClassVar[str] = "p-RoPE"
    summary: ClassVar[str] = "RoPE on the fastest part of the pairs"
    reference: ClassVar[str] = HighestFrequencies.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """The fastest ones, and zeros."""
        return HighestFrequencies(self.fraction)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HoPE(RotaryAttention):
    """HoPE: only pairs that turn fully in training turn; see `FullTurns`.

    The cut rule is from secondary sources and not verified against the paper.
    """

    train_length: int = 40

    title: ClassVar[str] = "HoPE (high frequency)"
    summary: ClassVar[str] = "RoPE on pairs that complete a turn in training"
    reference: ClassVar[str] = FullTurns.reference

    @property
    def frequencies(self) -> FrequencyMap:
        """Those of full turns, and zeros."""
        return FullTurns(self.train_length)
