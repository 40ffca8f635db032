"""RePo: positions that a layer computes from its tokens, one number a head.

Order in the text need not be the best order for attention. A small gated network reads
each token's hidden state and says where the token is, for every head; rotary attention
then works on those numbers. What belongs together can move together, however far apart
it was written.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.typing import Params, Rng


def init_learned_positions(
    rng: Rng,
    embed_dim: int,
    num_heads: int,
    *,
    hidden_dim: int | None = None,
    init_std: float = 0.02,
) -> Params:
    """Returns the weights of one layer's position network.

    Args:
        rng: PRNG key.
        embed_dim: width of the hidden states, D.
        num_heads: positions a token, N.
        hidden_dim: width inside, M; `embed_dim // 8` if None, as published.
        init_std: standard deviation of the normal weights.

    Returns:
        `{"gate": [D, M], "content": [D, M], "out": [M, N]}`, float32.

    Raises:
        ValueError: if the width inside is below 1, or init_std is negative.
    """
    hidden_dim = embed_dim // 8 if hidden_dim is None else hidden_dim
    if hidden_dim < 1:
        raise ValueError(
            f"hidden_dim must be at least 1, got {hidden_dim} for {embed_dim=}; give "
            "hidden_dim or widen the model."
        )
    if not init_std >= 0:
        raise ValueError(f"init_std must be at least 0, got {init_std}.")
    shapes = {
        "gate": (embed_dim, hidden_dim),
        "content": (embed_dim, hidden_dim),
        "out": (hidden_dim, num_heads),
    }
    keys = jax.random.split(rng, len(shapes))
    return {
        name: init_std * jax.random.normal(key, shape, jnp.float32)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def learned_positions(
    params: Params, hidden: Float[Array, "*B L D"]
) -> Float[Array, "*B L N"]:
    """Returns each token's position for every head, from its hidden state.

    `out . (silu(gate . h) * (content . h))`. There is no bias, no order and no bound:
    positions are real numbers of either sign, and a token's own content is all they
    depend on (order reaches them through earlier layers, as a causal mask makes it).

    They take the place of positions in rotary attention, head by head: the angle of
    pair r in head n at token t is `positions[..., t, n] * frequency[r]`, for queries
    and keys alike. With fewer key heads than query heads, give the network one output a
    key head and let a group of query heads share it, so that a query and its keys
    agree.

    Args:
        params: what `init_learned_positions` returns.
        hidden: what queries and keys are projected from, `[*B, L, D]`.

    Returns:
        Positions in tokens, `[*B, L, N]`, float32 whatever the input: as angles' input
        they need the precision.

    References:
        "RePo: language models with context re-positioning" (2025), arXiv:2512.14391;
        SakanaAI/repo at c0488bd, `OLMo/olmo/model.py`.

    Departures:
        Positions stay in float32 where the authors' follow the hidden state's type.
    """
    hidden = hidden.astype(jnp.float32)
    gate = jax.nn.silu(hidden @ params["gate"].astype(jnp.float32))
    content = hidden @ params["content"].astype(jnp.float32)
    return (gate * content) @ params["out"].astype(jnp.float32)
