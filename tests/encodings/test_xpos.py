"""xPos: golden logits, fading that never overflows, numbers of a fault report."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Rotary, XPos
from ropejax.encodings.angles import rotary_frequencies, rotation_angles
from ropejax.encodings.rotation import rotate
from ropejax.encodings.xpos import fading_product, xpos_decay
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import golden, logits, names, ones, placed, random


def exact(q, k, queries, keys, rates):
    """`sum_c q_c k_c exp(-rates_c (m - n))` in float64, 0 for later keys."""
    lag = np.asarray(queries, float)[:, None] - np.asarray(keys, float)[None]
    fading = np.exp(-np.maximum(lag, 0)[..., None] * rates)
    q, k = np.asarray(q, float)[0], np.asarray(k, float)[0]
    product = np.einsum("tnh,snh,tsh->nts", q, k, fading)
    return np.where(lag >= 0, product, 0)


@pytest.mark.parametrize("name", names("xpos_"))
def test_logits_and_scaled_rotations_match_torchscale(name):
    arrays, params, tolerance = golden(name)
    length, offset = params["length"], params["offset"]
    xpos = XPos(layout="interleaved", scale_base=params["scale_base"])
    q, k = (jnp.swapaxes(jnp.asarray(arrays[n]), 0, 1)[None] for n in "qk")
    where = placed(np.arange(length) + offset)
    ours = np.asarray(logits(xpos, q, k, where))[0]
    seen = np.tril(np.ones((length, length), bool))
    np.testing.assert_allclose(
        np.where(seen, ours, 0), np.where(seen, arrays["logits"], 0), atol=2e-5
    )
    rates = xpos_decay(params["head_dim"], scale_base=params["scale_base"])
    np.testing.assert_allclose(
        np.exp(-rates * params["scale_base"]), arrays["zeta"], rtol=1e-6
    )
    # The source centres on the sequence; the sides then are what it stores.
    positions = np.arange(length) + offset
    since = positions - -(-(length + offset) // 2)
    angles = rotation_angles(jnp.asarray(positions), rotary_frequencies(16))[None]
    for name, x, sign in (("q", q, -1), ("k", k, 1)):
        turned = rotate(x, angles, layout="interleaved")[0]
        factor = np.repeat(np.exp(sign * since[:, None] * rates), 2, -1)
        sides = np.swapaxes(turned * factor[:, None], 0, 1)
        np.testing.assert_allclose(sides, arrays[f"{name}_rot"], **tolerance)


FAR = (2**20, 2**24, 2**26 + 1, 2**30 + 1, -(2**30) - 1)
"""Positions that float32 rounds, by more than some lags."""


@pytest.mark.fast
@pytest.mark.parametrize("base", [64.0, 512.0])
def test_fading_depends_on_the_lag_alone_at_any_position(base):
    """B13: neither overflow at 20000 nor a limit that moves with the centre."""
    expected = {
        64.0: {1: 7.005954112, 10: 3.375341327, 64: 3.816921250},
        512.0: {1: 7.062397935, 10: 3.392091993, 64: 5.940251167},
    }[base]
    xpos = XPos(scale_base=base)
    for lag, value in expected.items():
        for start in (0, 5000 - lag, 20_000 - lag, *FAR):
            at, key = placed([start + lag]), placed([start])
            ours = logits(xpos, ones(1), ones(1), at, key=key)
            np.testing.assert_allclose(ours[0, 0, 0, 0], value, rtol=1e-5)


GAPS = {
    "near": np.arange(12) * 5,
    "one block, too wide for one centre": np.arange(12) * 3000,
    "chunks that fit": np.arange(300) * 60,
    "chunks that do not": np.arange(150) ** 2 * 10,
}


@pytest.mark.parametrize("positions", GAPS.values(), ids=GAPS)
def test_every_way_to_the_product_is_exact(positions):
    length = len(positions)
    q, k = random(1, length, 2, 4), random(1, length, 1, 4, seed=1)
    rates = np.array([0.02, 0.01, 0.001, 0.0])
    at = jnp.asarray(positions)[None]
    ours = np.asarray(jax.jit(lambda q, k: fading_product(q, k, at, at, rates))(q, k))
    assert np.isfinite(ours).all()
    seen = np.tril(np.ones((length, length), bool))
    expected = exact(q, np.repeat(k, 2, 2), positions, positions, rates)
    np.testing.assert_allclose(np.where(seen, ours[0], 0), expected, atol=2e-5)


@pytest.mark.parametrize("start", [*FAR, -(2**31), 2**31 - 12 * 3000])
def test_every_way_to_the_product_is_exact_at_any_integer_position(start):
    rates = np.array([0.02, 0.01, 0.001, 0.0])
    for spread in (5, 2000):
        positions = np.arange(12) * spread
        q, k = random(1, 12, 1, 4), random(1, 12, 1, 4, seed=1)
        at = jnp.asarray(positions + start, jnp.int32)[None]
        ours = np.asarray(fading_product(q, k, at, at, rates))
        seen = np.tril(np.ones((12, 12), bool))
        expected = exact(q, k, positions, positions, rates)
        np.testing.assert_allclose(np.where(seen, ours[0], 0), expected, atol=2e-6)


def test_a_gap_that_int32_cannot_hold_fades_out():
    at = jnp.array([[-(2**31), 2**31 - 1]])
    ours = fading_product(ones(2), ones(2), at, at, np.full(8, 1e-3))
    np.testing.assert_array_equal(ours[0, 0, 1], [0, 8])


def test_gradients_are_finite_where_fading_underflows():
    positions = jnp.asarray(GAPS["one block, too wide for one centre"])[None]
    rates = np.array([0.02, 0.01, 0.001, 0.0])

    def total(q, k):
        product = fading_product(q, k, positions, positions, rates)
        return jnp.where(jnp.tril(jnp.ones((12, 12), bool)), product, 0.0).sum()

    q, k = random(1, 12, 1, 4), random(1, 12, 1, 4, seed=1)
    gradients = jax.grad(total, argnums=(0, 1))(q, k)
    lag = np.asarray(positions[0])[:, None] - np.asarray(positions[0])[None]
    fading = np.tril(np.ones((12, 12)))[..., None] * np.exp(
        -np.maximum(lag, 0)[..., None] * rates
    )
    np.testing.assert_allclose(
        gradients[0][0, :, 0], np.einsum("tsh,sh->th", fading, k[0, :, 0]), atol=1e-5
    )
    np.testing.assert_allclose(
        gradients[1][0, :, 0], np.einsum("tsh,th->sh", fading, q[0, :, 0]), atol=1e-5
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_dtypes_do_not_overflow(dtype):
    at = tokens(40, positions=jnp.arange(40)[None] * 100)
    ours = logits(
        XPos(scale_base=64.0), ones(40, dtype=dtype), ones(40, dtype=dtype), at
    )
    wanted = logits(XPos(scale_base=64.0), ones(40), ones(40), at)
    seen = np.tril(np.ones((40, 40), bool))
    assert np.isfinite(ours).all()
    difference = np.abs(np.asarray(ours, float) - np.asarray(wanted))
    assert np.where(seen, difference, 0).max() < 0.1


def test_without_fading_it_is_rope_and_channels_not_rotated_do_not_fade():
    q, k, at = random(1, 6, 1, 12), random(1, 6, 1, 12, seed=1), tokens(6)
    seen = np.tril(np.ones((6, 6), bool))
    slow = logits(XPos(scale_base=1e9), q, k, at)
    rope = logits(Rotary(), q, k, at)
    np.testing.assert_allclose(np.where(seen, slow, 0), np.where(seen, rope, 0), 1e-4)
    half = XPos(rotary_fraction=0.5, scale_base=2.0)
    whole = logits(half, q, k, at)
    rotated = logits(XPos(scale_base=2.0), q[..., :6], k[..., :6], at)
    rest = jnp.einsum("btnh,bsnh->bnts", q[..., 6:], k[..., 6:])
    expected = np.where(seen, rotated + rest, 0)
    np.testing.assert_allclose(np.where(seen, whole, 0), expected, atol=1e-4)


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="scale_base"):
        XPos(scale_base=0.0)
    with pytest.raises(ValueError, match="head_dim=5"):
        XPos().check(Dims(8, 8, 5, 40))
    assert XPos().causal_only
