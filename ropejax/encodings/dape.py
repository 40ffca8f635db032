"""DAPE: a bias that a small network adapts to the attention it meets.

At each pair of tokens the network sees what every head's logit is and what every
head's bias would be, and adds a correction to each.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import positive
from ropejax.encodings.compose import Compose
from ropejax.encodings.kerple import Kerple
from ropejax.encodings.linear import init_linear
from ropejax.tokens import Tokens
from ropejax.typing import Array, Float, Logits, Params, Rng

_HOOKS = (
    "embed",
    "queries",
    "keys",
    "values",
    "outputs",
    "product",
    "carry",
    "logits",
    "mix",
)


@dataclasses.dataclass(frozen=True)
class DAPE(Encoding):
    """Adds a bias, and a correction by a network of logits and biases of all heads.

    `A + B + f([A; B])` at each pair, A the scaled logits and B the biases of the N
    heads, f a network 2 N -> hidden -> N with a leaky ReLU of slope 0.01.

    Attributes:
        inner: the encoding that gives the bias: KERPLE, ALiBi, FIRE, T5's, or several
            of them composed.
        hidden: width of the network.

    Raises:
        ValueError: if `inner` does more than add a bias, or `hidden` is not positive.

    References:
        Zheng et al., 2024, arXiv:2405.14722; chuanyang-Zheng/DAPE@51cf9bd,
        `DAPE.py`.

    Departures:
        None. The convolution of version 2 (arXiv:2410.04798) is another method.
    """

    inner: Encoding = Kerple()
    hidden: int = 32

    title: ClassVar[str] = "DAPE"
    summary: ClassVar[str] = "a bias corrected by a network of all heads' logits"
    reference: ClassVar[str] = "Zheng et al. 2024, arXiv:2405.14722"
    mixes_heads: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        positive(hidden=self.hidden)
        if not self.inner.has_bias:
            raise ValueError(f"inner must add a bias, got {self.inner!r}.")
        if more := _more(self.inner):
            raise ValueError(
                f"inner must do nothing but add a bias; {self.inner.title} also has "
                f"{', '.join(more)}."
            )

    @property
    def causal_only(self) -> bool:
        """As the encoding inside."""
        return self.inner.causal_only

    @property
    def shift_invariant(self) -> bool:
        """As the encoding inside."""
        return self.inner.shift_invariant

    @property
    def length_dependent(self) -> bool:
        """As the encoding inside."""
        return self.inner.length_dependent

    @property
    def by_distance(self) -> bool:
        """As the encoding inside."""
        return self.inner.by_distance

    @property
    def num_axes(self) -> int:
        """As the encoding inside."""
        return self.inner.num_axes

    @property
    def position_limit(self) -> int | None:
        """As the encoding inside."""
        return self.inner.position_limit

    @property
    def stream_limits(self) -> tuple[tuple[str, int], ...]:
        """As the encoding inside."""
        return self.inner.stream_limits

    def check(self, dims: Dims) -> None:
        """Raises ValueError if the encoding inside cannot serve these sizes."""
        self.inner.check(dims)

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"inner"}`: what the encoding inside shares."""
        return {"inner": self.inner.init_shared(rng, dims)}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"into", "out"}` of the network, and `{"inner"}`."""
        rng_inner, rng_into, rng_out = jax.random.split(rng, 3)
        return {
            "inner": self.inner.init_layer(rng_inner, dims),
            "into": init_linear(rng_into, 2 * dims.num_heads, self.hidden),
            "out": init_linear(rng_out, self.hidden, dims.num_heads),
        }

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the network's parameters, and what the encoding inside prepares."""
        both = shared["inner"], layer["inner"]
        return layer | {"inner": self.inner.prepare(*both, query, key, dims)}

    def query_features(self, params, x, q, query: Tokens, state=None):
        """Returns the features of the encoding inside."""
        return self.inner.query_features(params["inner"], x, q, query, state)

    def key_features(self, params, x, k, key: Tokens, state=None):
        """Returns the features and the state of the encoding inside."""
        return self.inner.key_features(params["inner"], x, k, key, state)

    def logits(
        self, params: Params, logits: Logits, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns logits plus biases plus corrections."""
        bias = self.inner.bias(params["inner"], query, key, 1.0)
        bias = jnp.broadcast_to(bias, logits.shape)
        seen = jnp.concatenate([logits, bias], axis=1)
        hidden = jax.nn.leaky_relu(_across_heads(params["into"], seen), 0.01)
        return logits + bias + _across_heads(params["out"], hidden)


def _across_heads(layer: Params, x: Float[Array, "B M T S"]) -> Float[Array, "B m T S"]:
    out = jnp.einsum("bmts,mn->bnts", x, layer["kernel"])
    return out + layer["bias"][None, :, None, None]


def _more(encoding: Encoding) -> list[str]:
    """The hooks of an encoding, or of its parts, that do more than add a bias."""
    if isinstance(encoding, Compose):
        return [hook for _, part in encoding.parts for hook in _more(part)]
    kind = type(encoding)
    return [
        hook for hook in _HOOKS if getattr(kind, hook) is not getattr(Encoding, hook)
    ]
