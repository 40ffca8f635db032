"""What kind of thing an encoding does, read off its hooks: what the gallery goes by."""

import jax

from experiments.gallery import numbers
from ropejax.encodings import Encoding
from ropejax.encodings.axial import MultiAxisRotary
from ropejax.encodings.distance import Distance
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.rotary import RotaryAttention
from ropejax.encodings.rotary_base import Rotation


def overrides(encoding: Encoding, *hooks: str) -> bool:
    """Returns True if the encoding has any of these hooks of its own."""
    kind = type(encoding)
    return any(getattr(kind, hook) is not getattr(Encoding, hook) for hook in hooks)


def does_nothing(encoding: Encoding) -> bool:
    """Returns True if every hook is at rest."""
    return type(encoding) is Encoding


def is_absolute(encoding: Encoding) -> bool:
    """Returns True if positions enter the embeddings."""
    return overrides(encoding, "embed")


def reads_tokens(encoding: Encoding) -> bool:
    """Returns True if what tokens say decides where they are."""
    inner = getattr(encoding, "inner", None)
    if inner is not None:
        return reads_tokens(inner)
    return overrides(encoding, "query_features", "key_features", "carry")


def is_rotary(encoding: Encoding) -> bool:
    """Returns True if positions turn pairs of channels."""
    return isinstance(encoding, Rotation) and not reads_tokens(encoding)


def is_on_axes(encoding: Encoding) -> bool:
    """Returns True if positions on several axes turn queries and keys."""
    return encoding.num_axes > 1 and overrides(encoding, "keys")


def deals_out_pairs(encoding: Encoding) -> bool:
    """Returns True if each pair turns by the position on one of several axes."""
    return isinstance(encoding, MultiAxisRotary)


def is_extended(encoding: Encoding) -> bool:
    """Returns True if frequencies are not those of RoPE."""
    return is_rotary(encoding) and type(encoding.frequencies) is not FrequencyMap


def bends_distances(encoding: Encoding) -> bool:
    """Returns True if the distance seen is not the true one."""
    return (
        isinstance(encoding, RotaryAttention)
        and type(encoding.distance) is not Distance
    )


def groups_positions(encoding: Encoding) -> bool:
    """Returns True if the distance seen depends on the positions themselves."""
    return bends_distances(encoding) and not encoding.distance.shift_invariant


def is_changed_rotary(encoding: Encoding) -> bool:
    """Returns True if a comparison with RoPE shows something."""
    return is_rotary(encoding) and (
        is_extended(encoding)
        or bends_distances(encoding)
        or type(encoding).product is not RotaryAttention.product
    )


def has_bound(encoding: Encoding) -> bool:
    """Returns True if RoFormer's bound holds: pairs turn on one axis and do no more."""
    return (
        isinstance(encoding, RotaryAttention)
        and type(encoding).product is RotaryAttention.product
        and not is_on_axes(encoding)
    )


def shows_pairs(encoding: Encoding) -> bool:
    """Returns True if single pairs are worth a look: all else is as in RoPE."""
    return (
        isinstance(encoding, RotaryAttention)
        and not is_on_axes(encoding)
        and not is_extended(encoding)
        and not bends_distances(encoding)
    )


def moves_products(encoding: Encoding) -> bool:
    """Returns True if positions change queries and keys, whatever these say."""
    return (
        overrides(encoding, "keys")
        and not reads_tokens(encoding)
        and not is_on_axes(encoding)
        and (is_rotary(encoding) or not overrides(encoding, "product"))
    )


def moves_values(encoding: Encoding) -> bool:
    """Returns True if positions change values and outputs."""
    return overrides(encoding, "values", "outputs")


def scales_weights(encoding: Encoding) -> bool:
    """Returns True if weights change behind the softmax, and logits do not."""
    return overrides(encoding, "mix") and not overrides(encoding, "product")


def scales_queries(encoding: Encoding) -> bool:
    """Returns True if queries change and keys do not."""
    return (
        overrides(encoding, "queries")
        and not overrides(encoding, "keys", "product")
        and not reads_tokens(encoding)
    )


def speaks_alone(encoding: Encoding) -> bool:
    """Returns True if queries and keys of zeros have logits: position by itself.

    Biases do; so do logits that are changed by more than what they are, and views of
    queries to which parameters are added.
    """
    if reads_tokens(encoding):
        return False
    if overrides(encoding, "bias"):
        return True
    learns = type(encoding).init_layer not in (Encoding.init_layer, Rotation.init_layer)
    if not (folds(encoding) or (overrides(encoding, "queries") and learns)):
        return False
    return bool(numbers.no_content(encoding, 2).values.any())


def is_bias(encoding: Encoding) -> bool:
    """Returns True if a number of each head and pair of positions is added."""
    return overrides(encoding, "bias") and not reads_tokens(encoding)


def is_table(encoding: Encoding) -> bool:
    """Returns True if those numbers are learned one by one."""
    if not is_bias(encoding):
        return False
    return "table" in jax.eval_shape(lambda: numbers.start(encoding))


def speaks_in_curves(encoding: Encoding) -> bool:
    """Returns True if position by itself is a smooth function of distance."""
    smooth = (is_bias(encoding) or folds(encoding)) and not is_table(encoding)
    return smooth and speaks_alone(encoding)


def speaks_in_numbers(encoding: Encoding) -> bool:
    """Returns True if position by itself comes of a table or a learned projection."""
    return speaks_alone(encoding) and not speaks_in_curves(encoding)


def is_bias_of_place(encoding: Encoding) -> bool:
    """Returns True if the bias depends on more than the distance."""
    return is_bias(encoding) and not encoding.shift_invariant


def folds(encoding: Encoding) -> bool:
    """Returns True if the last word on logits is the encoding's."""
    return overrides(encoding, "logits")


def meets_content(encoding: Encoding) -> bool:
    """Returns True if what positions do to logits depends on what tokens say."""
    product = overrides(encoding, "product") and not is_rotary(encoding)
    return product or reads_tokens(encoding) or folds(encoding)
