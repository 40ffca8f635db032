"""What may replace the softmax: published numbers, plain Python, and both engines."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax import masks
from ropejax.attention import (
    AdaptiveTemperature,
    Entmax,
    Selective,
    Sigmoid,
    SinkSoftmax,
    Softmax,
    SquaredReLU,
    StickBreaking,
    attend,
)
from ropejax.attention.whole_row import entmax
from ropejax.encodings import Encoding
from ropejax.tokens import tokens
from tests.attention import cases

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
STRICT = masks.Causal() & ~masks.Window(0, 0)


def weights_of(normalizer, logits, mask, params=None):
    """Returns the weights for given logits `[N, T, S]`: values are unit vectors."""
    heads, queries, keys = logits.shape
    k = jnp.broadcast_to(jnp.eye(keys)[None, :, None], (1, keys, heads, keys))
    return attend(
        jnp.swapaxes(jnp.asarray(logits, jnp.float32), 0, 1)[None],
        k,
        k,
        encoding=Encoding(),
        query=tokens(queries),
        key=tokens(keys),
        mask=mask,
        scale=1.0,
        normalizer=normalizer,
        normalizer_params=params,
    )[0].swapaxes(0, 1)


def logits_of(rng_seed, heads=2, length=9, scale=2.0):
    return scale * np.random.default_rng(rng_seed).normal(size=(heads, length, length))


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_learned_sinks_against_gpt_oss(implementation):
    golden = np.load(GOLDEN / "attn_sinks_gptoss_L17_w6.npz")
    q, k, v = (jnp.swapaxes(golden[name], 1, 2) for name in "qkv")
    out, lse = attend(
        q,
        k,
        v,
        encoding=Encoding(),
        query=tokens(17),
        key=tokens(17),
        mask=masks.Window.sliding(6),
        normalizer=SinkSoftmax(),
        normalizer_params={"sink": jnp.asarray(golden["sinks"])},
        implementation=implementation,
        block_q=4,
        block_k=5,
        return_lse=True,
    )
    np.testing.assert_allclose(out, golden["out"], atol=2e-6)
    left = golden["probs"].sum(-1)
    sinks = golden["sinks"][None, :, None]
    np.testing.assert_allclose(np.exp(sinks - lse), 1 - left, atol=2e-6)


def test_sink_of_zero_is_softmax_plus_one():
    logits = logits_of(0)
    got = weights_of(SinkSoftmax(), logits, None)
    wanted = np.exp(logits) / (1 + np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_sigmoid_has_its_bias_or_that_of_visible_keys():
    logits = logits_of(1)
    causal = np.tril(np.ones((9, 9)))
    n = causal.sum(-1)[None, :, None]
    for normalizer, bias in ((Sigmoid(bias=-1.5), -1.5), (Sigmoid(), -np.log(n))):
        wanted = causal / (1 + np.exp(-(logits + bias)))
        got = weights_of(normalizer, logits, masks.Causal())
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_squared_relu_is_over_the_keys_seen_or_a_length_of_ones_own():
    logits = logits_of(1)
    causal = np.tril(np.ones((9, 9)))
    n = causal.sum(-1)[None, :, None]
    squares = causal * np.maximum(logits, 0) ** 2
    for normalizer, divisor in (
        (SquaredReLU(), n),
        (SquaredReLU(power=2.0), n**2),
        (SquaredReLU(length=5.0), 5),
        (SquaredReLU(power=0.0), 1),
    ):
        got = weights_of(normalizer, logits, masks.Causal())
        np.testing.assert_allclose(got, squares / divisor, atol=1e-6)
        assert (np.asarray(got)[(logits < 0) & (causal > 0)] == 0).all()


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_squared_relu_has_a_finite_gradient_where_logits_are_nearly_zero(
    implementation,
):
    """Down to the smallest numbers, where a logarithm's own would overflow."""
    near = jnp.asarray([0.0, -0.0, 1e-45, 1e-38, 1e-20, 1e-3, -1e-38, 2.0])
    one = jnp.ones((1, 1, 1, 1))

    def out(logits):
        return attend(
            one,
            logits[None, :, None, None],
            jnp.ones((1, 8, 1, 1)),
            encoding=Encoding(),
            query=tokens(1),
            key=tokens(8),
            scale=1.0,
            normalizer=SquaredReLU(length=1.0),
            implementation=implementation,
            block_k=3,
        ).sum()

    got, gradient = jax.value_and_grad(out)(near)
    np.testing.assert_allclose(got, 4 + 1e-6, rtol=1e-6)
    np.testing.assert_allclose(gradient, 2 * np.maximum(near, 0), atol=1e-15, rtol=1e-5)


@pytest.mark.parametrize("strict", [True, False])
def test_stick_breaking_by_the_product(strict):
    logits = logits_of(2)
    beta = 1 / (1 + np.exp(-logits))
    wanted = np.zeros_like(beta)
    for i in range(9):
        for j in range(i if strict else i + 1):
            between = range(j + 1, i if strict else i + 1)
            left = np.prod([1 - beta[:, i, t] for t in between], axis=0)
            wanted[:, i, j] = beta[:, i, j] * left
    got = weights_of(StickBreaking(), logits, STRICT if strict else masks.Causal())
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    assert float(got.sum(-1).max()) <= 1 + 1e-6


def sparsemax(row):
    """By sorting, as Martins and Astudillo 2016 do."""
    z = np.sort(row)[::-1]
    support = 1 + np.arange(len(z)) * z[: len(z)] + z > np.cumsum(z)
    k = np.nonzero(support)[0].max() + 1
    return np.maximum(row - (z[:k].sum() - 1) / k, 0)


def test_entmax_at_alpha_2_is_sparsemax():
    logits = logits_of(3)
    wanted = np.stack([[sparsemax(row) for row in head] for head in logits])
    got = weights_of(Entmax(2.0), logits, None)
    np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_entmax_solves_its_equation_and_differentiates_it(alpha):
    logits = jnp.asarray(logits_of(4)[0], jnp.float32)
    p = np.asarray(entmax(logits, alpha), np.float64)
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6)
    assert (p == 0).any()
    for row, z in zip(p, np.asarray(logits, np.float64), strict=True):
        inside = row > 1e-4
        tau = ((alpha - 1) * z - row ** (alpha - 1))[inside]
        assert np.ptp(tau) < 1e-5
        assert ((alpha - 1) * z[row == 0] <= tau.mean() + 1e-5).all()
    direction = jnp.asarray(logits_of(5)[0], jnp.float32)
    _, got = jax.jvp(lambda z: entmax(z, alpha), (logits,), (direction,))
    step = 1e-2
    apart = entmax(logits + step * direction, alpha) - entmax(
        logits - step * direction, alpha
    )
    np.testing.assert_allclose(got, apart / (2 * step), atol=0.02)


def test_entmax_with_small_alpha_nears_the_softmax():
    logits = jnp.asarray(logits_of(6)[0], jnp.float32)
    np.testing.assert_allclose(entmax(logits, 1.001), jax.nn.softmax(logits), atol=2e-3)


def test_selective_attention_by_loops():
    logits = logits_of(7)
    length = logits.shape[-1]
    wanted = np.zeros_like(logits)
    forgotten = np.zeros(length)
    for i in range(length):
        row = np.exp(logits[:, i, : i + 1] - forgotten[: i + 1])
        wanted[:, i, : i + 1] = row / row.sum(-1, keepdims=True)
        for j in range(1, i):
            forgotten[j] += max(0.0, logits[0, i, j])
    got = weights_of(Selective(), logits, masks.Causal())
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_adaptive_temperature_sharpens_where_entropy_is_high():
    logits = np.concatenate([logits_of(8, scale=0.3), logits_of(9, scale=9.0)])
    wanted = np.zeros_like(logits)
    sharpened = 0
    for at in np.ndindex(logits.shape[:2]):
        p = np.exp(logits[at]) / np.exp(logits[at]).sum()
        e = -(p * np.log(p)).sum()
        t = -0.037 * e**4 + 0.481 * e**3 - 2.3 * e**2 + 4.917 * e - 1.791
        t = max(1.0, t) if e > 0.5 else 1.0
        sharpened += t > 1
        wanted[at] = np.exp(t * logits[at]) / np.exp(t * logits[at]).sum()
    assert 0 < sharpened < logits.shape[0] * logits.shape[1]
    got = weights_of(AdaptiveTemperature(), logits, None)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


SETTINGS = {
    "sink": (SinkSoftmax(), {"sink": jnp.array([0.5, -1.0, 2.0, 0.0])}, None),
    "sigmoid": (Sigmoid(), None, masks.Window(12)),
    "squared-relu": (SquaredReLU(), None, masks.Window(12) & ~masks.Window(0, 0)),
    "stick-breaking": (StickBreaking(), None, STRICT),
    "temperature": (AdaptiveTemperature(), None, masks.Causal() & ~masks.Prefix(3)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_blockwise_equals_dense(name):
    normalizer, params, mask = SETTINGS[name]
    mask = masks.Causal() if mask is None else mask
    rng = np.random.default_rng(0)
    arrays = {name: cases.normal(rng, 2, 33, 4, 8) for name in "qkv"}
    arrays["normalizer"] = params
    cotangent = cases.normal(rng, 2, 33, 4, 8)

    def gradients(**settings):
        def run(arrays):
            return attend(
                *(arrays[name] for name in "qkv"),
                encoding=Encoding(),
                query=tokens(33),
                key=tokens(33),
                mask=mask,
                normalizer=normalizer,
                normalizer_params=arrays["normalizer"],
                return_lse=normalizer.has_lse,
                **settings,
            )

        return cases.value_and_grads(run, cotangent)(arrays)

    got = gradients(implementation="blockwise", block_q=8, block_k=7)
    cases.assert_same(got, gradients(implementation="dense"))


@pytest.mark.parametrize("normalizer", [Entmax(2.5), Selective()], ids=str)
def test_whole_row_methods_are_refused_blockwise(normalizer):
    with pytest.raises(ValueError, match='use implementation="dense"'):
        attend(
            *(jnp.ones((1, 4, 2, 8)),) * 3,
            encoding=Encoding(),
            query=tokens(4),
            key=tokens(4),
            mask=masks.Causal(),
            normalizer=normalizer,
            implementation="blockwise",
        )


@pytest.mark.parametrize(
    "normalizer",
    [
        *(Softmax(), SinkSoftmax(), Sigmoid(), SquaredReLU(), StickBreaking()),
        *(Entmax(), Selective()),
    ],
    ids=str,
)
def test_rows_that_see_nothing_are_zero(normalizer):
    mask = masks.Causal() & ~masks.Prefix(3)
    logits = logits_of(1)

    def total(logits):
        return weights_of(normalizer, logits, mask).sum()

    got = weights_of(normalizer, logits, mask)
    assert not np.asarray(got)[:, :3].any()
    assert np.asarray(got)[:, 5].any()
    gradient = np.asarray(jax.grad(total)(jnp.asarray(logits, jnp.float32)))
    assert np.isfinite(gradient).all()
    assert not gradient[:, :3].any()


def selective(q, k, v, query, key, **settings):
    return attend(
        *(q, k, v),
        encoding=Encoding(),
        query=query,
        key=key,
        normalizer=Selective(),
        **({"mask": masks.Causal()} | settings),
    )


def test_selective_attention_goes_by_index_however_tokens_are_stored():
    rng = np.random.default_rng(0)
    q, k, v = (cases.normal(rng, 2, 9, 2, 4) for _ in "qkv")
    where = tokens(9)
    wanted = selective(q, k, v, where, where)
    order, other = (jnp.asarray(rng.permutation(9)) for _ in range(2))
    moved, keys = where.permuted(order), where.permuted(other)
    got = selective(q[:, order], k[:, other], v[:, other], moved, keys)
    np.testing.assert_allclose(got, wanted[:, order], atol=1e-6)


def test_selective_attention_of_packed_and_padded_rows_is_that_of_each_sequence():
    """Each has a first token, which no one forgets."""
    rng = np.random.default_rng(1)
    q, k, v = (cases.normal(rng, 1, 9, 2, 4) for _ in "qkv")
    packed = tokens(9, segments=jnp.array([[0] * 4 + [1] * 5]))
    got = selective(q, k, v, packed, packed)
    for part in (slice(0, 4), slice(4, 9)):
        alone = tokens(part.stop - part.start)
        wanted = selective(*(x[:, part] for x in (q, k, v)), alone, alone)
        np.testing.assert_allclose(got[:, part], wanted, atol=1e-6)
    padded = tokens(9, valid=jnp.arange(9)[None] >= 4, left_padded=True)
    got = selective(q, k, v, padded, padded)
    np.testing.assert_allclose(got[:, 4:], wanted, atol=1e-6)


def test_padding_between_tokens_has_no_say_in_what_selective_attention_forgets():
    rng = np.random.default_rng(3)
    q, k, v = (cases.normal(rng, 1, 9, 2, 4) for _ in "qkv")
    real = jnp.array([0, 1, 4, 5, 8])
    valid = jnp.zeros((1, 9), bool).at[:, real].set(True)
    where = tokens(9, valid=valid, positions=jnp.arange(9)[None])
    wanted = selective(*(x[:, real] for x in (q, k, v)), tokens(5), tokens(5))
    for padding in (3.0, jnp.nan):
        q, k, v = (jnp.where(valid[..., None, None], x, padding) for x in (q, k, v))
        got = selective(q, k, v, where, where)[:, real]
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_selective_attention_needs_all_queries_before():
    rng = np.random.default_rng(2)
    q, k, v = (cases.normal(rng, 1, 6, 2, 4) for _ in "qkv")
    whole = selective(q, k, v, tokens(6), tokens(6))
    late = (q[:, 3:], k, v, tokens(3, offset=3), tokens(6))
    with pytest.raises(ValueError, match="query has the indices 3 .. 5 and key has 0"):
        selective(*late)
    prefix = selective(q[:, :3], k, v, tokens(3), tokens(6))
    np.testing.assert_allclose(prefix, whole[:, :3], atol=1e-6)

    @jax.jit
    def traced(offset):
        return selective(*late[:3], tokens(3, offset=offset), tokens(6))

    assert np.isnan(traced(3)).all()  # no one can be told of it in words
    np.testing.assert_allclose(traced(0)[:, 0], late[2][:, 0], atol=1e-6)


@pytest.mark.parametrize("normalizer", [Selective(), StickBreaking()], ids=str)
@pytest.mark.parametrize("mask", [None, masks.Window(3, 1)], ids=str)
def test_causal_methods_refuse_masks_that_show_the_future(normalizer, mask):
    with pytest.raises(ValueError, match="undefined for keys after .* masks.Causal"):
        weights_of(normalizer, logits_of(0), mask)
    with pytest.raises(ValueError, match="undefined for keys after"):
        weights_of(normalizer, logits_of(0)[:, :1], None)  # one query, at the start


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Entmax(float("inf")), "alpha must be finite, got inf for Entmax"),
        (lambda: Entmax(1.0), "alpha must be above 1, .* got 1.0; 1 is Softmax"),
        (lambda: Entmax(1.000001), "alpha must be above 1, by 0.0001 at least, got"),
        (lambda: Entmax("2"), "alpha must be a number, got '2'"),
        (lambda: Sigmoid(float("nan")), "bias must be finite, got nan for Sigmoid"),
        (lambda: SquaredReLU(length=0.0), "length must be positive, got 0.0"),
        (lambda: SquaredReLU(power=-1.0), "power must be at least 0, got -1.0"),
        (lambda: SinkSoftmax(float("nan")), "must be finite, got nan"),
        (lambda: Softmax().check(jnp.ones(2), 2), "has no parameters, got Array"),
        (lambda: SinkSoftmax().check(jnp.ones(2), 2), r"takes {\"sink\": \[2\]}"),
        (lambda: SinkSoftmax().check({"sink": [0.0, 0.0]}, 2), "or nothing, got"),
    ],
)
def test_bad_settings_and_parameters_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_sinks_meet_rows_without_raising_ranks():
    """Some programs forbid JAX to add axes by itself."""
    lse, out = jnp.zeros((2, 3, 5)), jnp.ones((2, 5, 3, 4))
    with jax.numpy_rank_promotion("raise"):
        for params in (None, {"sink": jnp.arange(3.0)}):
            got, _ = SinkSoftmax().finish(params, out, lse)
            share = 0.5 if params is None else jax.nn.sigmoid(-jnp.arange(3.0))
            np.testing.assert_allclose(got[1, 4, :, 0], share * jnp.ones(3), atol=1e-6)
