"""Memory of the segment before: attention reaches back over what a layer saw earlier.

A long text is read a segment at a time, and every layer keeps the hidden states that
entered it (Transformer-XL). Queries are of the new segment alone, keys and values of
both; gradients stop at the memory. Each layer reaches back one segment further than the
layer above, so the context grows with depth. Positions and order go by value, as
everywhere: give the tokens of the next segment an offset.

    x, memory = layer_with_memory(block, x, tokens(L, offset=n * L), memory, ...)
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.attention import attend
from ropejax.nn.block import Layer
from ropejax.nn.parameters import as_arrays
from ropejax.nn.self_attention import SelfAttention
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Memory:
    """What a layer remembers.

    Attributes:
        hidden: hidden states that entered the layer, `[B, M, D]`.
        where: where their tokens are.
    """

    hidden: Float[Array, "B M D"]
    where: Tokens


def remembered(
    x: Float[Array, "B L D"],
    where: Tokens,
    memory: Memory | None = None,
    *,
    length: int | None = None,
) -> Memory:
    """Returns the memory after a segment; gradients stop here.

    Args:
        x: hidden states that entered the layer, `[B, L, D]`.
        where: where their tokens are.
        memory: the memory before the segment, or None.
        length: most tokens to remember, M; L, a segment, if None.

    Raises:
        ValueError: if length is not positive.
    """
    length = where.length if length is None else length
    if length < 1:
        raise ValueError(f"length must be positive, got {length}.")
    if memory is not None:
        x = jnp.concatenate([memory.hidden, x], axis=1)
        where = joined(memory.where, where)
    start = max(where.length - length, 0)
    kept = where.block(start, where.length - start)
    return Memory(jax.lax.stop_gradient(x[:, start:]), kept)


def layer_with_memory(
    block: Layer,
    x: Float[Array, "B L D"],
    where: Tokens,
    memory: Memory | None,
    *,
    shared: Params,
    mask=None,
    rng: Rng | None = None,
    length: int | None = None,
) -> tuple[Float[Array, "B L D"], Memory]:
    """Applies a layer to a segment, and returns its outputs and the memory after it.

    Args:
        block: the layer.
        x: hidden states of the segment, `[B, L, D]`.
        where: where its tokens are, behind those of the memory.
        memory: what this layer remembers, or None before the first segment.
        shared: the encoding's parameters that all layers share.
        mask: a mask of `ropejax.masks`, or None.
        rng: PRNG key for dropout; None at evaluation.
        length: most tokens to remember; a segment if None.

    Returns:
        Hidden states `[B, L, D]`, and the memory for the next segment.

    References:
        Dai et al. 2019, arXiv:1901.02860, section 3.2.

    Departures:
        Any encoding and mask will do, not only the paper's. Where a token shift looks
        back, the first tokens of a memory that was cut to its length have nothing
        before them.
    """
    settings = block.settings
    past = memory
    if memory is not None:
        entering = block.entering("attention", memory.hidden)
        past = dataclasses.replace(memory, hidden=entering)

    def over_both(h):
        return attend_with_memory(
            block.attention,
            h,
            where,
            past,
            shared=shared,
            mask=mask,
            implementation=settings.implementation,
            rng=rng,
        )

    after = remembered(x, where, memory, length=length)
    return block.around(x, over_both, rng=rng), after


def attend_with_memory(
    attention: SelfAttention,
    x: Float[Array, "B L D"],
    where: Tokens,
    memory: Memory | None,
    *,
    shared: Params,
    mask=None,
    implementation: str = "auto",
    rng: Rng | None = None,
) -> Float[Array, "B L D"]:
    """Attends from a segment to the memory and to itself.

    Args:
        attention: projections and encoding.
        x: hidden states of the segment, `[B, L, D]`.
        where: where its tokens are.
        memory: hidden states as x, earlier, or None.
        shared: the encoding's parameters that all layers share.
        mask: a mask of `ropejax.masks`, or None.
        implementation: which attention engine.
        rng: the layer's PRNG key for dropout; None at evaluation.

    Returns:
        Hidden states `[B, L, D]`.

    Raises:
        ValueError: if the normalizer needs the queries of the segments before.
    """
    if memory is None:
        return attention(
            x,
            where,
            shared=shared,
            mask=mask,
            implementation=implementation,
            rng=rng,
        )
    encoding, normalizer = attention.encoding, attention.weighting.normalizer
    if normalizer.needs_earlier_queries:
        raise ValueError(
            f"{type(normalizer).__name__} needs the queries of all tokens from the "
            "first on, of which a memory keeps none; read the whole text at once."
        )
    past = jax.lax.stop_gradient(memory.hidden).astype(x.dtype)
    both, key = jnp.concatenate([past, x], axis=1), joined(memory.where, where)
    own = as_arrays(attention.encoding_params)
    params = encoding.prepare(shared, own, where, key, attention.dims)
    (_, k_past, v_past), shift = attention.projected(past, memory.where)
    (q, k, v), _ = attention.projected(x, where, shift)
    k, v = (jnp.concatenate(two, axis=1) for two in ((k_past, k), (v_past, v)))
    _, state = encoding.key_features(params, past, k_past, memory.where)
    features, _ = encoding.key_features(params, both, k, key)
    out = attend(
        q,
        k,
        v,
        encoding=encoding,
        params=params,
        query=where.replace(
            features=encoding.query_features(params, x, q, where, state)
        ),
        key=key.replace(features=features),
        mask=mask,
        implementation=implementation,
        **attention.how(x, where, key, mask),
        **attention.weighting.dropping(rng, 0),
    )
    return attention.output(x, out)


def joined(before: Tokens, after: Tokens) -> Tokens:
    """Returns the tokens of both; nothing is promised to be consecutive.

    Args:
        before: earlier tokens.
        after: later tokens, which look alike: the same attributes, or `valid` in one.

    Raises:
        ValueError: if one side has segments or streams and the other has not, or
            distances are given.
    """
    if before.distances is not None or after.distances is not None:
        raise ValueError("memory takes positions, not a table of distances.")
    if before.valid is not None or after.valid is not None:
        before, after = (
            t if t.valid is not None else t.replace(valid=jnp.ones((1, t.length), bool))
            for t in (before, after)
        )
    parts = [t.replace(features=None).per_token() for t in (before, after)]
    if jax.tree.structure(parts[0]) != jax.tree.structure(parts[1]):
        raise ValueError(
            "memory and segment must both have segments and the same streams, or not."
        )

    def both(a, b):
        batch = max(a.shape[0], b.shape[0])
        a, b = (jnp.broadcast_to(x, (batch, *x.shape[1:])) for x in (a, b))
        return jnp.concatenate([a, b], axis=1)

    return after.replace(
        **jax.tree.map(both, *parts),
        consecutive_index=False,
        consecutive_positions=False,
    )
