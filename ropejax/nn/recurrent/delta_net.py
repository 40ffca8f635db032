"""DeltaNet, and gated DeltaNet: heads with the delta rule in place of attention."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings import Dims
from ropejax.encodings.choices import not_negative
from ropejax.nn.recurrent.delta_rule import delta_rule
from ropejax.nn.recurrent.mixers import (
    MixerSettings,
    SiLUConvolution,
    initial_steps,
    projection,
)


@dataclasses.dataclass(frozen=True)
class DeltaNet(MixerSettings):
    """Heads that keep a matrix each, corrected under the key of each token.

    `S_t = a_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T`, out
    `W_o norm(S_t q_t)`; q, k and v are `silu(conv(W x))`, q and k made unit vectors,
    `beta = sigmoid(w_h . x)`, twice that with `negative`, and `a = 1`. With `gated`,
    `a = exp(-A_h softplus(u_h . x + c_h))`, and what heads give is multiplied by
    `silu(W_g x)` behind their norm, one root mean square a head.

    The eigenvalue along a key is `1 - beta`: in (0, 1), or, with `negative`, in
    (-1, 1). Without negative ones no number of layers has Parity at every length in
    finite precision (Grazzi et al.).

    Attributes:
        negative: let eigenvalues be negative, beta in (0, 2).
        gated: gated DeltaNet: the state fades, and outputs have a gate.
        convolution: tokens of the short convolutions; 0: none.

    Raises:
        ValueError: if `convolution` is below 0; if heads do not divide the width.

    References:
        Yang et al. 2024, arXiv 2406.06484; gated: Yang et al. 2024, arXiv 2412.06464;
        negative: Grazzi et al. 2024, arXiv 2411.12537.
        fla-org/flash-linear-attention was read: `fla/layers/delta_net.py` at fa409f1
        (SiLU, L2 norms, convolutions over 4 tokens without bias, no bias elsewhere) and
        `gated_deltanet.py` at 7415902 (A uniform in (0, 16), steps log-uniform).

    Departures:
        No factor `1 / sqrt(H)` on queries: the norm behind undoes it. Values are as
        wide as keys, also when gated, where that code has them twice as wide.
    """

    title: ClassVar[str] = "DeltaNet"
    summary: ClassVar[str] = "layers of the delta rule, gated or not (Yang et al.)"
    has_heads: ClassVar[bool] = True
    negative: bool = False
    gated: bool = False
    convolution: int = 4

    def __post_init__(self):
        not_negative(convolution=self.convolution)

    def check(self, dims):
        """See `MixerSettings.check`."""
        if dims.embed_dim != dims.num_heads * dims.head_dim:
            raise ValueError(
                f"DeltaNet: num_heads={dims.num_heads} must divide "
                f"embed_dim={dims.embed_dim}; change one of them."
            )

    def operations(self, dims):
        """See `MixerSettings.operations`."""
        projections = 5 if self.gated else 4
        return 2 * projections * dims.embed_dim**2 + 7 * dims.embed_dim * dims.head_dim

    def make(self, dims, *, dtype, rngs):
        """See `MixerSettings.make`."""
        return DeltaHeads(self, dims, dtype=dtype, rngs=rngs)


class DeltaHeads(nnx.Module):
    """What a layer of DeltaNet has in place of attention."""

    def __init__(self, settings: DeltaNet, dims: Dims, *, dtype, rngs: nnx.Rngs):
        width, heads = dims.embed_dim, dims.num_heads
        self.settings, self.dims, self.dtype = settings, dims, dtype
        make = lambda columns: projection(width, columns, dtype=dtype, rngs=rngs)
        short = lambda: SiLUConvolution(width, settings.convolution, rngs=rngs)
        self.query, self.key, self.value = make(width), make(width), make(width)
        self.query_short, self.key_short, self.value_short = short(), short(), short()
        self.strength = make(heads)
        self.norm = nnx.RMSNorm(dims.head_dim, epsilon=1e-5, dtype=dtype, rngs=rngs)
        self.out = make(width)
        if settings.gated:
            rates = jax.random.uniform(rngs.params(), (heads,), jnp.float32, 1e-3, 16)
            self.log_rates = nnx.Param(jnp.log(rates))
            self.step = make(heads)
            self.step_bias = nnx.Param(initial_steps(rngs.params(), heads))
            self.gate = make(width)

    def __call__(self, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        """Returns what heads give at each token; the recurrence is float32."""
        q = _unit(self._by_head(self.query_short(self.query(x))))
        k = _unit(self._by_head(self.key_short(self.key(x))))
        v = self._by_head(self.value_short(self.value(x)))
        beta = jax.nn.sigmoid(self.strength(x).astype(jnp.float32))
        if self.settings.negative:
            beta = 2 * beta
        out = delta_rule(q, k, v, beta, self._log_decay(x)).astype(self.dtype)
        out = self.norm(out)
        if self.settings.gated:
            out = out * jax.nn.silu(self._by_head(self.gate(x)))
        return self.out(out.reshape(x.shape))

    def _log_decay(self, x) -> Float[Array, "B L N"] | None:
        if not self.settings.gated:
            return None
        step = self.step(x).astype(jnp.float32) + self.step_bias[...]
        return -jnp.exp(self.log_rates[...]) * jax.nn.softplus(step)

    def _by_head(self, x: Float[Array, "B L D"]) -> Float[Array, "B L N H"]:
        return x.reshape(*x.shape[:2], self.dims.num_heads, self.dims.head_dim)


def _unit(x: Float[Array, "B L N H"]) -> Float[Array, "B L N H"]:
    return x * jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + 1e-6)
