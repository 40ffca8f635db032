"""Normalized queries and keys: their lengths, or their root mean squares, held fixed.

All work on projections, head by head, before the position encoding sees them, so a
cache holds normalized keys; rotations keep lengths, and biases come after.
"""

import dataclasses
from types import MappingProxyType
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ropejax.attention.scales import cosine_scale, query_key_scale, unit
from ropejax.encodings import Dims
from ropejax.encodings.choices import positive
from ropejax.settings import Settings, check_finite
from ropejax.typing import Params

Heads = Float[Array, "B L N H"]


@dataclasses.dataclass(frozen=True)
class Unnormalized(Settings):
    """Queries and keys as they are projected; what normalizes them derives from it."""

    needs_counts: ClassVar[bool] = False
    """True if `row_scale` wants the number of keys that each query sees."""
    summary: ClassVar[str] = "queries and keys as they are projected"

    def __post_init__(self):
        check_finite(self)

    @property
    def has_scale(self) -> bool:
        """True if the factor on queries times keys is its own, not `1 / sqrt(H)`."""
        return type(self).scale is not Unnormalized.scale

    def init_layer(self, dims: Dims) -> Params:
        """Returns the initial parameters of a layer: a dict."""
        return {}

    def queries(self, params: Params, q: Heads) -> Heads:
        """Returns queries as the encoding gets them."""
        return q

    def keys(self, params: Params, k: Heads) -> Heads:
        """Returns keys as the encoding gets them, and a cache keeps them."""
        return k

    def scale(self, params: Params) -> float | Array | None:
        """Returns the factor on queries times keys; None for `1 / sqrt(H)`."""
        return None

    def row_scale(self, counts: Int[Array, "#B T #N"]) -> Float[Array, "B T N"]:
        """Returns the factor on logits, if it `needs_counts`.

        Args:
            counts: keys that each query sees.
        """
        raise NotImplementedError(f"{type(self).__name__} has no factor on logits.")


@dataclasses.dataclass(frozen=True)
class KeyNorm(Unnormalized):
    """Keys of length one: `q . k / |k|`, without `1 / sqrt(H)`; no parameters.

    How far a key attracts queries is then a matter of its direction alone, whatever the
    length trained.

    References:
        Su 2023, spaces.ac.cn/archives/9859 (KNA). It extrapolates with RoPE, and does
        not without positions.
    """

    summary: ClassVar[str] = "keys of length one (Su: key normalization)"

    def keys(self, params: Params, k: Heads) -> Heads:
        """Returns keys of length one."""
        return unit(k)

    def scale(self, params: Params) -> float:
        """Returns 1."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class QueryNorm(Unnormalized):
    """Queries of length one: `q / |q| . k`, without `1 / sqrt(H)`; no parameters.

    References:
        Su 2023, spaces.ac.cn/archives/9859 (QNA), where it is found not to extrapolate.
    """

    summary: ClassVar[str] = "queries of length one (Su: a contrast to key)"

    def queries(self, params: Params, q: Heads) -> Heads:
        """Returns queries of length one."""
        return unit(q)

    def scale(self, params: Params) -> float:
        """Returns 1."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class CosineNorm(KeyNorm):
    """Cosines times a fixed factor: `weight ln(n) cos(q, k)`; no parameters.

    n counts the keys that a query sees, and is at least 2; the factor is on all logits,
    an encoding's biases too.

    Attributes:
        weight: 4 in article 9859, 3.5 in 9812.

    References:
        Su 2023, spaces.ac.cn/archives/9859 and 9812 (CosA).
    """

    weight: float = 4.0

    needs_counts: ClassVar[bool] = True
    summary: ClassVar[str] = "cosines times weight ln n (Su: cosine attention)"

    def __post_init__(self):
        super().__post_init__()
        positive(weight=self.weight)

    def queries(self, params: Params, q: Heads) -> Heads:
        """Returns queries of length one."""
        return unit(q)

    def row_scale(self, counts: Int[Array, "#B T #N"]) -> Float[Array, "B T N"]:
        """Returns `weight ln n`."""
        return cosine_scale(counts, self.weight)


@dataclasses.dataclass(frozen=True)
class LearnedCosine(Unnormalized):
    """Cosines times a learned number: `g cos(q, k)`, g of each head and layer.

    g is on the product of queries and keys, not on an encoding's biases.

    Attributes:
        train_length: N, in tokens, from which g starts.
        initial: where g starts; `log2(N^2 - N)` if None.
        learned: False keeps g where it starts.

    References:
        Henry et al. 2020, "Query-Key Normalization for Transformers", arXiv 2010.04245.
        N is there a high percentile of the trained lengths.
    """

    train_length: int = 40
    initial: float | None = None
    learned: bool = True

    summary: ClassVar[str] = "cosines times a learned number (QK norm, Henry et al.)"

    def __post_init__(self):
        super().__post_init__()
        if self.initial is not None:
            positive(initial=self.initial)
        else:
            query_key_scale(self.train_length)

    @property
    def start(self) -> float:
        """Where g starts."""
        given = self.initial is not None
        return self.initial if given else query_key_scale(self.train_length)

    def init_layer(self, dims: Dims) -> Params:
        """Returns g of each head, unless it is fixed."""
        if not self.learned:
            return {}
        return {"scale": jnp.full((dims.num_heads,), self.start, jnp.float32)}

    def queries(self, params: Params, q: Heads) -> Heads:
        """Returns queries of length one."""
        return unit(q)

    def keys(self, params: Params, k: Heads) -> Heads:
        """Returns keys of length one."""
        return unit(k)

    def scale(self, params: Params) -> float | Array:
        """Returns g, `[1, N, 1, 1]`, or one number if it is fixed."""
        return params["scale"][None, :, None, None] if params else self.start


@dataclasses.dataclass(frozen=True)
class HeadRMSNorm(Unnormalized):
    """Root mean square of one in every head, times a learned gain of each channel.

    `g x / sqrt(mean(x^2) + epsilon)`, for queries and for keys, g shared by the heads
    and 1 at the start; `1 / sqrt(H)` stays.

    Attributes:
        epsilon: added to the mean square.

    References:
        Zhang and Sennrich 2019, arXiv 1910.07467 (the norm); of queries and keys before
        the rotation: Gemma 3 technical report 2025, arXiv 2503.19786; Qwen3 technical
        report 2025, arXiv 2505.09388.
    """

    epsilon: float = 1e-6

    summary: ClassVar[str] = "RMS norm of each head, with gains (Gemma 3, Qwen3)"

    def __post_init__(self):
        super().__post_init__()
        positive(epsilon=self.epsilon)

    def init_layer(self, dims: Dims) -> Params:
        """Returns gains of queries and keys, `[H]`."""
        gain = jnp.ones((dims.head_dim,), jnp.float32)
        return {"query_gain": gain, "key_gain": gain}

    def queries(self, params: Params, q: Heads) -> Heads:
        """Returns normalized queries."""
        return rms_normalized(q, params["query_gain"], self.epsilon)

    def keys(self, params: Params, k: Heads) -> Heads:
        """Returns normalized keys."""
        return rms_normalized(k, params["key_gain"], self.epsilon)


@dataclasses.dataclass(frozen=True)
class JointRMSNorm(HeadRMSNorm):
    """Root mean square of one over all heads together, times gains.

    `g x / sqrt(mean(x^2) + epsilon)`, for queries and for keys, the mean over heads and
    their channels, g of each channel of each head and 1 at the start; `1 / sqrt(H)`
    stays. A head may so be larger than another, which `HeadRMSNorm` rules out.

    Attributes:
        epsilon: added to the mean square.

    References:
        OLMo Team 2025, "2 OLMo 2 Furious", arXiv 2501.00656, and `modeling_olmo2` of
        transformers.
    """

    summary: ClassVar[str] = "root mean square of all heads, with gains (OLMo 2)"

    def init_layer(self, dims: Dims) -> Params:
        """Returns the gains of queries and of keys, `[N, H]` and `[K, H]`."""
        gain = lambda heads: jnp.ones((heads, dims.head_dim), jnp.float32)
        return {"query_gain": gain(dims.num_heads), "key_gain": gain(dims.num_kv_heads)}

    def queries(self, params: Params, q: Heads) -> Heads:
        """Returns normalized queries."""
        return rms_normalized(q, params["query_gain"], self.epsilon, (-2, -1))

    def keys(self, params: Params, k: Heads) -> Heads:
        """Returns normalized keys."""
        return rms_normalized(k, params["key_gain"], self.epsilon, (-2, -1))


def rms_normalized(
    x: Heads,
    gain: Float[Array, "*#B H"],
    epsilon: float,
    axes: int | tuple[int, ...] = -1,
) -> Heads:
    """Returns every head divided by its root mean square, times gains.

    Args:
        x: queries, keys or heads' outputs.
        gain: of each channel, or of each channel of each head.
        epsilon: added to the mean square.
        axes: over which the mean is taken.
    """
    wide = x.astype(jnp.float32)
    square = (wide * wide).mean(axes, keepdims=True)
    return (wide * (square + epsilon) ** -0.5 * gain).astype(x.dtype)


QK_NORMS = MappingProxyType(
    {
        "none": Unnormalized,
        "key": KeyNorm,
        "query": QueryNorm,
        "cosine": CosineNorm,
        "learned_cosine": LearnedCosine,
        "rms": HeadRMSNorm,
        "joint_rms": JointRMSNorm,
    }
)
"""Name in configs -> class of settings."""
