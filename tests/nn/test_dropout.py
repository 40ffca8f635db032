"""Dropout: the promised rate, independent keys and elements, and no shape effects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ropejax.nn.dropout import dropout, hashed_bits

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_drops_the_stated_fraction_and_keeps_the_mean(rng, rate):
    x = jnp.ones((400, 1000))
    out = np.asarray(dropout(x, rate, rng))
    dropped = (out == 0).mean()
    # Five standard errors of a binomial fraction.
    assert abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / out.size)
    np.testing.assert_allclose(out[out != 0], 1 / (1 - rate), rtol=1e-6)


def test_masks_of_different_keys_rows_and_neighbours_are_uncorrelated(rng):
    keys = jax.random.split(rng, 4)
    kept = np.stack([dropout(jnp.ones((64, 512)), 0.5, key) > 0 for key in keys])
    kept = kept.astype(float) - 0.5
    bound = 5 * 0.25 / np.sqrt(kept[0].size)
    for other in kept[1:]:
        assert abs((kept[0] * other).mean()) < bound
    for step in (1, 2, 64):
        assert abs((kept[0][:, step:] * kept[0][:, :-step]).mean()) < 1.2 * bound
    assert abs((kept[0][1:] * kept[0][:-1]).mean()) < 1.2 * bound


def test_hashed_bits_are_uniform_in_every_bit_and_byte(rng):
    seeds = jax.random.bits(rng, (2,), jnp.uint32)
    bits = np.asarray(hashed_bits(seeds, (1, 1 << 16))[0])
    ones = (bits[:, None] >> np.arange(32)) & 1
    assert np.abs(ones.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits))
    for shift in (0, 8, 16, 24):
        counts = np.bincount((bits >> shift) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_longer_rows_and_more_rows_only_add_to_the_mask(rng):
    long = dropout(jnp.ones((6, 20, 8)), 0.5, rng)
    np.testing.assert_array_equal(
        dropout(jnp.ones((4, 12, 8)), 0.5, rng), long[:4, :12]
    )


def test_no_key_or_no_rate_returns_the_input_unchanged(rng):
    x = jax.random.normal(rng, (3, 5))
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, rng) is x


def test_mask_is_the_same_on_one_device_and_on_eight(rng):
    x = jnp.ones((8, 32))
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    alone = jax.jit(dropout, static_argnums=1)(x, 0.5, rng)
    spread = jax.jit(dropout, static_argnums=1)(jax.device_put(x, rows), 0.5, rng)
    np.testing.assert_array_equal(alone, spread)
    assert len({tuple(row) for row in np.asarray(spread)}) == 8  # fault B20


def test_vmap_over_keys_equals_one_key_at_a_time(rng):
    keys = jax.random.split(rng, 3)
    x = jnp.ones((4, 16))
    together = jax.vmap(lambda key: dropout(x, 0.3, key))(keys)
    np.testing.assert_array_equal(
        together, jnp.stack([dropout(x, 0.3, key) for key in keys])
    )


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_rate_outside_its_range_is_refused(rng, rate):
    with pytest.raises(ValueError, match="dropout rate"):
        dropout(jnp.ones(3), rate, rng)
