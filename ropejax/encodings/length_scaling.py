"""RoPE extensions that follow the current length: dynamic NTK and its kin, LongRoPE.

Short sequences keep the trained frequencies, longer ones get what their length needs.
The length is that of each sequence, so all keys of one turn by the same frequencies:
caches must hold unrotated keys, and a query near the start sees other angles when
tokens are appended (`length_dependent`). Segments of a packed row are sequences of
their own: a token turns by the length of its segment.

With a cache of unrotated keys, one layer's step is the last row of a full pass. A model
of several layers differs from its full pass: appended tokens change the earlier rows of
the first layer, hence the second layer's keys, which the cache keeps as they were.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.encodings.choices import check_choice, not_negative, positive
from ropejax.encodings.frequency_map import FrequencyMap, Ratios, current_scale
from ropejax.encodings.interpolation import ntk_ratios


@dataclasses.dataclass(frozen=True)
class DynamicInterpolation(FrequencyMap):
    """Position interpolation by the current length over the trained one.

    Attributes:
        train_length: trained length N, in tokens.

    References:
        emozilla (2023); `LlamaDynamicScaledRotaryEmbedding` of jquesnelle/yarn@995db5b.
    """

    train_length: int = 512

    title: ClassVar[str] = "dynamic interpolation"
    reference: ClassVar[str] = "emozilla 2023; Peng et al. 2023, arXiv:2309.00071"
    length_dependent: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(train_length=self.train_length)

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns `1 / max(1, L / N)`, `[B, R]`."""
        scale = current_scale(length, self.train_length)
        return jnp.broadcast_to(1 / scale, (scale.shape[0], len(frequencies)))


@dataclasses.dataclass(frozen=True)
class DynamicNTK(FrequencyMap):
    """NTK-aware scaling by a scale that grows with the current length L.

    `base' = base * (scale L / N - (scale - 1)) ** (d / (d - 2))` for L > N, else base.

    Attributes:
        scale: how fast the base grows with the length (alpha, or factor).
        train_length: trained length N, in tokens.

    References:
        emozilla (2023); jquesnelle/yarn@995db5b; transformers 5.24 ("dynamic").

    Departures:
        L counts tokens by their index where transformers takes the greatest position.
    """

    scale: float = 1.0
    train_length: int = 512

    title: ClassVar[str] = "dynamic NTK"
    reference: ClassVar[str] = "emozilla 2023; Peng et al. 2023, arXiv:2309.00071"
    length_dependent: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(scale=self.scale, train_length=self.train_length)

    def check(self, pairs: int) -> None:
        """Raises ValueError for a single pair, where the exponent is undefined."""
        if pairs < 2:
            raise ValueError(f"{self.title} needs a rotated width of 4 or more.")

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns the NTK ratios of the current scale, `[B, R]`."""
        scale = self.scale * current_scale(length, self.train_length) - (self.scale - 1)
        return ntk_ratios(len(frequencies), scale)


@dataclasses.dataclass(frozen=True)
class LongRoPEScaling(FrequencyMap):
    """Divides each frequency by a factor of its own, found by search.

    `f_r / long_factors[r]` for sequences longer than N, `f_r / short_factors[r]` for
    others; rotated queries and keys are multiplied by `sqrt(1 + ln s / ln N)`.

    Attributes:
        long_factors: one a pair; all 1 if None.
        short_factors: one a pair; all 1 if None.
        train_length: trained length N, in tokens.
        scale: extended length over N, s; enters the factor only.
        attention_factor: that factor itself, if given.
        magnitude: its rule, "longrope" as above or "yarn", `0.1 ln s + 1`.
        interpolate: move from 1 to `long_factors` with the length L,
            `1 + (factor - 1) (L / N - 1) / (s - 1)`, rather than at once beyond N. The
            factor on queries and keys then follows L too.
        keep_first: tokens at positions below this keep the original rotation.

    Raises:
        ValueError: if factors are not one a pair (on `check`) or not positive, or
            another setting is out of range.

    References:
        Ding et al. (2024), LongRoPE, arXiv:2402.13753; microsoft/LongRoPE@3a04600;
        transformers 5.24 ("longrope").

    Departures:
        Tokens kept by `keep_first` are not multiplied by the factor, as in the code.
        For `interpolate` lengths up to N count as N, where the code would extrapolate.
    """

    long_factors: Sequence[float] | None = None
    short_factors: Sequence[float] | None = None
    train_length: int = 512
    scale: float = 1.0
    attention_factor: float | None = None
    magnitude: Literal["longrope", "yarn"] = "longrope"
    interpolate: bool = False
    keep_first: int = 0

    title: ClassVar[str] = "LongRoPE"
    reference: ClassVar[str] = "Ding et al. 2024, arXiv:2402.13753"
    length_dependent: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        check_choice("magnitude", self.magnitude, ("longrope", "yarn"))
        not_negative(keep_first=self.keep_first)
        positive(scale=self.scale, train_length=self.train_length)
        if self.train_length <= 1:
            raise ValueError(
                f"train_length must exceed 1, got {self.train_length}: the factor "
                "divides by its logarithm; give the trained length in tokens."
            )
        for name in ("long_factors", "short_factors"):
            factors = getattr(self, name)
            if factors is not None:
                object.__setattr__(self, name, tuple(float(x) for x in factors))
                positive(**{f"{name}[{r}]": x for r, x in enumerate(factors)})
        if self.attention_factor is not None:
            positive(attention_factor=self.attention_factor)
        if self.interpolate and (self.scale <= 1 or self.short_factors is not None):
            raise ValueError(
                "interpolate needs a scale above 1 and no short_factors (lengths up to "
                f"train_length keep all frequencies), got scale={self.scale}."
            )

    def check(self, pairs: int) -> None:
        """Raises ValueError if factors are not one a pair."""
        for name in ("long_factors", "short_factors"):
            factors = getattr(self, name)
            if factors is not None and len(factors) != pairs:
                raise ValueError(
                    f"{name} must be one for each of {pairs} pairs, got {len(factors)}."
                )

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns one over the factors in force, `[B, R]`."""
        ones = np.ones_like(frequencies)
        long, short = (
            jnp.asarray(ones if factors is None else factors, jnp.float32)[None]
            for factors in (self.long_factors, self.short_factors)
        )
        if self.interpolate:
            grown = current_scale(length, self.train_length) - 1
            return 1 / (1 + (long - 1) * (grown / (self.scale - 1)))
        return jnp.where((length > self.train_length)[:, None], 1 / long, 1 / short)

    def factor(self, length=None) -> float | Float[Array, " B"]:
        """Returns the factor on each side."""
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.interpolate:
            log_scale = jnp.log(current_scale(length, self.train_length)[:, 0])
            root = jnp.sqrt
        else:
            log_scale = math.log(max(self.scale, 1.0))
            root = math.sqrt
        if self.magnitude == "yarn":
            return 0.1 * log_scale + 1
        return root(1 + log_scale / math.log(self.train_length))


@dataclasses.dataclass(frozen=True)
class DualChunkFactor(FrequencyMap):
    """The factor of Dual Chunk Attention's code: `0.05 ln(L / N) + 1` beyond N.

    Attributes:
        train_length: trained length N, in tokens.

    References:
        HKUNLP/ChunkLlama@2add4d7; the paper's results are without it.
    """

    train_length: int = 512

    title: ClassVar[str] = "length factor"
    reference: ClassVar[str] = "HKUNLP/ChunkLlama"
    length_dependent: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(train_length=self.train_length)

    def ratios(self, frequencies, max_wavelength, length=None) -> Ratios:
        """Returns ones, `[1, R]`."""
        return jnp.ones((1, len(frequencies)), jnp.float32)

    def factor(self, length=None) -> Float[Array, " B"]:
        """Returns the factor on each side, `[B]`."""
        return 0.05 * jnp.log(current_scale(length, self.train_length)[:, 0]) + 1
