import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import Shaw
from ropejax.tokens import tokens
from tests.encodings.additive_cases import (
    assert_golden,
    by_token,
    causal,
    dims,
    load,
    logits_of,
    names,
    params_of,
)


def in_order_and_not(length):
    place = jnp.arange(length)[None]
    return {"order": tokens(length), "positions": tokens(length, positions=place)}


@pytest.mark.parametrize("case", names("shaw_t2t"))
def test_keys_and_values_equal_tensor2tensor(case):
    golden, settings = load(case), params_of(case)
    q, k, v = (by_token(golden[name]) for name in "qkv")
    encoding = Shaw(clip=settings["max_relative_position"])
    mask = causal if settings["causal"] else None

    @jax.jit
    def run(q, k, v, layer):
        outputs = {}
        for kind, where in in_order_and_not(q.shape[1]).items():
            params = encoding.prepare({}, layer, where, where, dims(*q.shape[2:]))
            sides = {"query": where, "key": where}
            logits = logits_of(encoding, params, q, k, where, where, q.shape[3] ** -0.5)
            out = attend(q, k, v, encoding=encoding, params=params, mask=mask, **sides)
            outputs[kind] = logits, out
        return outputs

    layer = {
        "keys": jnp.asarray(golden["rel_keys"]),
        "values": jnp.asarray(golden["rel_values"]),
    }
    for logits, out in run(q, k, v, layer).values():
        assert_golden(case, logits, golden["logits"])
        assert_golden(case, out, by_token(golden["out"]))


@pytest.mark.parametrize("case", names("shaw_bert"))
def test_bert_forms_are_the_table_upside_down(case):
    golden, settings = load(case), params_of(case)
    q, k, v = (by_token(golden[name]) for name in "qkv")
    encoding = Shaw(
        clip=settings["max_position_embeddings"] - 1,
        value_vectors=False,
        key_query=settings["kind"] == "relative_key_query",
    )
    layer = {"keys": jnp.asarray(golden["distance_embedding"][::-1])}

    @jax.jit
    def run(q, k, v):
        outputs = {}
        for kind, where in in_order_and_not(q.shape[1]).items():
            sides = {"query": where, "key": where}
            outputs[kind] = (
                logits_of(encoding, layer, q, k, where, where, q.shape[3] ** -0.5),
                attend(q, k, v, encoding=encoding, params=layer, **sides),
            )
        return outputs

    for logits, out in run(q, k, v).values():
        assert_golden(case, logits, golden["logits"])
        assert_golden(case, out, by_token(golden["out"]))


def test_tables_are_one_a_head_only_if_asked():
    sizes = dims(4, 8)
    shared = Shaw(clip=3).init_layer(jax.random.key(0), sizes)
    assert {name: x.shape for name, x in shared.items()} == {
        "keys": (7, 8),
        "values": (7, 8),
    }
    own = Shaw(clip=3, per_head=True, value_vectors=False).init_layer(
        jax.random.key(0), sizes
    )
    assert {name: x.shape for name, x in own.items()} == {"keys": (7, 4, 8)}


def test_offsets_beyond_the_clip_share_a_vector():
    encoding = Shaw(clip=2, value_vectors=False)
    rng = np.random.default_rng(0)
    params = {"keys": jnp.asarray(rng.normal(size=(5, 8)), jnp.float32)}
    where = tokens(6)
    q = jnp.ones((1, 6, 1, 8))
    got = logits_of(encoding, params, q, 0 * q, where, where, 1.0)[0, 0]
    np.testing.assert_allclose(
        got[0], np.asarray(params["keys"].sum(1))[[2, 3, 4, 4, 4, 4]], rtol=1e-5
    )


def test_no_clip_is_refused():
    with pytest.raises(ValueError, match="clip must be positive"):
        Shaw(clip=0)


def test_fractional_positions_are_refused():
    where = tokens(2, positions=jnp.array([[0.0, 0.5]]))
    x = jnp.zeros((1, 2, 1, 4))
    encoding = Shaw(clip=2, value_vectors=False)
    with pytest.raises(ValueError, match="integer positions"):
        logits_of(encoding, {"keys": jnp.zeros((5, 4))}, x, x, where, where, 1.0)
