"""Encodings inside Flax's attention modules, both generations of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from ropejax.attention import attend
from ropejax.attention.interop import as_attention_fn
from ropejax.encodings import ENCODINGS, ALiBi, Encoding, Forgetting, Rotary, compose
from ropejax.masks import Causal, Window
from ropejax.tokens import tokens

HEADS, WIDTH, LENGTH = 2, 8, 6


def module(attention_fn=None, **settings):
    given = {} if attention_fn is None else {"attention_fn": attention_fn}
    return nnx.MultiHeadAttention(
        HEADS, WIDTH, decode=False, rngs=nnx.Rngs(0), **given, **settings
    )


@pytest.fixture
def x(rng):
    return jax.random.normal(rng, (3, LENGTH, WIDTH))


def test_no_encoding_equals_flax_with_and_without_its_masks(x):
    mask = nnx.make_causal_mask(jnp.ones((3, LENGTH)))
    for given in (None, mask):
        np.testing.assert_allclose(
            module(as_attention_fn(Encoding()))(x, mask=given),
            module()(x, mask=given),
            atol=1e-5,
        )


def test_rope_equals_queries_and_keys_turned_by_hand(x):
    layer = module(as_attention_fn(Rotary()))
    where = tokens(LENGTH)
    turned = lambda part: Rotary().queries({}, part, where)[0]
    out = nnx.dot_product_attention(
        turned(layer.query(x)), turned(layer.key(x)), layer.value(x)
    )
    np.testing.assert_allclose(layer(x), layer.out(out), atol=1e-5)


def test_a_bias_from_flax_is_added_to_that_of_the_encoding(x, rng):
    q = jax.random.normal(rng, (3, LENGTH, HEADS, 4))
    bias = jax.random.normal(rng, (1, HEADS, LENGTH, LENGTH))
    encoding = ALiBi()
    both = as_attention_fn(encoding)(q, q, q, bias=bias)
    slopes = jnp.array([2.0**-4, 2.0**-8])
    index = jnp.arange(LENGTH)
    alibi = -slopes[:, None, None] * jnp.abs(index[:, None] - index)
    np.testing.assert_allclose(
        both, jax.nn.dot_product_attention(q, q, q, bias + alibi), atol=1e-5
    )


def test_linen_keeps_the_mask(x):
    """Linen passes on only what an attention function names; a lost mask is silent."""
    layer = linen.MultiHeadDotProductAttention(
        HEADS, attention_fn=as_attention_fn(Encoding())
    )
    mask = linen.make_causal_mask(jnp.ones((3, LENGTH)))
    params = layer.init(jax.random.key(1), x)
    plain = linen.MultiHeadDotProductAttention(HEADS)
    np.testing.assert_allclose(
        layer.apply(params, x, mask=mask), plain.apply(params, x, mask=mask), atol=1e-5
    )
    later = x.at[:, -1].add(1.0)
    out, other = (layer.apply(params, part, mask=mask) for part in (x, later))
    np.testing.assert_array_equal(out[:, :-1], other[:, :-1])


def test_a_symbolic_mask_can_be_closed_over(x):
    out = module(as_attention_fn(Encoding(), mask=Causal()))(x)
    mask = nnx.make_causal_mask(jnp.ones((3, LENGTH)))
    np.testing.assert_allclose(out, module()(x, mask=mask), atol=1e-5)


def test_positions_that_flax_does_not_know_are_asked_for(x):
    fn = as_attention_fn(Rotary())
    q = jnp.ones((1, 1, HEADS, 4))
    with pytest.raises(ValueError, match="1 queries and 6 keys"):
        fn(q, jnp.ones((1, 6, HEADS, 4)), jnp.ones((1, 6, HEADS, 4)))


def test_an_encoding_that_reads_hidden_states_is_refused():
    with pytest.raises(ValueError, match="hidden states"):
        as_attention_fn(Forgetting())


@pytest.mark.parametrize("name", ["xpos", "rerope", "self_extend", "log_scale"])
def test_causal_methods_ask_for_a_causal_mask_as_attend_does(name):
    """That Flax was given no mask at all was hidden by a mask made of nothing."""
    known = {"log_scale": {"train_length": 4}}.get(name, {})
    encoding = ENCODINGS[name](**known)
    q = jax.random.normal(jax.random.key(0), (1, 4, HEADS, 4))
    where, order = tokens(4), jnp.tril(jnp.ones((1, 1, 4, 4), bool))
    with pytest.raises(ValueError, match="undefined for keys after the query"):
        as_attention_fn(encoding)(q, q, q)
    with pytest.raises(ValueError, match="shows key 2 to query 1"):
        as_attention_fn(encoding)(q, q, q, mask=order.at[0, 0, 1, 2].set(True))
    wanted = attend(q, q, q, encoding=encoding, query=where, key=where, mask=Causal())
    for fn, given in (
        (as_attention_fn(encoding), {"is_causal": True}),
        (as_attention_fn(encoding), {"mask": order}),
        (as_attention_fn(encoding, mask=Causal()), {}),
        (as_attention_fn(encoding, mask=Window(9)), {"is_causal": True}),
    ):
        np.testing.assert_allclose(fn(q, q, q, **given), wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "multiplicative"])
def test_encodings_that_would_silently_do_nothing_are_refused(name):
    with pytest.raises(ValueError, match="changes embeddings"):
        as_attention_fn(ENCODINGS[name]())


@pytest.mark.parametrize("name", ["t5", "kerple", "fire", "shaw", "transformer_xl"])
def test_parameters_that_were_not_given_are_asked_for(name):
    x = jnp.ones((1, 4, 2, 4))
    with pytest.raises(ValueError, match=r"give params=encoding\.prepare"):
        as_attention_fn(ENCODINGS[name]())(x, x, x)
    where = tokens(4)
    with pytest.raises(ValueError, match=r"give params=encoding\.prepare"):
        attend(x, x, x, encoding=ENCODINGS[name](), query=where, key=where)


def test_compositions_serve_where_their_parts_do():
    x = jax.random.normal(jax.random.key(0), (1, 5, 2, 4))
    both = as_attention_fn(compose(rope=Rotary(), alibi=ALiBi()))(x, x, x)
    where = tokens(5)
    wanted = attend(
        x,
        x,
        x,
        encoding=compose(rope=Rotary(), alibi=ALiBi()),
        query=where,
        key=where,
    )
    np.testing.assert_allclose(both, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoding": Rotary}, "encoding must be settings"),
        ({"query": jnp.arange(4)}, "query must say where tokens are"),
        ({"mask": Causal}, r"such as Causal\(\)"),
    ],
)
def test_arguments_of_another_kind_are_refused(settings, message):
    x = jnp.ones((1, 4, 2, 4))
    known = {"encoding": Rotary(), "query": tokens(4), "key": tokens(4)}
    with pytest.raises(ValueError, match=message):
        attend(x, x, x, **(known | settings))
