"""How spread out attention is, and how far it reaches, by layer and head.

As sequences grow past those of training, attention that was sharp tends to spread over
more and more keys; an entropy that stays a fixed share of log n is a spread that grows
with the length, and a fixed entropy is a fixed number of keys attended to.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ropejax.analysis.passes import embed, trace_layers
from ropejax.nn import TransformerSpec
from ropejax.positions.base import Placement
from ropejax.tasks import Batch
from ropejax.tokens import Tokens
from ropejax.typing import Params


class AttentionStatistics(NamedTuple):
    """Means over the queries of a batch, `[layers, heads]`.

    Weights count as shares of their row, which normalizers such as the sigmoid or the
    squared ReLU leave at another sum than one. Entropy and distance are means over
    queries with any weight at all, NaN where none has.

    Attributes:
        entropy: in nats.
        largest: the entropy of uniform attention, log n, in nats.
        of_largest: entropy over log n, n being the keys that a query sees; 1 where all
            of them get the same weight.
        distance: mean distance of attended keys, in tokens.
        of_uniform: the same if all visible keys had the same weight.
    """

    entropy: Float[np.ndarray, "M N"]
    largest: Float[np.ndarray, "M N"]
    of_largest: Float[np.ndarray, "M N"]
    distance: Float[np.ndarray, "M N"]
    of_uniform: Float[np.ndarray, "M N"]


def attention_entropy(weights: Float[Array, "*B T S"]) -> Float[Array, "*B T"]:
    """Returns the entropy of each query's weights, `-sum_s w_s log w_s`, in nats.

    Args:
        weights: nonnegative, each row's sum 1, `[*B, T, S]`.
    """
    logs = jnp.log(jnp.where(weights > 0, weights, 1.0))
    return -jnp.sum(weights * logs, axis=-1)


def mean_distance(
    weights: Float[Array, "*B T S"], query: Tokens, key: Tokens
) -> Float[Array, "*B T"]:
    """Returns how far attended keys are on average, `sum_s w_s |s - t|`, in tokens.

    Distance is counted in the order of tokens, not in positions, which may be random.

    Args:
        weights: each row's sum 1, `[B, N, T, S]`.
        query: the queries.
        key: the keys.
    """
    apart = jnp.abs(key.index[:, None, None, :] - query.index[:, None, :, None])
    return jnp.sum(weights * apart, axis=-1)


def attention_statistics(
    model: TransformerSpec, params: Params, batch: Batch, placement: Placement
) -> AttentionStatistics:
    """Returns means of entropy and distance over all real tokens of a batch.

    Args:
        model: how the model is made.
        params: its parameters.
        batch: the batch.
        placement: where its tokens are.
    """
    valid = np.arange(batch.tokens.shape[1]) < np.asarray(batch.lengths)[:, None]
    seen = jax.device_get(_seen(model, params, batch.tokens, placement, valid))
    attends = valid[:, None] & seen["attends"]
    return AttentionStatistics(
        entropy=_mean(seen["entropy"], attends),
        largest=_mean(seen["largest"], valid),
        of_largest=_mean(seen["of_largest"], attends & (seen["count"] > 1)),
        distance=_mean(seen["distance"], attends),
        of_uniform=_mean(seen["of_uniform"], valid),
    )


@partial(jax.jit, static_argnames="model")
def _seen(
    model: TransformerSpec,
    params: Params,
    tokens: Int[Array, "B L"],
    placement: Placement,
    valid: Bool[Array, "B L"],
) -> dict[str, Float[Array, "M B N L"]]:
    """What `_look` finds in each layer."""
    bound = model.bind(params)
    x = embed(bound, tokens, placement, valid=valid)
    return trace_layers(bound, x, placement, valid=valid, look=_look).looked


def _look(
    weights: Float[Array, "B N L L"], visible: Bool[Array, "B N L L"], where: Tokens
) -> dict[str, Float[Array, "B N L"]]:
    """Numbers of each query, small enough to be kept."""
    visible = jnp.broadcast_to(visible, weights.shape)
    count = visible.sum(-1)
    total = weights.sum(-1, keepdims=True)
    shares = weights / jnp.where(total > 0, total, 1.0)
    entropy = attention_entropy(shares)
    log_count = jnp.log(jnp.maximum(count, 1))
    uniform = visible / jnp.maximum(count, 1)[..., None]
    return {
        "count": count,
        "attends": total[..., 0] > 0,
        "entropy": entropy,
        "largest": log_count,
        "of_largest": entropy / jnp.log(jnp.maximum(count, 2)),
        "distance": mean_distance(shares, where, where),
        "of_uniform": mean_distance(uniform, where, where),
    }


def _mean(values: np.ndarray, where: np.ndarray) -> Float[np.ndarray, "M N"]:
    """Means over rows and queries, NaN where no query counts."""
    values = np.asarray(values, np.float64)
    where = where[:, None] if where.ndim == 2 else where
    where = np.broadcast_to(where, values.shape)
    total, count = np.where(where, values, 0).sum((1, 3)), where.sum((1, 3))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
