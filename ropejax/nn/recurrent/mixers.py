"""Linear recurrences that stand where a layer has attention.

A mixer takes the hidden states of a row and gives each token what came before it. What
is around it, residual, norm and MLP, is the Transformer's own. Settings are frozen
values; `make` turns them into a Flax module.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings import Dims
from ropejax.encodings.convolution import causal_convolution
from ropejax.nn.parameters import projection_init
from ropejax.settings import Settings
from ropejax.tokens import tokens
from ropejax.typing import Rng

Mixer = Callable[[Float[Array, "B L D"]], Float[Array, "B L D"]]
"""A Flax module; no token's output depends on a later one."""


@dataclasses.dataclass(frozen=True)
class MixerSettings(Settings):
    """Settings of a mixer; sizes are the model's."""

    title: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    has_heads: ClassVar[bool] = False
    """Whether the number of heads is of meaning."""

    def check(self, dims: Dims) -> None:
        """Raises ValueError where a model of these sizes cannot use it."""

    def operations(self, dims: Dims) -> float:
        """Returns the floating-point operations of a token, forward, in a layer.

        Args:
            dims: the model's sizes.
        """
        raise NotImplementedError

    def make(self, dims: Dims, *, dtype, rngs: nnx.Rngs) -> Mixer:
        """Returns the mixer with initial parameters.

        Args:
            dims: the model's sizes.
            dtype: dtype of projections; recurrences and parameters are float32.
            rngs: keys for the initial parameters.
        """
        raise NotImplementedError


def projection(rows: int, columns: int, *, dtype, rngs: nnx.Rngs) -> nnx.Linear:
    """Returns a projection without bias."""
    return nnx.Linear(
        rows,
        columns,
        use_bias=False,
        kernel_init=projection_init,
        dtype=dtype,
        rngs=rngs,
    )


class SiLUConvolution(nnx.Module):
    """SiLU of a causal convolution over a few tokens, channel by channel.

    Taps start uniform within `1 / sqrt(width)`, as PyTorch's do, a bias at zero.

    Args:
        channels: how many.
        width: tokens that count, the token itself included; 0: the SiLU alone.
        bias: whether a bias a channel is added.
        rngs: keys for the initial parameters.
    """

    def __init__(
        self, channels: int, width: int, *, bias: bool = False, rngs: nnx.Rngs
    ):
        self.taps, self.bias = None, None
        if width:
            taps = uniform(rngs.params(), (width, channels), width**-0.5)
            self.taps = nnx.data(nnx.Param(taps))
        if width and bias:
            self.bias = nnx.data(nnx.Param(jnp.zeros(channels, jnp.float32)))

    def __call__(self, x: Float[Array, "B L C"]) -> Float[Array, "B L C"]:
        """Returns what the tokens up to each make, float32."""
        x = x.astype(jnp.float32)
        if self.taps is not None:
            where = tokens(x.shape[1])
            x, _ = causal_convolution(x, self.taps[...], where, type(self).__name__)
        if self.bias is not None:
            x = x + self.bias[...]
        return jax.nn.silu(x)


def uniform(rng: Rng, shape: tuple[int, ...], bound: float) -> Float[Array, "..."]:
    """Returns parameters that are uniform within a bound, float32."""
    return jax.random.uniform(rng, shape, jnp.float32, -bound, bound)


def initial_steps(rng: Rng, count: int) -> Float[Array, " count"]:
    """Returns biases whose softplus is log-uniform in [0.001, 0.1], as Mamba's are."""
    low, high = math.log(1e-3), math.log(0.1)
    step = jnp.exp(jax.random.uniform(rng, (count,), jnp.float32, low, high))
    return step + jnp.log(-jnp.expm1(-step))  # the inverse of softplus
