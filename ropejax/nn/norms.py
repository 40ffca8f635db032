"""What normalizes hidden states: by mean and variance, or by the mean square alone."""

import dataclasses
from types import MappingProxyType
from typing import ClassVar

import jax.numpy as jnp
from flax import nnx

from ropejax.encodings.choices import positive
from ropejax.settings import Settings, check_finite


@dataclasses.dataclass(frozen=True)
class Norm(Settings):
    """What normalizes hidden states, channels of a token together; methods derive.

    Attributes:
        epsilon: added to the variance, or the mean square.

    Raises:
        ValueError: if `epsilon` is not positive.
    """

    epsilon: float = 1e-6

    summary: ClassVar[str]

    def __post_init__(self):
        check_finite(self)
        positive(epsilon=self.epsilon)

    def make(self, width: int, *, dtype=jnp.float32, rngs: nnx.Rngs) -> nnx.Module:
        """Returns the module of one norm, `[..., width]` to the same.

        Args:
            width: channels.
            dtype: dtype of the result; statistics and parameters are float32.
            rngs: keys for the initial parameters.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make.")


@dataclasses.dataclass(frozen=True)
class LayerNorm(Norm):
    """`g (x - mean(x)) / sqrt(var(x) + epsilon) + b`, g and b learned.

    Attributes:
        epsilon: added to the variance.
        gain: whether there is g.
        bias: whether there is b (MPT has none; OLMo, the first, neither).

    References:
        Ba et al. 2016, "Layer Normalization", arXiv 1607.06450.
    """

    gain: bool = True
    bias: bool = True

    summary: ClassVar[str] = "mean zero and variance one, with gains and offsets"

    def make(self, width: int, *, dtype=jnp.float32, rngs: nnx.Rngs) -> nnx.Module:
        """See `Norm.make`."""
        return nnx.LayerNorm(
            width,
            epsilon=self.epsilon,
            use_scale=self.gain,
            use_bias=self.bias,
            dtype=dtype,
            rngs=rngs,
        )


@dataclasses.dataclass(frozen=True)
class RMSNorm(Norm):
    """`g x / sqrt(mean(x^2) + epsilon)`, g learned and one at the start.

    Attributes:
        epsilon: added to the mean square; 1e-5 or 1e-6 in language models.

    References:
        Zhang and Sennrich 2019, arXiv 1910.07467; in Llama, Touvron et al. 2023, arXiv
        2302.13971.

    Departures:
        Gemma keeps `g - 1`, so that weight decay draws g to one. Here g itself is kept.
    """

    summary: ClassVar[str] = "root mean square of one, with gains (Llama)"

    def make(self, width: int, *, dtype=jnp.float32, rngs: nnx.Rngs) -> nnx.Module:
        """See `Norm.make`."""
        return nnx.RMSNorm(width, epsilon=self.epsilon, dtype=dtype, rngs=rngs)


NORMS = MappingProxyType({"layer": LayerNorm, "rms": RMSNorm})
"""Name in configs -> class of settings."""
