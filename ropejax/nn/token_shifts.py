"""What queries, keys and values take from the tokens just before their own.

Attention finds tokens by what they say. That a token is the one before is something
else, which takes a head of its own, or two layers (induction heads); a short look back
along the sequence gives it to every layer for almost nothing, without any position. All
work on projections, head by head, before `qk_norm` and the position encoding.

Before means by index, wherever tokens are stored; padding is passed over, and nothing
comes from another segment: there, and before the first token, are zeros. In decoding,
the last projections are kept beside the cache, so that one token at a time, chunks and
the whole row give the same, rolling caches too. An index that repeats in a row is
refused, or gives NaN if it is traced.

Models that see both ways have no tokens before in this sense, and are refused.
"""

import dataclasses
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.encodings import Dims
from ropejax.encodings.choices import check_choice
from ropejax.encodings.convolution import causal_convolution
from ropejax.encodings.sequence_order import without_padding
from ropejax.nn.parameters import projection_init
from ropejax.settings import Settings, check_finite
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng


class Projections(NamedTuple):
    """Queries, keys and values of the same tokens."""

    query: Float[Array, "B L N H"]
    key: Float[Array, "B L K H"]
    value: Float[Array, "B L K Hv"]


@dataclasses.dataclass(frozen=True)
class Unshifted(Settings):
    """Projections of each token alone; what looks back derives from it."""

    looks_back: ClassVar[bool] = False
    """True if tokens before a token count."""
    summary: ClassVar[str] = "queries, keys and values of each token alone"

    def __post_init__(self):
        check_finite(self)

    def check(self, dims: Dims) -> None:
        """Raises ValueError where a model of these sizes cannot use it."""
        if self.looks_back and not dims.causal:
            raise ValueError(
                f"the token shift {type(self).__name__} looks at tokens before, and is "
                "for models in which a token sees these alone; use it in a decoder or "
                "an encoder with model.causal=True, or leave it out."
            )

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the initial parameters of a layer: a dict."""
        return {}

    def shifted(
        self,
        params: Params,
        x: Float[Array, "B L D"],
        made: Projections,
        where: Tokens,
        state: Any = None,
    ) -> tuple[Projections, Any]:
        """Returns what to attend with, and the state of the tokens to come.

        Args:
            params: the layer's.
            x: hidden states, as they enter the projections.
            made: what was projected of them.
            where: where the tokens are.
            state: what the call for the tokens before returned; None if there are none.
        """
        return made, None


@dataclasses.dataclass(frozen=True)
class KVShift(Unshifted):
    """Keys and values mixed with those of the token before, as the content says.

    `k_t <- a_t k_{t-1} + (1 - a_t) k_t`, `a_t = sigmoid(w_h . x_t)` for each key head,
    and the same for values with weights of their own.

    References:
        Lin et al. 2025, arXiv 2503.02130 (KV-shift of the "Pro" block);
        zhixuan-lin/forgetting-transformer@246d5e3, `ShiftLinear`, which was read:
        there too no bias, zeros before the first token, and the norm of keys after it.

    Departures:
        Weights start as those of other projections do, where the code draws them with a
        standard deviation of 0.02; either way a is about 1/2 at the start.
    """

    looks_back: ClassVar[bool] = True
    summary: ClassVar[str] = "keys and values mixed with the token before (FoX Pro)"

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the weights of keys and of values, `[D, K]`."""
        shape = (dims.embed_dim, dims.num_kv_heads)
        rngs = zip(("key", "value"), jax.random.split(rng), strict=True)
        return {
            name: {"kernel": projection_init(one, shape, jnp.float32)}
            for name, one in rngs
        }

    def shifted(self, params, x, made, where, state=None):
        """Returns mixed keys and values, and those of the last token as state."""
        x = without_padding(x, where).astype(jnp.float32)
        parts, after = made._asdict(), {}
        for name, weights in params.items():
            part = parts[name].astype(jnp.float32)
            before, after[name] = _before(part, where, _of(state, name))
            share = jax.nn.sigmoid(x @ weights["kernel"])[..., None]
            mixed = share * before + (1 - share) * part
            parts[name] = mixed.astype(parts[name].dtype)
        return Projections(**parts), after


@dataclasses.dataclass(frozen=True)
class ShortConvolution(Unshifted):
    """A causal convolution of queries, keys and values, channel by channel.

    `y_t = x_t + sum over back = 0 .. width - 1 of taps_back x_{t-back}`, x a projection
    and taps of each of its channels. As it is by default, that is the Canon layer
    within attention ("Canon-B"). Without `residual`, `y_t = silu(sum)` with
    `activation=silu` is the short convolution of Mamba, DeltaNet and their kin.

    Attributes:
        width: tokens that count, the token itself included.
        residual: add the projection itself.
        activation: of the sum: "none" or "silu".

    Raises:
        ValueError: if the width is less than 2, or the activation unknown.

    References:
        Allen-Zhu 2025, "Physics of Language Models: Part 4.1", arXiv 2512.17351;
        facebookresearch/PhysicsLM4@924678b, `huggingface/canon_helper.py`,
        `modeling_llama_canon.py` and `configuration_llama_canon.py`, which were read:
        by default width 4, a residual, no activation, no bias, and torch's `Conv1d`,
        whose taps start uniform within `1 / sqrt(width)`. Short convolutions: Yang et
        al. 2024 (DeltaNet), arXiv 2406.06484.

    Departures:
        The code of Canon layers has the norm of queries and keys before the
        convolution, that of DeltaNet after it, as here. Canon layers elsewhere (before
        attention, around the MLP) are not offered.
    """

    width: int = 4
    residual: bool = True
    activation: Literal["none", "silu"] = "none"

    looks_back: ClassVar[bool] = True
    summary: ClassVar[str] = "a short causal convolution of all three (Canon, DeltaNet)"

    def __post_init__(self):
        super().__post_init__()
        if self.width < 2:
            raise ValueError(
                f"width must be at least 2, the token itself and one before, got "
                f"{self.width}."
            )
        check_choice("activation", self.activation, ("none", "silu"))

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the taps of all three, `[width, heads, H]`."""
        n, k = dims.num_heads, dims.num_kv_heads
        rngs, bound = jax.random.split(rng, 3), self.width**-0.5
        heads = zip(Projections._fields, (n, k, k), rngs, strict=True)
        return {
            name: jax.random.uniform(
                one, (self.width, number, dims.head_dim), jnp.float32, -bound, bound
            )
            for name, number, one in heads
        }

    def shifted(self, params, x, made, where, state=None):
        """Returns what the convolutions make of all three, and the last of each."""
        parts, after = {}, {}
        for name, given in made._asdict().items():
            part = given.astype(jnp.float32)
            out, after[name] = causal_convolution(
                part, params[name], where, "ShortConvolution", _of(state, name)
            )
            out = jax.nn.silu(out) if self.activation == "silu" else out
            out = part + out if self.residual else out
            parts[name] = out.astype(given.dtype)
        return Projections(**parts), after


def _before(x: Float[Array, "B L K H"], where: Tokens, state: Any):
    """What the token before has, and the state of the tokens to come."""
    one = jnp.ones(x.shape[2:], x.dtype)
    taps = jnp.stack([one, jnp.zeros_like(one)])
    return causal_convolution(x, taps, where, "KVShift", state)


def _of(state: dict[str, Any] | None, name: str) -> Any:
    return None if state is None else state[name]


TOKEN_SHIFTS = MappingProxyType(
    {"none": Unshifted, "kv": KVShift, "convolution": ShortConvolution}
)
"""Name in configs -> class of settings."""
