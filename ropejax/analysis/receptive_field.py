"""How far an output sees: the gradient of a hidden state by every input embedding."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ropejax.analysis.passes import embed, trace_layers
from ropejax.nn import TransformerSpec
from ropejax.positions.base import Placement
from ropejax.typing import Params


def receptive_field(
    model: TransformerSpec,
    params: Params,
    tokens: Int[Array, "B L"],
    placement: Placement,
    queries: Int[Array, " Q"],
    *,
    valid: Bool[Array, "B L"] | None = None,
) -> Float[Array, "B Q L"]:
    """Returns how strongly logits at some tokens depend on each input embedding.

    `|| d logits_t / d x_s ||`, the Frobenius norm of the Jacobian of all logits at
    token t by the embedding of token s; exactly zero where s cannot reach t.

    Args:
        model: how the model is made.
        params: its parameters.
        tokens: symbols, `[B, L]`.
        placement: where they are.
        queries: indices t of the tokens whose outputs are looked at, `[Q]`.
        valid: False at padding, `[B, L]`; None if there is none.

    Returns:
        Norms `[B, Q, L]`, float32.
    """
    bound = model.bind(params)
    x = embed(bound, tokens, placement, valid=valid)

    def logits(x):
        hidden = trace_layers(bound, x, placement, valid=valid).hidden[-1]
        return bound.read_out(hidden)[:, queries]

    out, pull_back = jax.vjp(logits, x)

    def of_one_output(direction):
        # Rows do not see each other, so one pass serves all rows of the batch.
        return pull_back(jnp.broadcast_to(direction, out.shape))[0]

    num_queries, classes = out.shape[1:]
    each = jnp.eye(num_queries * classes).reshape(-1, num_queries, classes)
    gradients = jax.lax.map(of_one_output, each.astype(out.dtype))
    squares = jnp.sum(gradients.astype(jnp.float32) ** 2, axis=-1)
    squares = squares.reshape(num_queries, classes, *squares.shape[1:]).sum(1)
    return jnp.sqrt(jnp.swapaxes(squares, 0, 1))
