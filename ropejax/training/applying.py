"""A model on a batch: its logits, or what is read of them where they are many.

Logits of a large vocabulary are the largest array of a language model: of 16,384 tokens
and 49,152 symbols they take 3 GiB, several times over while a loss is made of them. So
the last hidden states are read out in stretches of tokens then, one after the other,
and once more in the backward pass. Not so on a mesh that cuts the tokens of a row, nor
in training on one that cuts rows (`learns_at_once`).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.nn import TransformerSpec
from ropejax.nn.looped import LoopSpan
from ropejax.positions.base import Placement
from ropejax.sharding import Sharding
from ropejax.tasks.base import Batch
from ropejax.training.losses import TokenLosses, token_losses
from ropejax.typing import Params, Rng

LOGITS_BYTES = 2**27
"""Most bytes of a model's logits that are read out at once on a device."""


def apply_model(
    model: TransformerSpec,
    params: Params,
    batch: Batch,
    placement: Placement,
    *,
    rng: Rng | None = None,
    first_row: int | Array = 0,
    span: LoopSpan | None = None,
) -> Float[Array, "B P V"]:
    """Returns the model's logits at every token of a batch.

    Args:
        model: how the model is made.
        params: its parameters.
        batch: the batch.
        placement: where its tokens are.
        rng: PRNG key for dropout; None at evaluation.
        first_row: row of the whole batch with which these start: dropout.
        span: the loops of a looped model to run; all if None.

    Returns:
        Logits `[B, P, V]`.
    """
    given = _given(batch, rng, first_row, span)
    return model.bind(params)(batch.tokens, placement, **given)


def apply_and_read(
    model: TransformerSpec,
    params: Params,
    batch: Batch,
    placement: Placement,
    *,
    rng: Rng | None = None,
    first_row: int | Array = 0,
    span: LoopSpan | None = None,
    sharding: Sharding | None = None,
    at_once: bool = False,
) -> TokenLosses:
    """Returns loss and answer at each token: `token_losses` of `apply_model`.

    Args:
        model: see `apply_model`, like all that follow.
        params: its parameters.
        batch: the batch.
        placement: where its tokens are.
        rng: PRNG key for dropout.
        first_row: row of the whole batch with which these start.
        span: the loops of a looped model to run.
        sharding: the mesh that rows and model are spread over. Where the tokens of a
            row are, all are read at once.
        at_once: read all logits at once, whatever they take.
    """
    bound = model.bind(params)
    given = _given(batch, rng, first_row, span)
    parts = 1
    if hasattr(bound, "hidden_states") and not at_once:
        parts = _parts(batch.tokens.shape, model.num_outputs, sharding)
    if parts == 1:
        logits = bound(batch.tokens, placement, **given)
        return token_losses(logits, batch.targets, batch.target_mask)
    states = bound.hidden_states(batch.tokens, placement, **given)
    return _read_in_parts(bound.read_out, states, batch, parts)


def learns_at_once(sharding: Sharding | None) -> bool:
    """Returns whether training reads all logits at once: where a mesh cuts rows.

    Its devices would add the gradient of the readout up once for each stretch. Where
    the tokens of a row are cut, all are read at once anyway.
    """
    return sharding is not None and sharding.batch_parts * sharding.length_parts > 1


def _given(
    batch: Batch, rng: Rng | None, first_row: int | Array, span: LoopSpan | None
) -> dict[str, Any]:
    """Arguments of a model for a batch; only models with loops take a span."""
    valid = jnp.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    given = {"valid": valid, "rng": rng, "first_row": first_row}
    return given if span is None else given | {"span": span}


def _parts(shape: tuple[int, int], outputs: int, sharding: Sharding | None) -> int:
    """In how many stretches of tokens `[B, P]` are read out."""
    rows, tokens = shape
    if sharding is not None:
        if sharding.length_parts > 1:
            return 1
        rows = -(-rows // sharding.batch_parts)
    return min(tokens, -(-4 * rows * tokens * outputs // LOGITS_BYTES))


def _read_in_parts(
    read_out: Any, states: Float[Array, "B P D"], batch: Batch, parts: int
) -> TokenLosses:
    """Reads hidden states out in stretches of tokens, the last one filled up."""
    rows, tokens = batch.tokens.shape
    size = -(-tokens // parts)
    parts = -(-tokens // size)
    filling = parts * size - tokens

    def cut(x):
        filled = jnp.pad(x, [(0, 0), (0, filling)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(filled.reshape(rows, parts, size, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def read(part):
        states, targets, mask = part
        return token_losses(read_out(states), targets, mask)

    told = jax.lax.map(read, (cut(states), cut(batch.targets), cut(batch.target_mask)))
    joined = lambda x: jnp.moveaxis(x, 0, 1).reshape(rows, -1)[:, :tokens]
    return jax.tree.map(joined, told)
