"""Mamba: a diagonal linear recurrence whose gates read the token, and a gate on it."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings import Dims
from ropejax.encodings.choices import not_negative, positive
from ropejax.nn.recurrent.mixers import (
    MixerSettings,
    SiLUConvolution,
    initial_steps,
    projection,
    uniform,
)
from ropejax.nn.recurrent.selective_scan import selective_scan


@dataclasses.dataclass(frozen=True)
class Mamba(MixerSettings):
    """The selective state space of Mamba (S6), in place of attention.

    `u = silu(conv(W_u x) + b)`; for each of its channels a state of several numbers,
    `h_t = a_t h_{t-1} + step_t u_t write_t`, `a_t = exp(-step_t rates)`, and
    `y_t = h_t . read_t + d u_t`; out `W_o (y * silu(W_z x))`. Steps, one a channel, are
    `softplus(W_2 W_1 u + c)`, write and read linear in u; rates are learned.

    With `negative`, `a_t = 2 exp(-step_t rates) - 1`, in (-1, 1): a token may turn the
    sign of the state. Without, no number of layers has Parity at every length in finite
    precision (Sarrof et al., Grazzi et al.).

    Attributes:
        negative: let a be negative.
        expansion: channels of u over the model's.
        state: numbers of a channel's state.
        convolution: tokens of the short convolution; 0: none.

    Raises:
        ValueError: if a number is out of range.

    References:
        Gu and Dao 2023, arXiv 2312.00752; negative: Sarrof et al. 2024, arXiv
        2405.17394, Grazzi et al. 2024, arXiv 2411.12537; their code was read,
        adankow/unlocking_state_tracking@ef8aaa3, `mamba.py` (a rewriting of the
        authors' `mamba_simple.py`) and `mamba_mod.py`: rates 1 to 16, d = 1, steps
        log-uniform, W_2 uniform within `1 / sqrt(rank)`, rank `ceil(D / 16)`.

    Departures:
        In that code a layer is this alone, with a norm and a residual; here an MLP
        follows, as it does behind attention.
    """

    title: ClassVar[str] = "Mamba"
    summary: ClassVar[str] = "layers of a selective diagonal recurrence (S6)"
    negative: bool = False
    expansion: int = 2
    state: int = 16
    convolution: int = 4

    def __post_init__(self):
        positive(expansion=self.expansion, state=self.state)
        not_negative(convolution=self.convolution)

    def operations(self, dims):
        """See `MixerSettings.operations`."""
        inner, states = self.expansion * dims.embed_dim, 2 * self.state
        return inner * (6 * dims.embed_dim + 2 * states + 4 * states)

    def make(self, dims, *, dtype, rngs):
        """See `MixerSettings.make`."""
        return SelectiveStates(self, dims, dtype=dtype, rngs=rngs)


class SelectiveStates(nnx.Module):
    """What a layer of Mamba has in place of attention."""

    def __init__(self, settings: Mamba, dims: Dims, *, dtype, rngs: nnx.Rngs):
        inner, rank = (
            settings.expansion * dims.embed_dim,
            math.ceil(dims.embed_dim / 16),
        )
        self.settings, self.dtype = settings, dtype
        make = lambda *size: projection(*size, dtype=dtype, rngs=rngs)
        self.enter, self.gate = make(dims.embed_dim, inner), make(dims.embed_dim, inner)
        self.short = SiLUConvolution(inner, settings.convolution, bias=True, rngs=rngs)
        self.step_in = make(inner, rank)
        self.write, self.read = make(inner, settings.state), make(inner, settings.state)
        self.step_out = nnx.Param(uniform(rngs.params(), (rank, inner), rank**-0.5))
        self.step_bias = nnx.Param(initial_steps(rngs.params(), inner))
        rates = jnp.arange(1, settings.state + 1, dtype=jnp.float32)
        self.log_rates = nnx.Param(jnp.tile(jnp.log(rates), (inner, 1)))
        self.skip = nnx.Param(jnp.ones(inner, jnp.float32))
        self.out = make(inner, dims.embed_dim)

    def __call__(self, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        """Returns what is read at each token; the recurrence is float32."""
        u = self.short(self.enter(x))
        inward = u.astype(self.dtype)
        step = self.step_in(inward).astype(jnp.float32) @ self.step_out[...]
        y = selective_scan(
            u,
            jax.nn.softplus(step + self.step_bias[...]),
            jnp.exp(self.log_rates[...]),
            self.write(inward),
            self.read(inward),
            negative=self.settings.negative,
        )
        y = (y + self.skip[...] * u).astype(self.dtype)
        return self.out(y * jax.nn.silu(self.gate(x)))
