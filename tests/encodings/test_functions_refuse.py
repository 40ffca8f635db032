"""Pure functions refuse what the settings of their encodings refuse, by name."""

import jax.numpy as jnp
import pytest

from ropejax.encodings import Dims, Rotary
from ropejax.encodings.alibi import alibi_slopes
from ropejax.encodings.angles import rotary_frequencies
from ropejax.encodings.buckets import deberta_buckets, t5_buckets
from ropejax.encodings.hard_alibi import hard_alibi
from ropejax.encodings.interpolation import HighestFrequencies
from ropejax.encodings.log_scale import log_scale
from ropejax.encodings.xpos import xpos_decay
from ropejax.positions import Randomized, grid_positions, segments_from_lengths
from ropejax.tasks import ReverseString

pytestmark = pytest.mark.fast
COUNT = jnp.array([5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: log_scale(COUNT, train_length=float("nan")), "train_length must be"),
        (lambda: log_scale(COUNT, train_length="16"), "train_length must be"),
        (lambda: log_scale(COUNT, least=2.5), "least must be a whole number"),
        (lambda: alibi_slopes(2.5), "num_heads must be a whole number, got 2.5"),
        (lambda: alibi_slopes(None), "num_heads must be a whole number"),
        (lambda: alibi_slopes(True), "num_heads must be a whole number"),
        (lambda: t5_buckets(32.9, 128, False), "num_buckets must be a whole number"),
        (lambda: t5_buckets(32, 128.2, False), "max_distance must be a whole number"),
        (lambda: deberta_buckets(256.5, 512), "num_buckets must be a whole number"),
        (lambda: hard_alibi(4.0, 2), "num_heads must be a whole number"),
        (lambda: hard_alibi(4, True), "num_windowed must be a whole number"),
        (lambda: rotary_frequencies(8, float("inf")), "max_wavelength must be finite"),
        (lambda: rotary_frequencies(8.0), "head width must be a whole number"),
        (lambda: xpos_decay(7), "even width.*width=7"),
        (lambda: xpos_decay(8, float("inf")), "finite gamma.*gamma=inf"),
        (lambda: grid_positions(2.0, 3), "sizes must be a whole number"),
        (
            lambda: segments_from_lengths([3, 4], 5),
            r"one row is \[\[3, 4\]\]",
        ),
        (lambda: ReverseString().sample(7, [3], max_length=3), "rng must be one PRNG"),
        (lambda: Randomized(8)(None, COUNT, num_tokens=8), "rng must be one PRNG key"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_fraction_of_channels_is_not_cut_by_rounding():
    """0.58 * 100 is 57.99999999999999 in floating-point numbers, and meant as 58."""
    assert Rotary(rotary_fraction=0.58).rotary_width(100) == 58
    with pytest.raises(ValueError, match="is 29; make it even"):
        Rotary(rotary_fraction=0.29).check(Dims(1, 1, 100, 100))
    assert HighestFrequencies(fraction=0.58).ratios([1.0] * 50, 1e4).sum() == 29
