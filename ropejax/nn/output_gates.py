"""Gates on what heads have attended to, before it is projected.

A softmax hands every query something, whether or not any key has what it asks for. A
gate that the query's own token opens and closes lets a head say nothing, for which
heads without one learn to look at the first token.
"""

import dataclasses
import math
from types import MappingProxyType
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.encodings import Dims
from ropejax.encodings.choices import positive
from ropejax.nn.parameters import projection_init
from ropejax.nn.query_key_norm import rms_normalized
from ropejax.settings import Settings, check_finite
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True)
class Ungated(Settings):
    """Heads' outputs as they are; what gates them derives from it."""

    summary: ClassVar[str] = "heads' outputs as they are"

    def __post_init__(self):
        check_finite(self)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the initial parameters of a layer: a dict."""
        return {}

    def gated(
        self,
        params: Params,
        x: Float[Array, "B T D"],
        attended: Float[Array, "B T N H"],
    ) -> Float[Array, "B T N H"]:
        """Returns what is projected.

        Args:
            params: the layer's.
            x: the queries' hidden states, as they enter the projections.
            attended: what attention made of the values.
        """
        return attended


@dataclasses.dataclass(frozen=True)
class SigmoidGate(Ungated):
    """Heads' outputs times a sigmoid of the layer's input.

    `sigmoid(W_g x + b_g) norm(o)`, o a head's output, and the norm the identity unless
    it is asked for: that of `HeadRMSNorm`, with gains of each head's own.

    In encoder-decoders, cross attention is gated too, by the decoder's hidden states.

    Attributes:
        per_head: one gate a head; by default, one for each of its channels.
        norm: divide each head's output by its root mean square first.
        initial_bias: b at the start, which is then learned; None for no bias. At 4, 98%
            of everything is let through, where gates without bias start at a half.
        epsilon: added to the mean square of the norm.

    Raises:
        ValueError: if `epsilon` is not positive, or is given without `norm`.

    References:
        Lin et al. 2025, arXiv 2503.02130 (the "Pro" block), with norm=True;
        zhixuan-lin/forgetting-transformer@246d5e3, `ForgettingAttentionLayer` and
        `group_norm_gated_ref`. Qiu et al. 2025, "Gated Attention for Large Language
        Models", arXiv 2505.06708 (gate G1); qiuzh20/gated_attention@df42212,
        `Qwen3Attention`, which has both kinds. Both codes were read; the gate has no
        bias in the first, and in the second that of all projections, if they have one.

    Departures:
        Weights start as those of other projections do, where the first code draws them
        with a standard deviation of 0.02; either way gates start about half open.
    """

    per_head: bool = False
    norm: bool = False
    initial_bias: float | None = None
    epsilon: float = 1e-6

    summary: ClassVar[str] = "times a sigmoid of the layer's input (FoX Pro, Qwen)"

    def __post_init__(self):
        super().__post_init__()
        positive(epsilon=self.epsilon)
        if not self.norm and self.epsilon != type(self).epsilon:
            raise ValueError(
                f"epsilon={self.epsilon} is of the norm, and does nothing without it; "
                f"set norm=True, or leave it at {type(self).epsilon}."
            )

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"kernel": [D, N, H]}`, or `[D, N]`, and bias and gain if wanted."""
        each = (dims.num_heads, dims.head_dim)
        gates = each[:1] if self.per_head else each
        kernel = projection_init(rng, (dims.embed_dim, math.prod(gates)), jnp.float32)
        made = {"kernel": kernel.reshape(dims.embed_dim, *gates)}
        if self.initial_bias is not None:
            made["bias"] = jnp.full(gates, self.initial_bias, jnp.float32)
        if self.norm:
            made["gain"] = jnp.ones(each, jnp.float32)
        return made

    def gated(self, params, x, attended):
        """Returns gated outputs."""
        kernel = params["kernel"].astype(x.dtype)
        logits = jnp.tensordot(x, kernel, axes=1).astype(jnp.float32)
        if self.initial_bias is not None:
            logits = logits + params["bias"][None, None]
        gates = jax.nn.sigmoid(logits)
        out = attended
        if self.norm:
            out = rms_normalized(out, params["gain"][None, None], self.epsilon)
        out = out.astype(jnp.float32) * (gates[..., None] if self.per_head else gates)
        return out.astype(attended.dtype)


OUTPUT_GATES = MappingProxyType({"none": Ungated, "sigmoid": SigmoidGate})
"""Name in configs -> class of settings."""
