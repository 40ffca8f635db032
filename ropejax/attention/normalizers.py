"""How logits become weights: the softmax, and what works a block of keys at a time.

A normalizer is a frozen dataclass of settings. `weights` is its plain form, on whole
rows; `log_weights` and `finish` are the same cut into blocks: weights are
`exp(log_weights - lse)` with the row's log-sum-exp where `normalized`, and
`exp(log_weights)` where not. A normalizer that needs a whole row at once has
`blockwise = False` and defines `weights` alone.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ropejax.attention.visibility import NEGATIVE
from ropejax.settings import Settings, check_finite
from ropejax.tokens import Tokens
from ropejax.typing import Logits, Params


@dataclasses.dataclass(frozen=True)
class Normalizer(Settings):
    """Turns logits into weights; its parameters are passed in.

    Attributes:
        blockwise: True if it can be computed a block of keys at a time.
        has_threshold: True if blockwise attention finds thresholds of rows by several
            passes over all keys (`ropejax.attention.thresholds`), at its `alpha`.
        normalized: True if weights are divided by a sum over keys.
        has_carry: True if a weight depends on the keys between query and key.
        has_lse: True if rows have a log-sum-exp.
        needs_counts: True if it wants the number of visible keys of each query.
        needs_entropy: True if it wants a softmax first, and its `sharpness` of the
            entropy of each row as a factor on the logits.
        mixes_heads: True if a head's weights depend on another's logits.
        measures: True if outputs are to be mean logits, not values.
        causal_only: True if it means nothing where queries see later keys.
        needs_earlier_queries: True if a row's weights depend on the rows before it, so
            that a token cannot be read by itself.
        summary: one line for lists.
    """

    blockwise: ClassVar[bool] = True
    has_threshold: ClassVar[bool] = False
    normalized: ClassVar[bool] = True
    has_carry: ClassVar[bool] = False
    has_lse: ClassVar[bool] = True
    needs_counts: ClassVar[bool] = False
    needs_entropy: ClassVar[bool] = False
    mixes_heads: ClassVar[bool] = False
    measures: ClassVar[bool] = False
    causal_only: ClassVar[bool] = False
    needs_earlier_queries: ClassVar[bool] = False
    summary: ClassVar[str] = ""

    def __post_init__(self):
        check_finite(self)

    @property
    def is_softmax(self) -> bool:
        """True if it is the plain softmax, which a platform's own kernels compute."""
        return type(self).weights is Softmax.weights

    def init_layer(self, num_heads: int) -> Params:
        """Returns the initial parameters of a layer with so many heads: a dict."""
        return {}

    def check(self, params: Params, num_heads: int) -> None:
        """Raises ValueError if `params` are not what the method needs."""
        if params is None or (isinstance(params, Mapping) and not params):
            return
        got = sorted(params) if isinstance(params, Mapping) else repr(params)
        raise ValueError(
            f"{type(self).__name__} has no parameters, got {got}; give "
            "normalizer_params=None."
        )

    def weights(
        self,
        params: Params,
        logits: Logits,
        visible: Bool[Array, "#B #N T S"],
        query: Tokens,
        key: Tokens,
        counts: Int[Array, "#B T #N"] | None = None,
    ) -> tuple[Float[Array, "B N T S"], Float[Array, "B N T"] | None]:
        """Returns weights, and the log-sum-exp of each row if there is such a thing.

        Args:
            params: parameters of the normalizer.
            logits: float32 logits of whole rows.
            visible: which of them count.
            query: the queries.
            key: the keys.
            counts: visible keys of each query, if `needs_counts`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define weights.")

    def sharpness(self, entropy: Float[Array, "*B"]) -> Float[Array, "*B"]:
        """Returns the factor on a row's logits, from its entropy in nats."""
        raise NotImplementedError(f"{type(self).__name__} must define sharpness.")

    def init_carry(self, rows: tuple[int, int, int]) -> Any:
        """Returns the state before the nearest key of rows of shape `[B, N, T]`."""
        return ()

    def log_weights(
        self,
        params: Params,
        state: Any,
        logits: Logits,
        visible: Bool[Array, "#B #N T S"],
        counts: Int[Array, "#B T #N"] | None = None,
    ) -> tuple[Any, Logits]:
        """Returns the state after a block, nearest keys first, and log weights."""
        return state, logits

    def finish(
        self, params: Params, out: Float[Array, "B T N H"], lse: Float[Array, "B N T"]
    ) -> tuple[Float[Array, "B T N H"], Float[Array, "B N T"] | None]:
        """Returns outputs and log-sum-exp after the last block."""
        return out, lse


@dataclasses.dataclass(frozen=True)
class Softmax(Normalizer):
    """`exp(l) / sum exp(l)` over visible keys; a row without any has zero weights."""

    summary: ClassVar[str] = "weights exp(l) over their sum"

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights and the log-sum-exp, minus infinity where nothing is seen."""
        logits = jnp.where(visible, logits, NEGATIVE)
        top = jax.lax.stop_gradient(logits.max(-1, keepdims=True))
        unnormalized = jnp.where(visible, jnp.exp(logits - top), 0.0)
        total = unnormalized.sum(-1, keepdims=True)
        some = total > 0
        weights = unnormalized / jnp.where(some, total, 1.0)
        lse = jnp.where(some, top + jnp.log(jnp.where(some, total, 1.0)), -jnp.inf)
        return weights, lse[..., 0]


@dataclasses.dataclass(frozen=True)
class MeanLogit(Softmax):
    """A softmax that mixes the logits themselves: the first pass of an entropy."""

    measures: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class SinkSoftmax(Softmax):
    """A softmax with one more logit that has no value, so that a head may abstain.

    `exp(l) / (exp(z) + sum exp(l))`, z a learned logit of each head in the parameter
    "sink", `[N]`, or 0 without parameters.

    Attributes:
        initial: where z starts in each head of a model's layers; None has it 0 there,
            and not learned.

    References:
        Xiao et al. 2023, arXiv 2309.17453, section 3.3 (zero and learned sink); learned
        logit of each head: gpt-oss 2025; zero: Miller 2023, "softmax1".
    """

    initial: float | None = 0.0

    summary: ClassVar[str] = "a softmax with one more logit, learned, and no value"

    def init_layer(self, num_heads):
        """Returns a sink for each head, or nothing."""
        if self.initial is None:
            return {}
        return {"sink": jnp.full((num_heads,), self.initial, jnp.float32)}

    def check(self, params, num_heads):
        """Raises ValueError unless there is no parameter or a sink for each head."""
        if params is None or (isinstance(params, Mapping) and not params):
            return
        sinks = params if isinstance(params, Mapping) else {}
        if [*sinks] == ["sink"] and _is_array(sinks["sink"], (num_heads,)):
            return
        is_array = lambda x: hasattr(x, "shape")
        got = jax.tree.map(lambda x: x.shape if is_array(x) else x, params)
        raise ValueError(
            f'SinkSoftmax takes {{"sink": [{num_heads}]}} or nothing, got {got}.'
        )

    def _sink(self, params) -> Float[Array, "1 #N 1"]:
        if not params:
            return jnp.zeros((1, 1, 1), jnp.float32)
        return params["sink"].astype(jnp.float32)[None, :, None]

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights that sum to less than one, and the lse with the sink."""
        weights, lse = super().weights(params, logits, visible, query, key)
        share = jax.nn.sigmoid(lse - self._sink(params))
        return weights * share[..., None], jnp.logaddexp(lse, self._sink(params))

    def finish(self, params, out, lse):
        """Returns outputs times the keys' share, and the lse with the sink."""
        share = jax.nn.sigmoid(lse - self._sink(params))
        out = out * jnp.swapaxes(share, 1, 2)[..., None]
        return out, jnp.logaddexp(lse, self._sink(params))


@dataclasses.dataclass(frozen=True)
class Sigmoid(Normalizer):
    """`sigmoid(l + b)`: each weight for itself, rows need not sum to one.

    Attributes:
        bias: b; None is `-log n`, n the number of keys that the query sees, which keeps
            a row's sum near one at the start.

    References:
        Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid
        Self-Attention", arXiv 2409.04431.

    Departures:
        n counts visible keys, so padding changes nothing; the paper's is the length.
    """

    bias: float | None = None

    normalized: ClassVar[bool] = False
    has_lse: ClassVar[bool] = False
    summary: ClassVar[str] = "each weight a sigmoid of its own"

    @property
    def needs_counts(self) -> bool:
        """True if the bias follows the number of visible keys."""
        return self.bias is None

    def _shifted(self, logits, counts):
        if self.bias is not None:
            return logits + self.bias
        n = jnp.maximum(counts, 1).astype(jnp.float32)
        return logits - jnp.swapaxes(jnp.log(n), 1, 2)[..., None]

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights."""
        weights = jax.nn.sigmoid(self._shifted(logits, counts))
        return jnp.where(visible, weights, 0.0), None

    def log_weights(self, params, state, logits, visible, counts=None):
        """Returns log weights."""
        logits = jax.nn.log_sigmoid(self._shifted(logits, counts))
        return state, jnp.where(visible, logits, NEGATIVE)

    def finish(self, params, out, lse):
        """Returns outputs as they are: there is no log-sum-exp."""
        return out, None


@dataclasses.dataclass(frozen=True)
class StickBreaking(Normalizer):
    """Each key, nearest first, takes a share of what nearer keys have left.

    `A_ij = beta_ij prod_{j < t < i} (1 - beta_it), beta = sigmoid(logits)`, products
    over visible keys. Rows sum to at most one. Needs no position encoding. Keys count
    in order of index (`attend` sorts them where they are stored otherwise). The paper's
    queries see the strict past, `Causal() & ~Window(0, 0)`.

    References:
        Tan et al. 2024, "Scaling Stick-Breaking Attention", arXiv 2410.17980.
    """

    normalized: ClassVar[bool] = False
    has_lse: ClassVar[bool] = False
    has_carry: ClassVar[bool] = True
    causal_only: ClassVar[bool] = True
    summary: ClassVar[str] = "near keys first, each takes a share of what is left"

    def init_carry(self, rows):
        """Returns the logarithm of what is left of the stick: zero."""
        return jnp.zeros(rows, jnp.float32)

    def log_weights(self, params, state, logits, visible, counts=None):
        """Returns the logarithm of what is left after a block, and log weights."""
        kept = jnp.where(visible, -jax.nn.softplus(logits), 0.0)
        nearer = jax.lax.cumsum(kept, axis=3, reverse=True) - kept
        log_weights = jax.nn.log_sigmoid(logits) + nearer + state[..., None]
        return state + kept.sum(-1), jnp.where(visible, log_weights, NEGATIVE)

    def weights(self, params, logits, visible, query, key, counts=None):
        """Returns weights."""
        state = self.init_carry(logits.shape[:-1])
        _, log_weights = self.log_weights(params, state, logits, visible)
        return jnp.exp(log_weights), None

    def finish(self, params, out, lse):
        """Returns outputs as they are: there is no log-sum-exp."""
        return out, None


def _is_array(x: Any, shape: tuple[int, ...]) -> bool:
    return hasattr(x, "dtype") and tuple(x.shape) == shape
