"""What is done to queries, keys and values before any engine sees them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.attention.normalizers import Normalizer
from ropejax.encodings.base import Encoding
from ropejax.encodings.sequence_order import in_sequence
from ropejax.masks import Mask
from ropejax.tokens import Tokens

Queries = Float[Array, "B T N H"]
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


def finite_at_padding(q: Queries, query: Tokens) -> Queries:
    """Returns queries with zeros where padding holds NaN or infinity.

    Nobody looks at what they become; but on the way back to the keys, their cotangent
    of zero would turn into NaN.

    Args:
        q: queries.
        query: where they are, and which are padding.
    """
    if query.valid is None:
        return q
    return jnp.where(query.valid[..., None, None] | jnp.isfinite(q), q, 0)


def without_hidden(
    k: Keys, v: Keys, query: Tokens, key: Tokens, mask
) -> tuple[Keys, Keys]:
    """Returns keys and values with zeros where order alone hides them from all queries.

    As at padding, what stands there may be anything: the unused end of a buffer under a
    causal mask. A mask is asked about the first and the last query and the range from
    one to the other, so this costs as little as a look at each key; where queries and
    keys are the same tokens, and the mask shows each to itself, it costs nothing.

    Args:
        k: keys.
        v: values.
        query: where the queries are, all of them.
        key: where they are.
        mask: a mask of `ropejax.masks`; anything else cannot be asked.
    """
    if not isinstance(mask, Mask) or (query.index is key.index and mask.shows_itself):
        return k, v
    first, last = (end[:, None] for end in (query.index.min(1), query.index.max(1)))
    second = jnp.minimum(first + 1, last)
    ranges = ((first, first), (second, jnp.maximum(second, last - 1)), (last, last))
    seen = jnp.array(False)
    for ends in ranges:
        seen = seen | mask.block_visible(*ends, key.index, key.index)
    seen = jnp.broadcast_to(seen, (*seen.shape[:-1], key.length))[..., None, None]
    return jnp.where(seen, k, 0), jnp.where(seen, v, 0)


def ordered_for(
    methods: tuple[Encoding | Normalizer, ...], k: Keys, v: Keys, key: Tokens
) -> tuple[Keys, Keys, Tokens]:
    """Returns keys in order of index, if a method goes by the keys in between.

    Args:
        methods: the encoding, and what turns logits into weights.
        k: keys.
        v: values.
        key: where they are.
    """
    if key.consecutive_index or not any(method.has_carry for method in methods):
        return k, v, key
    sort = lambda x: in_sequence(x, key, 1)
    moved = key.replace(**jax.tree.map(sort, key.per_token()))
    return sort(k), sort(v), moved.replace(consecutive_positions=False)
