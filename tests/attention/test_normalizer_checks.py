"""What holds normalizers to their contract passes ours, and finds faults."""

import jax.numpy as jnp
import pytest

from ropejax import testing
from ropejax.attention import Sigmoid, Softmax, StickBreaking
from ropejax.nn.weighting import NORMALIZERS


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_keep_the_contract(name):
    testing.check_normalizer(NORMALIZERS[name]())


class OfWholeRows(Softmax):
    """Halves the weights of rows, and does not do so in blocks."""

    def weights(self, params, logits, visible, query, key, counts=None):
        weights, lse = super().weights(params, logits, visible, query, key)
        return weights / 2, lse


class ByPlace(StickBreaking):
    """Counts from the last key that is stored."""

    has_carry = False
    blockwise = False


class SeesPadding(Sigmoid):
    """Divides by the keys that there are, not by those that are seen."""

    blockwise = False

    def weights(self, params, logits, visible, query, key, counts=None):
        weights, lse = super().weights(params, logits, visible, query, key, counts)
        return weights / key.length, lse


class Nameless(Softmax):
    summary = ""


class NotFinite(Softmax):
    """Has an infinite gradient where a weight is zero."""

    blockwise = False

    def weights(self, params, logits, visible, query, key, counts=None):
        weights, lse = super().weights(params, logits, visible, query, key)
        return jnp.sqrt(weights), lse


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        (OfWholeRows(), "keys in blocks differ from whole rows"),
        (ByPlace(), "keys stored in another order"),
        (SeesPadding(), "padding changes results"),
        (NotFinite(), "not all finite"),
        (Nameless(), "has no summary"),
    ],
)
def test_a_faulty_normalizer_is_told_what_it_breaks(faulty, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_normalizer(faulty)
