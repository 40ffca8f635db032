"""Log-n scaling: the published rule for each query, and nothing of later tokens."""

import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import attend
from ropejax.encodings import LogScale, Rotary, compose
from ropejax.encodings.log_scale import log_scale
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import ones, prepared, random, turned

COUNTS = jnp.array([1, 2, 16, 17, 32, 64])


@pytest.mark.fast
def test_the_factor_is_one_up_to_the_trained_length_and_grows_then():
    """B03, with the numbers of the report."""
    factors = log_scale(COUNTS, train_length=16)
    np.testing.assert_allclose(factors, [1, 1, 1, 1.02186571, 1.25, 1.5], rtol=1e-6)


def test_other_forms():
    n = np.asarray(COUNTS)
    trained = log_scale(COUNTS, form="trained", train_length=512)
    np.testing.assert_allclose(trained, np.log(n) / np.log(512), atol=1e-6)
    at_least = log_scale(COUNTS, form="trained", train_length=512, least=16)
    expected = np.log(np.maximum(n, 16)) / np.log(512)
    np.testing.assert_allclose(at_least, expected, atol=1e-6)
    natural = log_scale(COUNTS, form="natural")
    np.testing.assert_allclose(natural, np.log(n), atol=1e-6)
    steps = log_scale(COUNTS, form="steps", train_length=16, weight=0.1)
    np.testing.assert_allclose(steps, 1 + 0.1 * np.log1p(n // 16), atol=1e-6)


def test_each_query_has_its_own_count_whatever_its_position():
    scale = LogScale(train_length=16)
    at = tokens(64, positions=random(1, 64) * 1e4)
    ours, keys = turned(scale, ones(64), at)
    expected = np.maximum(1, np.log(np.arange(1, 65)) / np.log(16))
    np.testing.assert_allclose(ours[0, :, 0, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(keys, ones(64))
    one, _ = turned(scale, ones(1), tokens(1, offset=63))
    np.testing.assert_allclose(one[0, 0, 0], 1.5, rtol=1e-6)


def test_a_querys_own_token_need_not_count():
    """Ministral 3: `1 + beta ln(1 + floor(position / N))`, where Llama 4 adds 1."""
    scale = LogScale(form="steps", train_length=4, weight=0.5, count="earlier")
    assert scale.causal_only
    assert not scale.length_dependent
    ours, _ = turned(scale, ones(9), tokens(9))
    expected = 1 + 0.5 * np.log(1 + np.arange(9) // 4)
    np.testing.assert_allclose(ours[0, :, 0, 0], expected, rtol=1e-6)
    padded = tokens(9, valid=jnp.arange(9)[None] >= 2, left_padded=True)
    ours, _ = turned(scale, ones(9), padded)
    np.testing.assert_allclose(ours[0, 2:, 0, 0], expected[:7], rtol=1e-6)


def test_appending_tokens_changes_no_earlier_row():
    encoding = compose(LogScale(train_length=16), Rotary())
    q, k, v = (random(1, 48, 1, 8, seed=s) for s in range(3))

    def run(length):
        at, part = tokens(length), slice(0, length)
        return attend(
            q[:, part],
            k[:, part],
            v[:, part],
            encoding=encoding,
            params=prepared(encoding, at, q),
            query=at,
            key=at,
            mask=masks.Causal(),
            implementation="dense",
        )

    np.testing.assert_allclose(run(48)[:, :20], run(20), atol=1e-6)
    assert not encoding.length_dependent


def test_without_a_causal_mask_all_valid_keys_count():
    scale = LogScale(train_length=16, count="all")
    assert scale.length_dependent
    assert not scale.causal_only
    valid = jnp.arange(64)[None] < jnp.array([[8], [32], [64]])
    x = jnp.ones((3, 64, 1, 8))
    ours, _ = turned(scale, x, tokens(64, valid=valid))
    np.testing.assert_allclose(
        ours[:, :, 0, 0], np.broadcast_to([[1], [1.25], [1.5]], (3, 64)), rtol=1e-6
    )
    ours, _ = turned(scale, ones(32), tokens(32))
    np.testing.assert_allclose(ours, 1.25 * ones(32), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": "posthoc"}, "'post_hoc'"),
        ({"train_length": 1}, "train_length"),
        ({"count": "some"}, "count"),
        ({"least": 0}, "least"),
        ({"weight": -1.0}, "weight"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LogScale(**settings)
