"""How a layer's queries and keys become weights, the position encoding apart.

`weights = normalizer(row_scale * logits)`, the logits being the encoding's of queries
and keys that `qk_norm` has normalized. Each of the three is a class of settings, and
may have parameters of its own in every layer. Defaults are those of Vaswani et al.
2017: a softmax of `q . k / sqrt(H)`.
"""

import dataclasses
import math
from types import MappingProxyType
from typing import Any

import jax
from jaxtyping import Array, Float, Int

from ropejax.attention import (
    AdaptiveTemperature,
    Entmax,
    Normalizer,
    Selective,
    Sigmoid,
    SinkSoftmax,
    Softmax,
    SquaredReLU,
    StickBreaking,
    UnitRows,
    visible_counts,
)
from ropejax.encodings import Dims
from ropejax.nn.dropout import check_rate
from ropejax.nn.query_key_norm import Unnormalized
from ropejax.nn.row_scales import Unscaled
from ropejax.settings import Settings
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng

NORMALIZERS = MappingProxyType(
    {
        "softmax": Softmax,
        "sink": SinkSoftmax,
        "sigmoid": Sigmoid,
        "relu_squared": SquaredReLU,
        "stick_breaking": StickBreaking,
        "selective": Selective,
        "entmax": Entmax,
        "adaptive_temperature": AdaptiveTemperature,
        "unit_rows": UnitRows,
    }
)
"""Name in configs -> class of settings."""

_DROPPED_WEIGHTS = 2**20


@dataclasses.dataclass(frozen=True)
class Weighting(Settings):
    """How queries and keys become weights in all attention of a model.

    Attributes:
        normalizer: what turns logits into weights.
        qk_norm: what normalizes queries and keys.
        row_scale: the learned factor on the logits of each query.
        dropout: probability of dropping a weight in training.
        scale: the factor on queries times keys; that of `qk_norm` if None.

    Raises:
        ValueError: if `scale` is not positive and finite.
    """

    normalizer: Normalizer = Softmax()
    qk_norm: Unnormalized = Unnormalized()
    row_scale: Unscaled = Unscaled()
    dropout: float = 0.0
    scale: float | None = None

    def __post_init__(self):
        if self.scale is not None and not 0 < self.scale < math.inf:
            raise ValueError(
                f"attention_scale must be positive and finite, got {self.scale}; leave "
                "it out (None) for 1 / sqrt(head_dim)."
            )

    def check(self, dims: Dims) -> None:
        """Raises ValueError where a model of these sizes cannot use a method."""
        check_rate(self.dropout, "attention_dropout")
        if self.scale is not None and self.qk_norm.has_scale:
            raise ValueError(
                f"attention_scale={self.scale} and {type(self.qk_norm).__name__} both "
                "say what queries times keys are multiplied by; leave the first out."
            )
        name = type(self.normalizer).__name__
        if self.normalizer.causal_only and not dims.causal:
            raise ValueError(
                f"the normalizer {name} is defined for keys up to the query only; use "
                "it in a decoder or an encoder with model.causal=True, or choose "
                "another normalizer."
            )

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns the initial parameters of a layer, by method; {} by default."""
        made = {
            "normalizer": self.normalizer.init_layer(dims.num_heads),
            "qk_norm": self.qk_norm.init_layer(dims),
            "row_scale": self.row_scale.init_layer(rng, dims),
        }
        return {method: params for method, params in made.items() if params}

    def queries(
        self, params: Params, q: Float[Array, "B T N H"]
    ) -> Float[Array, "B T N H"]:
        """Returns projected queries as the encoding gets them."""
        return self.qk_norm.queries(params.get("qk_norm", {}), q)

    def keys(
        self, params: Params, k: Float[Array, "B S K H"]
    ) -> Float[Array, "B S K H"]:
        """Returns projected keys as the encoding gets them, and a cache keeps them."""
        return self.qk_norm.keys(params.get("qk_norm", {}), k)

    def arguments(
        self,
        params: Params,
        x: Float[Array, "B T D"],
        query: Tokens,
        key: Tokens,
        mask: Any,
    ) -> dict[str, Any]:
        """Returns what `ropejax.attention.attend` is told.

        Args:
            params: the layer's.
            x: the queries' hidden states, as they enter the projections.
            query: where the queries are.
            key: where the keys are.
            mask: a mask or None.
        """
        return {
            "normalizer": self.normalizer,
            "normalizer_params": params.get("normalizer"),
            "scale": self.qk_norm.scale(params.get("qk_norm", {}))
            if self.scale is None
            else self.scale,
            "row_scale": self._row_scale(params, x, query, key, mask),
        }

    def dropping(
        self, rng: Rng | None, first_row: int | Int[Array, ""]
    ) -> dict[str, Any]:
        """Returns what `ropejax.attention.attend` is told of dropped weights.

        Args:
            rng: a layer's PRNG key for dropout; None at evaluation.
            first_row: row of the whole batch with which the queries start.
        """
        if rng is None or not self.dropout:
            return {}
        # Apart from the keys into which a layer splits its own for other dropout.
        rng = jax.random.fold_in(rng, _DROPPED_WEIGHTS)
        return {"dropout_rate": self.dropout, "rng": rng, "first_row": first_row}

    def _row_scale(self, params, x, query, key, mask) -> Float[Array, "#B #T N"] | None:
        if not (self.row_scale.needs_counts or self.qk_norm.needs_counts):
            return None
        counts: Int[Array, "#B T #N"] = visible_counts(query, key, mask)
        factor = None
        if self.row_scale.needs_counts:
            factor = self.row_scale.factor(params.get("row_scale", {}), x, counts)
        if self.qk_norm.needs_counts:
            other = self.qk_norm.row_scale(counts)
            factor = other if factor is None else factor * other
        return factor
