"""Learned factors on the logits of each query, which follow how many keys it sees.

The fixed forms of log n are an encoding, `ropejax.encodings.LogScale`.
"""

import dataclasses
import math
from types import MappingProxyType
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.attention.scales import adaptive_scale, ssmax
from ropejax.encodings import Dims
from ropejax.encodings.choices import positive
from ropejax.nn.parameters import projection_init
from ropejax.settings import Settings, check_finite
from ropejax.typing import Params, Rng


@dataclasses.dataclass(frozen=True)
class Unscaled(Settings):
    """Logits as they are; what scales them derives from it."""

    needs_counts: ClassVar[bool] = False
    """True if there is a factor, which wants the number of keys that a query sees."""
    summary: ClassVar[str] = "logits as they are"

    def __post_init__(self):
        check_finite(self)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the initial parameters of a layer: a dict."""
        return {}

    def factor(
        self,
        params: Params,
        x: Float[Array, "B T D"],
        counts: Int[Array, "#B T #N"],
    ) -> Float[Array, "#B #T N"]:
        """Returns the factor on the logits of each query and head, float32.

        Args:
            params: the layer's.
            x: the queries' hidden states, as they enter the projections.
            counts: keys that each query sees.
        """
        raise NotImplementedError(f"{type(self).__name__} has no factor on logits.")


@dataclasses.dataclass(frozen=True)
class SSMax(Unscaled):
    """Scalable softmax: `softmax((s ln n + b) l)`, s of each head and layer learned.

    n counts the keys that a query sees, itself included.

    Attributes:
        train_length: N, in tokens, from which s starts.
        initial: where s starts; None for the reciprocal of the mean of ln n over n from
            1 to N, with which a layer starts as a plain softmax would, on average.
        offset: learn b as well, from 0; found to hurt length generalization.

    References:
        Nakanishi 2025, "Scalable-Softmax Is Superior for Attention", arXiv 2501.19399.
        Published starts differ: 0.168 (that of N = 1,024), 0.43, and about 1.
    """

    train_length: int = 40
    initial: float | None = None
    offset: bool = False

    needs_counts: ClassVar[bool] = True
    summary: ClassVar[str] = "times s ln n, s learned (SSMax)"

    def __post_init__(self):
        super().__post_init__()
        if self.initial is None and self.train_length < 2:
            raise ValueError(
                f"train_length must be at least 2, got {self.train_length}; or give "
                "initial."
            )

    @property
    def start(self) -> float:
        """Where s starts."""
        if self.initial is not None:
            return self.initial
        return self.train_length / math.lgamma(self.train_length + 1)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns s, and b if there is one, of each head."""
        made = {"s": jnp.full((dims.num_heads,), self.start, jnp.float32)}
        if self.offset:
            made["b"] = jnp.zeros((dims.num_heads,), jnp.float32)
        return made

    def factor(self, params, x, counts):
        """Returns `s ln n + b`."""
        return ssmax(counts, params["s"], params.get("b"))


@dataclasses.dataclass(frozen=True)
class AdaptiveScale(Unscaled):
    """A factor that each token chooses: `delta + softplus(x W_b) (ln(n + 1)) ** gamma`.

    `gamma = bound tanh(x W_g)`; W_b and W_g have a column for each head, and no bias.
    With the normalizer `Entmax(1.5)` it is Adaptive-Scalable Entmax (ASEntmax).

    Attributes:
        delta: the factor where nothing is added.
        bound: largest exponent, either way.

    References:
        Vasylenko et al. 2025, "Long-Context Generalization with Sparse Attention",
        arXiv 2506.16640, and its published code.
    """

    delta: float = 1.0
    bound: float = 2.0

    needs_counts: ClassVar[bool] = True
    summary: ClassVar[str] = "a factor that tokens choose (ASEntmax, with entmax)"

    def __post_init__(self):
        super().__post_init__()
        positive(bound=self.bound)

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns W_b and W_g, `[D, N]`."""
        shape = (dims.embed_dim, dims.num_heads)
        rngs = zip(("beta", "gamma"), jax.random.split(rng), strict=True)
        return {
            name: {"kernel": projection_init(key, shape, jnp.float32)}
            for name, key in rngs
        }

    def factor(self, params, x, counts):
        """Returns the factor of each token and head."""
        x = x.astype(jnp.float32)
        beta = jax.nn.softplus(x @ params["beta"]["kernel"])
        gamma = self.bound * jnp.tanh(x @ params["gamma"]["kernel"])
        return adaptive_scale(counts, beta, gamma, self.delta)


@dataclasses.dataclass(frozen=True)
class HeadScale(Unscaled):
    """A temperature of each head: `softmax(s l)`, s of each head and layer learned.

    Of a trained model without positions, s alone is to be trained further, on longer
    rows than the model was: heads whose attention scatters there become sharper.

    Attributes:
        initial: where s starts; 1 leaves a trained model as it is.

    References:
        Wang et al. 2024, "Length Generalization of Causal Transformers without Position
        Encoding", arXiv 2404.12224 (HeadScale; one number for all heads, not learned,
        is its UniformScale, which the `scale` of `ropejax.attention.attend` serves).

    Departures:
        The paper trains s alone, and constrains it, so that heads stay focused. Here it
        is a parameter like others: which are trained, and how, the optimizer says. Its
        s includes `1 / sqrt(H)`, ours multiplies it.
    """

    initial: float = 1.0

    needs_counts: ClassVar[bool] = True
    summary: ClassVar[str] = "times s, learned for each head (HeadScale)"

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns s of each head."""
        return {"s": jnp.full((dims.num_heads,), self.initial, jnp.float32)}

    def factor(self, params, x, counts):
        """Returns s, the same for all queries, `[1, 1, N]`."""
        return params["s"].astype(jnp.float32)[None, None]


ROW_SCALES = MappingProxyType(
    {
        "none": Unscaled,
        "ssmax": SSMax,
        "adaptive": AdaptiveScale,
        "head": HeadScale,
    }
)
"""Name in configs -> class of settings."""
