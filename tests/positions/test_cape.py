"""CAPE: what is drawn for a row, what for a token, and in which order it acts."""

import jax
import numpy as np
import pytest

from ropejax.positions import CAPE

ROWS = 3000


def place(scheme, length, num_rows=ROWS):
    lengths = np.full(num_rows, length)
    run = jax.jit(lambda rng: scheme(rng, lengths, num_tokens=length + 2).positions)
    return np.asarray(run(jax.random.key(1)), np.float64)[:, :length]


def test_rows_are_shifted_first_and_then_stretched():
    """With no jitter a row is `(t + shift) stretch`, and both can be read off it."""
    at = place(CAPE(max_shift=3.0, max_jitter=0.0, max_stretch=2.0), 4)
    stretch = np.diff(at, axis=1)
    np.testing.assert_allclose(stretch, stretch[:, :1] * np.ones(3), rtol=1e-5)
    shift, power = at[:, 0] / stretch[:, 0], np.log2(stretch[:, 0])
    for drawn, most in ((shift, 3.0), (power, 1.0)):  # uniform, of mean 0
        assert np.abs(drawn).max() <= most * (1 + 1e-5)
        assert np.abs(drawn.mean()) < 4.5 * most / np.sqrt(3 * ROWS)
        assert np.abs((drawn**2).mean() / most**2 - 1 / 3) < 4.5 * 0.3 / np.sqrt(ROWS)
    assert np.abs(np.corrcoef(shift, power)[0, 1]) < 4.5 / np.sqrt(ROWS)


def test_every_token_is_jittered_apart_and_keeps_its_place_in_the_order():
    at = place(CAPE(max_shift=0.0, max_stretch=1.0), 3)
    jitter = at - np.arange(3)
    assert np.abs(jitter).max() <= 0.5
    assert np.abs((jitter**2).mean() - 1 / 12) < 4.5 * 0.075 / np.sqrt(3 * ROWS)
    between = np.corrcoef(jitter.T)[np.triu_indices(3, 1)]
    assert np.abs(between).max() < 4.5 / np.sqrt(ROWS)
    assert (np.diff(at, axis=1) >= 0).all()


def test_centred_rows_count_from_their_middle():
    still = CAPE(0.0, 0.0, 1.0, centred=True)
    plain, lengths = CAPE(0.0, 0.0, 1.0), np.array([4, 1])
    at, usual = jax.jit(
        lambda rng: [
            scheme(rng, lengths, num_tokens=4).positions for scheme in (still, plain)
        ]
    )(jax.random.key(0))
    np.testing.assert_array_equal(at, [[-1.5, -0.5, 0.5, 1.5], [0, 0, 0, 0]])
    assert not still.rows_differ
    np.testing.assert_array_equal(usual[0], np.arange(4))


@pytest.mark.fast
def test_settings_out_of_range_are_refused():
    for name in ("max_shift", "max_jitter"):
        with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
            CAPE(**{name: -1.0})
    with pytest.raises(ValueError, match="max_stretch must be at least 1, got 0.5"):
        CAPE(max_stretch=0.5)
    with pytest.raises(ValueError, match="put 2 tokens at positions .* beyond int32"):
        CAPE(max_shift=3e9).check(2)
    assert CAPE(max_shift=2.0, max_jitter=0.5, max_stretch=2.0).position_bound(5) == 14
