"""NTK by parts and YaRN: each frequency is treated by how often it turns in training.

A pair that turned many times within the trained length has seen all its angles and is
left alone; one that did not turn once is interpolated; between lies a ramp. YaRN adds a
factor on the logits, since longer sequences spread attention.
"""

import dataclasses
import math
from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.encodings.choices import check_choice, not_negative, positive
from ropejax.encodings.frequency_map import (
    FrequencyMap,
    Ratios,
    Scale,
    beside,
    current_scale,
)
from ropejax.encodings.interpolation import ntk_ratios, part_between

Form = Literal["code", "paper"]


def kept_by_parts(
    frequencies: Float[np.ndarray, " R"],
    max_wavelength: float,
    train_length: int,
    fast: float,
    slow: float,
    *,
    form: Form = "code",
    truncate: bool = True,
) -> Float[np.ndarray, " R"]:
    """Returns how much of each frequency is kept: 1 for fast pairs, 0 for slow ones.

    With r the turns of a pair within the trained length, the paper's form is
    `clip((r - slow) / (fast - slow), 0, 1)`. The form of all released code is linear in
    the pair's number instead, between those that turn `fast` and `slow` times; the two
    differ by much in the middle. Where `fast` equals `slow` (Kimi K2 has 1 for both) a
    pair is kept or not, but for rounding of the ends in the code's form.

    Args:
        frequencies: radians a token, `[R]`, highest first.
        max_wavelength: the base they were made from.
        train_length: trained length, in tokens.
        fast: turns from which a frequency is kept (beta).
        slow: turns up to which it is interpolated (alpha).
        form: "code" or "paper".
        truncate: round the ends of the ramp outwards to whole pairs ("code" only).

    Returns:
        Parts in [0, 1], `[R]`, not increasing.

    Departures:
        Released code holds each end of its ramp on one side only. Where the whole ramp
        lies before the first pair (trained lengths of a few tokens) or far behind the
        last one (small bases), its ends change places, and it keeps all where nothing
        should be kept, or nothing where all should be. Here such ramps give 0 and 1
        throughout, as the paper's form does.
    """
    pairs = len(frequencies)
    if form == "paper":
        return part_between(frequencies * train_length / (2 * math.pi), slow, fast)

    def pair_turning(times: float) -> float:
        ratio = train_length / (times * 2 * math.pi)
        return pairs * math.log(ratio) / math.log(max_wavelength)

    start, end = pair_turning(fast), pair_turning(slow)
    if truncate:
        start, end = math.floor(start), math.ceil(end)
    last = 2 * pairs - 1
    if end <= 0:  # no pair turns more than `slow` times
        return np.zeros(pairs)
    if start >= last:  # all turn more than `fast` times
        return np.ones(pairs)
    start, end = max(start, 0), min(end, last)
    if start == end:
        end += 0.001
    return 1 - np.clip((np.arange(pairs) - start) / (end - start), 0.0, 1.0)


def interpolated(kept: Float[np.ndarray, " R"], scale: Scale) -> Ratios:
    """Returns `kept + (1 - kept) / scale`."""
    kept = beside(kept, scale)
    return kept + (1 - kept) / scale


def default_factor(
    scale: float | Float[Array, "*B"], weight: float = 1.0
) -> float | Float[Array, "*B"]:
    """Returns YaRN's `0.1 weight ln(scale) + 1`, and 1 for scales up to 1."""
    if isinstance(scale, float):
        return 0.1 * weight * math.log(max(scale, 1.0)) + 1
    return 0.1 * weight * jnp.log(jnp.maximum(scale, 1.0)) + 1


@dataclasses.dataclass(frozen=True)
class ByParts(FrequencyMap):
    """NTK by parts: keeps fast frequencies, divides slow ones by the scale.

    `f (kept + (1 - kept) / scale)`, with `kept_by_parts`.

    Attributes:
        scale: how many times longer sequences may be than in training, s; ignored where
            `dynamic`.
        train_length: trained length N, in tokens.
        beta_fast: turns within N from which a frequency is kept.
        beta_slow: turns within N up to which it is divided.
        form: the ramp of the "code" (linear in the pair) or of the "paper" (in turns).
        truncate: round the ends of the code's ramp to whole pairs; gpt-oss does not.
        kept_weight: multiplies the kept part (`extrapolation_factor` in the code).
        dynamic: use the current length over N, at least 1, as the scale.

    References:
        Peng et al. (2023), YaRN, arXiv:2309.00071, section 3.2;
        jquesnelle/yarn@995db5b.

    Departures:
        As for `kept_by_parts`, at extreme trained lengths only.
    """

    scale: float = 1.0
    train_length: int = 2048
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    form: Form = "code"
    truncate: bool = True
    kept_weight: float = 1.0
    dynamic: bool = False

    title: ClassVar[str] = "NTK by parts"
    reference: ClassVar[str] = "Peng et al. 2023, arXiv:2309.00071"

    def __post_init__(self):
        super().__post_init__()
        check_choice("form", self.form, ("code", "paper"))
        positive(scale=self.scale, train_length=self.train_length)
        positive(beta_slow=self.beta_slow)
        not_negative(kept_weight=self.kept_weight)
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"beta_fast={self.beta_fast} must be at least "
                f"beta_slow={self.beta_slow}."
            )
        if self.dynamic and self.scale != 1:
            raise ValueError(
                f"dynamic takes the scale from the current length; drop {self.scale=}."
            )

    @property
    def length_dependent(self) -> bool:
        """True if the scale is the current one."""
        return self.dynamic

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns values between `1 / scale` and 1."""
        kept = kept_by_parts(
            frequencies,
            max_wavelength,
            self.train_length,
            self.beta_fast,
            self.beta_slow,
            form=self.form,
            truncate=self.truncate,
        )
        return interpolated(kept * self.kept_weight, self._scale(length))

    def _scale(self, length) -> Scale:
        if self.dynamic:
            return current_scale(length, self.train_length)
        return float(self.scale)


@dataclasses.dataclass(frozen=True)
class YaRNScaling(ByParts):
    """YaRN: NTK by parts, and a factor on rotated queries and keys.

    The factor is `attention_factor` if given; else `m(mscale) / m(mscale_all_dim)` if
    those are given, with `m(w) = 0.1 w ln(scale) + 1`; else `m(1)`. Exactly 1 for
    scales up to 1. Logits get its square; channels that are not rotated get none of it.

    Attributes:
        attention_factor: the factor itself.
        mscale: weight of the logarithm in the numerator (DeepSeek).
        mscale_all_dim: weight in the denominator (DeepSeek).

    Raises:
        ValueError: if only one of `mscale` and `mscale_all_dim` is given, or they
            contradict `attention_factor`.

    References:
        Peng et al. (2023), arXiv:2309.00071, section 3.4; jquesnelle/yarn@995db5b;
        transformers 5.24 ("yarn") for mscale, mscale_all_dim and truncate.

    Departures:
        As for `kept_by_parts`, at extreme trained lengths only, in the default form
        "code". The paper states its ramp in turns ("paper").
    """

    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    title: ClassVar[str] = "YaRN"

    def __post_init__(self):
        super().__post_init__()
        if (self.mscale is None) != (self.mscale_all_dim is None):
            raise ValueError("give mscale and mscale_all_dim both, or neither.")
        if self.mscale is not None:
            not_negative(mscale=self.mscale, mscale_all_dim=self.mscale_all_dim)
        if self.attention_factor is not None:
            positive(attention_factor=self.attention_factor)
            if self.mscale is not None:
                raise ValueError("attention_factor would override mscale; drop one.")

    def factor(self, length=None) -> float | Float[Array, " B"]:
        """Returns the factor on each side."""
        if self.attention_factor is not None:
            return float(self.attention_factor)
        scale = self._scale(length)
        if self.dynamic:
            scale = scale[:, 0]
        if self.mscale is None:
            return default_factor(scale)
        below = default_factor(scale, self.mscale_all_dim)
        return default_factor(scale, self.mscale) / below

    def softmax_factor(self) -> float:
        """Returns by what DeepSeek multiplies the softmax scale besides.

        `(0.1 mscale_all_dim ln(scale) + 1) ** 2`; 1 without `mscale_all_dim`. It acts
        on all channels, so it belongs to the scale given to attention.
        """
        return default_factor(float(self.scale), self.mscale_all_dim or 0.0) ** 2


@dataclasses.dataclass(frozen=True)
class ThreeBands(FrequencyMap):
    """The older NTK by parts: interpolation, NTK and no change, by two ramps.

    Slow pairs are interpolated, middle ones scaled by NTK, fast ones kept; the first
    ramp runs over pairs that turn 1.25 to 0.75 times, the second over 16 to 2 times.

    Attributes:
        scale: how many times longer sequences may be than in training; ignored where
            `dynamic`.
        train_length: trained length, in tokens.
        ntk_weight: multiplies the NTK part.
        kept_weight: multiplies the kept part.
        dynamic: use the current length over the trained one, at least 1, as the scale.

    References:
        `LlamaPartNTKScaledRotaryEmbedding` of jquesnelle/yarn@995db5b.

    Departures:
        As for `kept_by_parts`, at extreme trained lengths only.
    """

    scale: float = 1.0
    train_length: int = 2048
    ntk_weight: float = 1.0
    kept_weight: float = 1.0
    dynamic: bool = False

    title: ClassVar[str] = "NTK by parts (three bands)"
    reference: ClassVar[str] = "jquesnelle/yarn"

    def __post_init__(self):
        super().__post_init__()
        positive(scale=self.scale, train_length=self.train_length)
        not_negative(ntk_weight=self.ntk_weight, kept_weight=self.kept_weight)
        if self.dynamic and self.scale != 1:
            raise ValueError(
                f"dynamic takes the scale from the current length; drop {self.scale=}."
            )

    @property
    def length_dependent(self) -> bool:
        """True if the scale is the current one."""
        return self.dynamic

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns values between `1 / scale` and 1."""
        scale = float(self.scale)
        if self.dynamic:
            scale = current_scale(length, self.train_length)
        known = (frequencies, max_wavelength, self.train_length)
        by_ntk = beside(kept_by_parts(*known, 1.25, 0.75) * self.ntk_weight, scale)
        kept = beside(kept_by_parts(*known, 16.0, 2.0) * self.kept_weight, scale)
        mixed = (1 - by_ntk) / scale + by_ntk * ntk_ratios(len(frequencies), scale)
        return mixed * (1 - kept) + kept
