"""What is done to keys and values before any engine sees them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.attention.normalizers import Normalizer
from ropejax.encodings.sequence_order import in_sequence
from ropejax.masks import Mask
from ropejax.tokens import Tokens

Keys = Float[Array, "B S K H"]


def without_padding(k: Keys, v: Keys, key: Tokens) -> tuple[Keys, Keys]:
    """Returns keys and values with zeros at padding.

    A weight of zero does not rule out what it multiplies: zero times NaN is NaN, and
    padding may hold anything.

    Args:
        k: keys.
        v: values.
        key: where they are, and which are padding.
    """
    if key.valid is None:
        return k, v
    valid = key.valid[..., None, None]
    return jnp.where(valid, k, 0), jnp.where(valid, v, 0)


def without_hidden(
    k: Keys, v: Keys, query: Tokens, key: Tokens, mask
) -> tuple[Keys, Keys]:
    """Returns keys and values with zeros where order alone hides them from all queries.

    As at padding, what stands there may be anything: the unused end of a buffer under a
    causal mask. A mask is asked about all queries at once, so this costs as little as a
    look at each key; where queries and keys are the same tokens, a mask hides none of
    them from all, and it costs nothing.

    Args:
        k: keys.
        v: values.
        query: where the queries are, all of them.
        key: where they are.
        mask: a mask of `ropejax.masks`; anything else cannot be asked.
    """
    if not isinstance(mask, Mask) or query.index is key.index:
        return k, v
    ends = (end[:, None] for end in (query.index.min(1), query.index.max(1)))
    seen = mask.block_visible(*ends, key.index, key.index)
    seen = jnp.broadcast_to(seen, (*seen.shape[:-1], key.length))[..., None, None]
    return jnp.where(seen, k, 0), jnp.where(seen, v, 0)


def ordered_for(
    normalizer: Normalizer, k: Keys, v: Keys, key: Tokens
) -> tuple[Keys, Keys, Tokens]:
    """Returns keys in order of index, if weights depend on the keys in between.

    Args:
        normalizer: what turns logits into weights.
        k: keys.
        v: values.
        key: where they are.
    """
    if not normalizer.has_carry or key.consecutive_index:
        return k, v, key
    sort = lambda x: in_sequence(x, key, 1)
    moved = key.replace(**jax.tree.map(sort, key.per_token()))
    return sort(k), sort(v), moved.replace(consecutive_positions=False)
