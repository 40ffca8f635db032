import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import ALiBi
from ropejax.encodings.alibi import alibi_slopes
from ropejax.tokens import tokens
from tests.encodings.additive_cases import (
    assert_golden,
    by_token,
    causal,
    dims,
    load,
    names,
    params_of,
)


def bias(encoding, num_heads, query, key, params=None):
    params = encoding.prepare({}, params or {}, query, key, dims(num_heads, 8))
    return encoding.bias(params, query, key, 1.0)[0]


def test_slopes_equal_the_official_ones_for_every_number_of_heads():
    golden = load("alibi_slopes_all_heads")
    for heads in params_of("alibi_slopes_all_heads")["heads"]:
        for source in ("official", "bloom", "mpt"):
            wanted = golden[f"{source}_h{heads}"]
            np.testing.assert_allclose(alibi_slopes(heads), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (3, [0.0625, 0.00390625, 0.25]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (
            12,
            [2.0**-h for h in range(1, 9)]
            + [0.707106781, 0.353553391, 0.176776695, 0.088388348],
        ),
    ],
)
def test_slopes_of_other_than_powers_of_two_follow_the_reference(heads, slopes):
    """Fault B08: one geometric series over all heads is not the reference rule."""
    np.testing.assert_allclose(alibi_slopes(heads), slopes, rtol=1e-8)


@pytest.mark.parametrize("case", names("alibi_causal"))
def test_causal_attention_equals_the_official_code(case):
    golden = load(case)
    q, k, v = (by_token(golden[name]) for name in "qkv")
    where = tokens(q.shape[1])
    out = attend(q, k, v, encoding=ALiBi(), query=where, key=where, mask=causal)
    assert_golden(case, out, by_token(golden["out"]))
    lower = np.tril(np.ones(golden["bias_canonical"].shape[1:]))
    got = bias(ALiBi(), q.shape[2], where, where) * lower
    assert_golden(case, got, golden["bias_canonical"])


def test_left_padding_gives_the_weights_of_bloom():
    case = "alibi_bloom_leftpad_H6"
    golden = load(case)
    mask = golden["attention_mask"].astype(bool)
    at = jnp.asarray(np.maximum(np.cumsum(mask, 1) - 1, 0))
    where = tokens(mask.shape[1], positions=at)
    params = ALiBi().prepare({}, {}, where, where, dims(6, 8))
    ours = ALiBi().bias(params, where, where, 1.0)[:, :, -1]
    theirs = golden["bias"][:, :, 0]
    weights = [
        jax.nn.softmax(jnp.where(mask[:, None], logits, -1e30), axis=-1)
        for logits in (ours, jnp.asarray(theirs))
    ]
    np.testing.assert_allclose(*weights, atol=1e-6)


@pytest.mark.parametrize("case", names("alibi_deepmind"))
def test_tie_break_equals_the_code_of_randomized_positions(case):
    wanted = load(case)["bias"]
    where = tokens(wanted.shape[1])
    got = bias(ALiBi(tie_break=True), len(wanted), where, where)
    assert_golden(case, got, wanted)


@pytest.mark.parametrize("case", names("noisy_alibi"))
def test_tables_of_distances_give_randomized_alibi(case):
    golden = load(case)
    length = golden["bias"].shape[1]
    sides = {}
    for side in ("left", "right"):
        table = np.concatenate([[0], golden[f"{side}_distances"]])[None]
        where = tokens(length, distances=jnp.asarray(table))
        sides[side] = bias(ALiBi(tie_break=True), len(golden["bias"]), where, where)
    upper = np.triu(np.ones((length, length), bool))
    got = np.where(upper, sides["right"], sides["left"])
    assert_golden(case, got, golden["bias"])


def test_fewer_queries_than_keys_go_by_their_own_positions():
    case = "alibi_symmetric_H6_9x17"
    got = bias(ALiBi(), 6, tokens(9, offset=8), tokens(17))
    assert_golden(case, got, load(case)["bias"])


def test_a_query_after_cached_keys_still_sees_distances():
    v = jnp.eye(5)[None, :, None]
    zeros = jnp.zeros((1, 5, 4, 5))
    out = attend(
        zeros[:, :1],
        zeros,
        jnp.repeat(v, 4, axis=2),
        encoding=ALiBi(),
        query=tokens(1, offset=4),
        key=tokens(5),
        mask=causal,
    )
    wanted = [0.114050724, 0.146444028, 0.188037854, 0.241445384, 0.310022010]
    np.testing.assert_allclose(out[0, 0, 0], wanted, atol=1e-7)


def test_distances_beyond_bfloat16_are_told_apart():
    got = bias(ALiBi(), 4, tokens(1, offset=257), tokens(3))
    assert len(np.unique(got[0])) == 3


def test_slopes_of_each_side_are_their_own():
    encoding = ALiBi(slopes=(1.0, 2.0), right_slopes=(0.25, 0.5))
    where = tokens(3)
    got = bias(encoding, 2, where, where)
    wanted = [[0, -0.25, -0.5], [-1, 0, -0.25], [-2, -1, 0]]
    np.testing.assert_allclose(got[0], wanted)
    np.testing.assert_allclose(got[1], 2 * np.asarray(wanted))


def test_learned_slopes_start_at_the_reference_and_stay_positive():
    encoding = ALiBi(learned=True, two_sided=True)
    layer = encoding.init_layer(jax.random.key(0), dims(4, 8))
    where = tokens(5)
    fixed = bias(ALiBi(), 4, where, where)
    np.testing.assert_allclose(bias(encoding, 4, where, where, layer), fixed, rtol=1e-6)
    moved = jax.tree.map(lambda x: x - 30.0, layer)
    assert (bias(encoding, 4, where, where, moved) <= 0).all()

    def past(layer):
        return bias(encoding, 4, where, where, layer)[:, -1, 0].sum()

    grads = jax.grad(past)(layer)
    np.testing.assert_allclose(grads["log_slopes"], fixed[:, -1, 0], rtol=1e-5)
    np.testing.assert_array_equal(grads["log_right_slopes"], jnp.zeros(4))


@pytest.mark.parametrize("log_slope", [20.0, 88.0, 100.0, 1e30])
def test_learned_slopes_stay_finite_whatever_an_optimizer_did(log_slope):
    """B09's property: finite, not positive, 0 at distance 0, with finite gradients."""
    encoding = ALiBi(learned=True, two_sided=True)
    layer = encoding.init_layer(jax.random.key(0), dims(2, 8))
    layer = jax.tree.map(lambda x: jnp.full_like(x, log_slope), layer)
    where = tokens(3, positions=jnp.array([[0, 1, 2**31 - 1]]))
    got = np.asarray(bias(encoding, 2, where, where, layer))
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got[:, range(3), range(3)], np.zeros((2, 3)))
    assert (got[:, *np.nonzero(~np.eye(3, dtype=bool))] < -1e8).all()
    total = lambda layer: jax.nn.softmax(bias(encoding, 2, where, where, layer)).sum()
    for grads in jax.tree.leaves(jax.grad(total)(layer)):
        assert np.isfinite(grads).all()


@pytest.mark.parametrize("kind", [list, np.array, jnp.array, tuple])
def test_slopes_may_be_any_sequence_and_settings_stay_hashable(kind):
    encoding = ALiBi(slopes=kind([1.0, 2.0]), right_slopes=kind([0.5, 0.25]))
    assert encoding == ALiBi(slopes=(1.0, 2.0), right_slopes=(0.5, 0.25))
    assert hash(encoding) == hash(ALiBi(slopes=(1.0, 2.0), right_slopes=(0.5, 0.25)))
    x, where = jnp.ones((1, 3, 2, 4)), tokens(3)
    attend(x, x, x, encoding=encoding, query=where, key=where)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slopes": (-1.0,)}, "must not be negative"),
        ({"slopes": (1e39,)}, "must be at most 1e"),
        ({"two_sided": True}, "two_sided concerns learned slopes"),
        ({"learned": True, "right_slopes": (1.0,)}, "need two_sided"),
        ({"learned": True, "slopes": (0.0,)}, "must start positive"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ALiBi(**settings)


def test_slopes_of_other_heads_are_refused():
    encoding = dataclasses.replace(ALiBi(), slopes=(1.0, 0.5, 0.25))
    with pytest.raises(ValueError, match="3 for 4 heads"):
        encoding.check(dims(4, 8))
