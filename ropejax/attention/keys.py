"""What is done to keys and values before any engine sees them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.attention.normalizers import Normalizer
from ropejax.encodings.sequence_order import in_sequence
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
