"""KERPLE: kernels of distance with learned shape, one for each head.

Every negative of a conditionally positive definite kernel is a fair penalty on
distance. Two families have few enough parameters to learn: powers, of which ALiBi is
the linear case, and logarithms, which fall off ever more slowly and extrapolate best.
"""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.bias_forms import NarrowBias, narrow_params
from ropejax.encodings.choices import check_choice
from ropejax.encodings.held import held
from ropejax.encodings.relative_terms import relative_bias
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Logits, Params, Rng, Shaped

Kernel = Literal["log", "power"]
KERNELS = ("log", "power")

_LEAST = 0.01
_LARGEST_POWER = 2.0
_STEEPEST = {"log": 1e20, "power": 1e10}
"""At the greatest distance of int32, kernels stay finite and above hidden logits."""


@dataclasses.dataclass(frozen=True)
class Kerple(Encoding):
    """Adds a learned, non-positive kernel of distance to the scaled logits.

    Of the distance r, per head: "log" is `-p log(1 + a r)`, "power" is `-a r^p` with
    p up to 2. Both stay below 1e20 in "log", and a below 1e10 in "power".

    Parameters are held in their range where they are used, so the kernel is finite,
    non-positive and non-increasing whatever an optimizer did to them.

    Attributes:
        kernel: "log" or "power".

    Raises:
        ValueError: if the kernel is unknown.

    References:
        Chi et al., 2022, arXiv:2205.09921; chijames/KERPLE@73f1ee2,
        `megatron/mpu/layers.py`. There r1 and r2 are p and a of "log", a and p of
        "power".

    Departures:
        The official code writes parameters back into their range before each use. Here
        they are left alone and clamped at use; where one is out of range, only a
        gradient whose descent leads back into it passes, so training behaves alike.
        That happens in `prepare`, which the gradient of a whole layer reaches at once;
        such a rule has no forward-mode derivative.
    """

    kernel: Kernel = "log"

    title: ClassVar[str] = "KERPLE"
    summary: ClassVar[str] = "a learned logarithmic or power penalty on distance"
    reference: ClassVar[str] = "Chi et al. 2022, arXiv:2205.09921"

    def __post_init__(self):
        super().__post_init__()
        check_choice("kernel", self.kernel, KERNELS)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"a", "p"}`, `[N]`, uniform in 0 .. 1 and 0 .. 2."""
        return _init_kernel(rng, dims)

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the parameters, held in their range."""
        return {
            name: held(values, _LEAST, self._largest(name))
            for name, values in layer.items()
        }

    def _largest(self, name: str) -> float:
        power = name == "p" and self.kernel == "power"
        return _LARGEST_POWER if power else _STEEPEST[self.kernel]

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"] | None:
        """Returns the kernel."""
        numbers, function, _ = self.narrow_bias(params)
        return relative_bias(lambda r: function(numbers, r), query, key)

    def narrow_bias(self, params: Params) -> NarrowBias:
        """Returns the kernel, of head and offset."""
        kernel = log_kernel if self.kernel == "log" else power_kernel
        return NarrowBias(
            narrow_params(params, "a", "p"),
            lambda numbers, r: kernel(r, numbers["a"], numbers["p"]),
        )


@dataclasses.dataclass(frozen=True)
class WeightedKerple(Kerple):
    """Multiplies the scaled logits by a learned kernel of distance, and adds another.

    `logits * exp(-a' r^p') + kernel(r)`, kernel as in `Kerple`, with parameters of its
    own.

    Attributes:
        kernel: "log" or "power", for the kernel that is added.

    References:
        chijames/KERPLE@73f1ee2, `ParallelKerplePower` with a weight kernel.

    Departures:
        As for `Kerple`. The official code has it beside the power kernel only.
    """

    kernel: Kernel = "power"

    title: ClassVar[str] = "KERPLE with weights"
    summary: ClassVar[str] = "logits times a kernel of distance, plus another"

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"a", "p", "weight_a", "weight_p"}`, `[N]`."""
        rng_bias, rng_weight = jax.random.split(rng)
        weight = _init_kernel(rng_weight, dims)
        return _init_kernel(rng_bias, dims) | {
            f"weight_{name}": values for name, values in weight.items()
        }

    @property
    def has_bias(self) -> bool:
        """False: the kernel is added in `logits`, after the weights."""
        return False

    def _largest(self, name: str) -> float:
        if name == "weight_p":
            return _LARGEST_POWER
        return _STEEPEST["power"] if name == "weight_a" else super()._largest(name)

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> None:
        """Returns nothing: the weights come first, in `logits`."""
        return

    def logits(
        self, params: Params, logits: Logits, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns logits times the weight kernel, plus the kernel."""
        a, p = params["weight_a"], params["weight_p"]
        decay = relative_bias(lambda r: power_kernel(r, a, p), query, key)
        return logits * jnp.exp(decay) + super().bias(params, query, key, 1.0)


def _init_kernel(rng, dims):
    rng_a, rng_p = jax.random.split(rng)
    heads = (dims.num_heads,)
    return {
        "a": jax.random.uniform(rng_a, heads, jnp.float32),
        "p": jax.random.uniform(rng_p, heads, jnp.float32, maxval=2.0),
    }


def log_kernel(
    relative: Shaped[Array, "#B *P"], a: Float[Array, " N"], p: Float[Array, " N"]
) -> Float[Array, "#B N *P"]:
    """Returns `-p log(1 + a |r|)` of each head, `[B, N, ...]`.

    Args:
        relative: key minus query position of any pairs, `[B, ...]`.
        a: inside the logarithm, positive.
        p: in front of it, positive.
    """
    distance = jnp.abs(relative[:, None].astype(jnp.float32))
    a, p = (_heads(x, distance.ndim) for x in (a, p))
    return -p * jnp.log1p(a * distance)


def power_kernel(
    relative: Shaped[Array, "#B *P"], a: Float[Array, " N"], p: Float[Array, " N"]
) -> Float[Array, "#B N *P"]:
    """Returns `-a |r|^p` of each head, `[B, N, ...]`.

    Args:
        relative: key minus query position of any pairs, `[B, ...]`.
        a: factor, positive.
        p: exponent, positive.
    """
    distance = jnp.abs(relative[:, None].astype(jnp.float32))
    a, p = (_heads(x, distance.ndim) for x in (a, p))
    apart = distance > 0
    power = jnp.where(apart, distance, 1.0) ** p
    return -a * jnp.where(apart, power, 0.0)


def _heads(values, ndim):
    return values.astype(jnp.float32).reshape((1, -1) + (1,) * (ndim - 2))
