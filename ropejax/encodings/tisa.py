"""TISA: a bias that is a sum of learned bumps along the offset.

What trained models make of absolute positions is mostly a function of the offset, flat
far away and bumpy near by. A few Gaussian bumps a head hold such a function in some
tens of numbers, need no table, and fade to nothing beyond what was trained.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.bias_forms import NarrowBias
from ropejax.encodings.choices import positive
from ropejax.encodings.relative_terms import relative_bias
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Params, Rng, Shaped

_NAMES = ("amplitudes", "sharpness", "centres")
_CENTRE_STD = 5.0
_AMPLITUDE = _SHARPNESS = 0.1
_RELATIVE_STD = 0.1


@dataclasses.dataclass(frozen=True)
class TISA(Encoding):
    """Adds bumps of each head along the offset to the scaled logits.

    `logits + sum_k a_kh exp(-|b_kh| (j - i - c_kh) ** 2)`, in nats, over `num_kernels`
    bumps k of amplitude a, sharpness b and centre c, all learned.

    Attributes:
        num_kernels: bumps a head, K.
        shared: True if all layers share one set of them.

    Raises:
        ValueError: if num_kernels is not positive.

    References:
        Wennberg and Henter (2021), "The case for translation-invariant self-attention
        in transformer-based language models", arXiv:2106.01950; the authors' module
        `Tisa` (its code was read, not the paper). Initial values are the code's:
        centres N(0, 5), amplitudes and sharpnesses N(0.1, 0.01).

    Departures:
        The code's offsets come out as `i - j - 1`; with centres drawn about 0 and
        learned, it is the same family of functions.
    """

    num_kernels: int = 5
    shared: bool = False

    title: ClassVar[str] = "TISA"
    summary: ClassVar[str] = "a few learned bumps along the offset, for each head"
    reference: ClassVar[str] = "Wennberg and Henter 2021, arXiv:2106.01950"

    def __post_init__(self):
        super().__post_init__()
        positive(num_kernels=self.num_kernels)

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns all parameters if shared, else nothing."""
        return self._init(rng, dims) if self.shared else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"amplitudes", "sharpness", "centres"}`, `[K, N]`, unless shared."""
        return {} if self.shared else self._init(rng, dims)

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns the sum of bumps."""
        numbers, function, _ = self.narrow_bias(params)
        return relative_bias(lambda offsets: function(numbers, offsets), query, key)

    def narrow_bias(self, params: Params) -> NarrowBias:
        """Returns the sum of bumps, of head and offset."""
        each = range(self.num_kernels)
        numbers = {
            f"{name}{k}": params[name][k].astype(jnp.float32)
            for name in _NAMES
            for k in each
        }

        def function(numbers, offsets):
            of = lambda name: [numbers[f"{name}{k}"] for k in each]
            return bumps(offsets, *map(of, _NAMES))

        return NarrowBias(numbers, function)

    def _init(self, rng, dims):
        shape = (self.num_kernels, dims.num_heads)
        amplitude, sharpness, centre = (
            jax.random.normal(one, shape, jnp.float32)
            for one in jax.random.split(rng, 3)
        )
        return {
            "amplitudes": _AMPLITUDE * (1 + _RELATIVE_STD * amplitude),
            "sharpness": _SHARPNESS * (1 + _RELATIVE_STD * sharpness),
            "centres": _CENTRE_STD * centre,
        }


def bumps(
    offsets: Shaped[Array, "#B *P"],
    amplitudes: Sequence[Float[Array, " N"]],
    sharpness: Sequence[Float[Array, " N"]],
    centres: Sequence[Float[Array, " N"]],
) -> Float[Array, "#B N *P"]:
    """Returns `sum_k a_k exp(-|b_k| (offset - c_k) ** 2)` of each head, float32.

    Args:
        offsets: key minus query position of any pairs, `[B, ...]`, in tokens.
        amplitudes: a of each bump, `[N]` of all heads, in nats.
        sharpness: b, over tokens squared; its sign does not matter.
        centres: c, in tokens.
    """
    offsets = offsets[:, None].astype(jnp.float32)
    shape = (1, -1) + (1,) * (offsets.ndim - 2)
    total = 0.0
    # Bump by bump: all at once would take K times the room of the logits.
    for a, b, c in zip(amplitudes, sharpness, centres, strict=True):
        a, b, c = (x.astype(jnp.float32).reshape(shape) for x in (a, b, c))
        total = total + a * jnp.exp(-jnp.abs(b) * (offsets - c) ** 2)
    return total
