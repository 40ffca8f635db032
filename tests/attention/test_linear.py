"""Linear attention with rotary positions: both forms are the formula."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention.linear import (
    causal_linear_attention,
    elu_plus_one,
    linear_attention,
)
from ropejax.encodings import ENCODINGS, Encoding, ReRoPE, Rotary, VORotary, compose
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import logits, random

LENGTH = 11
Q, K, V = (
    random(2, LENGTH, 4, 8),
    random(2, LENGTH, 2, 8, seed=1),
    random(2, LENGTH, 2, 6, seed=2),
)


def formula(seen, valid=None):
    """Numerator turned, denominator not, pair by pair in float64."""
    phi_q, phi_k = (elu_plus_one(x) for x in (Q, K))
    above, below = (
        np.asarray(logits(e, phi_q, phi_k, tokens(LENGTH)), float) * seen
        for e in (Rotary(), Encoding())
    )
    if valid is not None:
        above, below = above * valid[:, None, None], below * valid[:, None, None]
    v = np.repeat(np.asarray(V, float), 2, 2)
    total = below.sum(-1)
    return np.einsum("bnij,bjnv->binv", above, v) / np.swapaxes(total, 1, 2)[..., None]


def causal(where, **settings):
    run = functools.partial(causal_linear_attention, encoding=Rotary(), **settings)
    return jax.jit(run)(Q, K, V, where=where)


def test_full_form_is_the_formula():
    at = tokens(LENGTH)
    ours = linear_attention(Q, K, V, encoding=Rotary(), query=at, key=at)
    np.testing.assert_allclose(ours, formula(1.0), atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_causal_form_is_the_formula_whatever_the_chunk(chunk):
    seen = np.tril(np.ones((LENGTH, LENGTH)))
    ours = causal(tokens(LENGTH), chunk=chunk)
    np.testing.assert_allclose(ours, formula(seen), atol=1e-5)


def test_only_the_numerator_turns():
    at = tokens(LENGTH)
    one = jnp.ones_like(V)
    turned = linear_attention(Q, K, one, encoding=Rotary(), query=at, key=at)
    plain = linear_attention(Q, K, one, encoding=Encoding(), query=at, key=at)
    np.testing.assert_allclose(plain, jnp.ones_like(plain), atol=1e-5)
    assert np.abs(turned - 1).max() > 1e-2


def test_a_shift_of_positions_changes_nothing():
    far = tokens(LENGTH, positions=jnp.arange(LENGTH)[None] + 5000)
    np.testing.assert_allclose(causal(far), causal(tokens(LENGTH)), atol=1e-5)


@pytest.mark.fast
def test_queries_at_padding_reach_no_gradient():
    """Zero times NaN, on the way back from a query whose outputs nobody looks at."""
    valid = jnp.arange(LENGTH)[None] < 5
    at = tokens(LENGTH, valid=valid)

    def loss(k, q):
        out = linear_attention(q, k, V, encoding=Rotary(), query=at, key=at)
        return (out[:, :5] ** 2).sum()

    clean = jax.grad(loss)(K, Q)
    dirty = jax.grad(loss)(K, jnp.where(valid[..., None, None], Q, jnp.nan))
    np.testing.assert_array_equal(dirty, clean)
    assert np.abs(clean).max() > 0


def test_padding_keys_do_not_count():
    valid = jnp.arange(LENGTH)[None] < jnp.array([[5], [LENGTH]])
    at = tokens(LENGTH, valid=valid)
    expected = formula(1.0, valid=np.asarray(valid, float))
    ours = linear_attention(Q, K, V, encoding=Rotary(), query=at, key=at)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    seen = np.tril(np.ones((LENGTH, LENGTH)))
    expected = formula(seen, valid=np.asarray(valid, float))
    np.testing.assert_allclose(causal(at, chunk=4), expected, atol=1e-5)
    none = tokens(LENGTH, valid=jnp.zeros((2, LENGTH), bool))
    nothing = linear_attention(Q, K, V, encoding=Rotary(), query=none, key=none)
    np.testing.assert_array_equal(nothing, jnp.zeros_like(nothing))


def test_gradients_of_both_forms_agree_on_the_last_query():
    at, last = tokens(LENGTH), tokens(1, offset=LENGTH - 1)

    def full(k, v):
        one = Q[:, -1:]
        out = linear_attention(one, k, v, encoding=Rotary(), query=last, key=at)
        return (out**2).sum()

    def scanned(k, v):
        out = causal_linear_attention(Q, k, v, encoding=Rotary(), where=at, chunk=4)
        return (out[:, -1] ** 2).sum()

    ours = jax.jit(jax.grad(scanned, argnums=(0, 1)))(K, V)
    expected = jax.jit(jax.grad(full, argnums=(0, 1)))(K, V)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_dtype_is_kept_and_several_views_and_segments_are_refused():
    at = tokens(LENGTH)
    narrow = [x.astype(jnp.bfloat16) for x in (Q, K, V)]
    ours = linear_attention(*narrow, encoding=Rotary(), query=at, key=at)
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(float), formula(1.0), atol=0.1)
    with pytest.raises(ValueError, match="several views"):
        linear_attention(Q, K, V, encoding=ReRoPE(), query=at, key=at)
    packed = tokens(LENGTH, segments=jnp.zeros((1, LENGTH), jnp.int32))
    with pytest.raises(ValueError, match="segments"):
        linear_attention(Q, K, V, encoding=Rotary(), query=packed, key=packed)


def test_order_is_that_of_the_index_however_tokens_are_stored():
    order = jnp.array([3, 0, 10, 5, 1, 9, 2, 4, 8, 6, 7])
    where = tokens(LENGTH)
    run = functools.partial(causal_linear_attention, encoding=VORotary(), chunk=4)
    wanted = run(Q, K, V, where=where)
    got = run(*(x[:, order] for x in (Q, K, V)), where=where.permuted(order))
    np.testing.assert_allclose(got, wanted[:, order], atol=1e-6)


def test_values_and_outputs_are_rotated_where_an_encoding_does():
    encoding, at = compose(rope=Rotary(), values=VORotary()), tokens(LENGTH)
    params = encoding.prepare({"rope": {}, "values": {}}, {}, at, at, None)
    turned = encoding.values(params, V, at)
    wanted = linear_attention(Q, K, turned, encoding=Rotary(), query=at, key=at)
    wanted = encoding.outputs(params, wanted, at)
    got = linear_attention(Q, K, V, encoding=encoding, query=at, key=at)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    plain = linear_attention(Q, K, V, encoding=Rotary(), query=at, key=at)
    assert np.abs(got - plain).max() > 1e-2


def test_nothing_depends_on_what_padding_holds():
    valid = jnp.arange(LENGTH)[None] < 6
    at = tokens(LENGTH, valid=valid)
    bad = jnp.where(valid[..., None, None], 0.0, jnp.nan)
    for form, given in (
        (linear_attention, {"query": tokens(LENGTH), "key": at}),
        (causal_linear_attention, {"where": at, "chunk": 4}),
    ):
        wanted = form(Q, K, V, encoding=Encoding(), **given)
        got = form(Q, K + bad, V + bad, encoding=Encoding(), **given)
        np.testing.assert_array_equal(got, wanted)


def test_features_may_be_wider_than_queries():
    """A symmetric map, `[phi(x), phi(-x)]`, under a rotation of their width."""
    both = lambda x: jnp.concatenate([elu_plus_one(x), elu_plus_one(-x)], axis=-1)
    at, last = tokens(LENGTH), tokens(1, offset=LENGTH - 1)
    given = {"encoding": Rotary(), "feature_map": both}
    wanted = linear_attention(Q[:, -1:], K, V, query=last, key=at, **given)
    got = causal_linear_attention(Q, K, V, where=at, chunk=4, **given)
    np.testing.assert_allclose(got[:, -1:], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("alibi", "ALiBi adds a bias to the logits of pairs"),
        ("t5", "adds a bias"),
        ("kerple", "adds a bias"),
        ("fire", "adds a bias"),
        ("sandwich", "adds a bias"),
        ("fox", "adds a bias"),
        ("dape", "changes the logits of pairs"),
        ("cope", "by the tokens between"),
        ("path", "a product of its own"),
        ("shaw", "a product of its own"),
        ("transformer_xl", "a product of its own"),
        ("xpos", "a product of its own"),
        ("sinusoidal", r"changes embeddings, .* call its embed\(...\) on them"),
        ("learned", "changes embeddings"),
        ("log_scale", "changes the lengths of queries or keys"),
        ("yarn", "changes the lengths of queries or keys"),
        ("rope_bias", "changes the lengths of queries or keys"),
    ],
)
def test_what_is_no_rotation_is_refused_rather_than_left_out(name, why):
    at = tokens(LENGTH)
    with pytest.raises(ValueError, match=why):
        linear_attention(Q, K, V, encoding=ENCODINGS[name](), query=at, key=at)
    with pytest.raises(ValueError, match="linear attention"):
        jax.eval_shape(
            lambda q: causal_linear_attention(
                q, K, V, encoding=ENCODINGS[name](), where=at
            ),
            Q,
        )


class CausalRotation(Rotary):
    causal_only = True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk": 0}, "chunk must be a positive integer, got 0"),
        ({"chunk": 2.0}, "chunk must be a positive integer, got 2.0"),
        ({"q": Q[:, :, :3]}, "multiple of key heads: 3 and 2"),
        ({"q": Q[0]}, r"q must be \[batch"),
        ({"v": V[:, :4]}, "k and v must agree but for width"),
        ({"k": K.astype(jnp.bfloat16)}, "must have one dtype"),
        ({"where": tokens(3)}, "q holds 11 tokens, but its Tokens 3"),
        ({"where": 3}, "must say where tokens are"),
        ({"where": tokens(LENGTH, distances=jnp.arange(20)[None])}, "no function of"),
        ({"encoding": Rotary}, "encoding must be settings"),
        ({"encoding": ENCODINGS["grape_m"]()}, "has parameters of its own"),
        ({"encoding": VORotary(), "params": {"a": Q}}, "params are not what prepare"),
        ({"feature_map": "elu"}, "feature_map must be a function"),
        ({"feature_map": jnp.sum}, "feature_map must return .* got shape"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_input_is_refused(changes, message):
    given = {"q": Q, "k": K, "v": V, "encoding": Rotary(), "where": tokens(LENGTH)}
    with pytest.raises(ValueError, match=message):
        causal_linear_attention(**given | changes)
    if "chunk" in changes:
        return
    given |= changes
    where = given.pop("where")
    with pytest.raises(ValueError, match=message):
        linear_attention(**given, query=where, key=where)


def test_causal_methods_have_the_causal_form_only():
    at = tokens(LENGTH)
    with pytest.raises(ValueError, match="use causal_linear_attention"):
        linear_attention(Q, K, V, encoding=CausalRotation(), query=at, key=at)
