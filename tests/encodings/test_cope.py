import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import CoPE
from ropejax.encodings.cope import interpolated
from ropejax.masks import Causal
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


@pytest.mark.parametrize("case", names("cope_ram"))
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_attention_equals_the_official_code(case, implementation):
    golden, settings = load(case), params_of(case)
    q, k, v = (jnp.asarray(golden[name])[:, :, None] for name in "qkv")
    encoding = CoPE(
        num_positions=settings["npos"],
        scaled=not settings["cope_nodiv"],
        gate_keys=settings["cope_sep_key"],
    )
    params = {"vectors": jnp.asarray(golden["pos_emb"].T)}
    if encoding.gate_keys:  # the gates' keys are given below, not computed by these
        params["gate_keys"] = jnp.zeros((1, *k.shape[2:]))
    where = tokens(q.shape[1])
    gates = golden.get("key_cope")
    key = (
        where
        if gates is None
        else where.replace(features=jnp.asarray(gates)[:, :, None])
    )

    @jax.jit
    def run(q, k, v):
        return attend(
            q,
            k,
            v,
            encoding=encoding,
            params=params,
            query=where,
            key=key,
            mask=Causal(),
            implementation=implementation,
            block_q=8,
            block_k=8,
        )

    out = run(q, k, v)
    assert_golden(case, out[:, :, 0], golden["out"])


def test_added_logits_equal_the_listing_of_the_paper():
    case = "cope_xtransformers_H4_L17"
    golden = load(case)
    q = by_token(golden["q"])
    encoding = CoPE(num_positions=params_of(case)["max_pos"])
    params = {"vectors": jnp.asarray(golden["pos_emb"])}
    where = tokens(17)
    views = encoding.queries(params, q, where)
    logits = jnp.asarray(golden["logits"])
    _, got = encoding.carry(
        params,
        encoding.init_carry(params, views, where),
        logits,
        views,
        (q,),
        where,
        where,
        causal(where, where),
        1.0,
    )
    visible = np.tri(17, dtype=bool)
    added = np.where(visible, got - logits, 0)
    assert_golden(case, added, np.where(visible, golden["cope_bias"], 0))


def test_keys_of_gates_are_projected_from_the_input():
    encoding = CoPE(gate_keys=True)
    x = jax.random.normal(jax.random.key(0), (1, 3, 8))
    weights = jax.random.normal(jax.random.key(1), (8, 2, 4))
    k = jnp.zeros((1, 3, 2, 4))
    got, state = encoding.key_features({"gate_keys": weights}, x, k, tokens(3))
    np.testing.assert_allclose(got, jnp.einsum("bld,dnh->blnh", x, weights), rtol=1e-6)
    assert state is None
    assert CoPE().key_features({}, x, k, tokens(3)) == (None, None)


def test_keys_in_another_storage_order_change_nothing():
    encoding = CoPE(num_positions=3)
    rng = np.random.default_rng(0)
    q, k = (jnp.asarray(rng.normal(size=(1, 6, 2, 4)), jnp.float32) for _ in range(2))
    params = {"vectors": jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)}
    where, order = tokens(6), jnp.array([4, 0, 5, 2, 1, 3])
    moved = where.permuted(order)

    @jax.jit
    def logits(k, key):
        visible = causal(where, key)
        return logits_of(encoding, params, q, k, where, key, 0.5, visible), visible

    wanted, _ = logits(k, where)
    got, visible = logits(k[:, order], moved)
    wanted = jnp.where(visible, wanted[..., order], 0)
    np.testing.assert_allclose(jnp.where(visible, got, 0), wanted, atol=1e-5)


def test_interpolation_is_exact_at_whole_positions_and_linear_between():
    table = jnp.array([[[[1.0, 3.0, -1.0]]]])
    position = jnp.array([[[[0.0, 1.0, 2.0, 0.25, 1.5]]]])
    got = interpolated(table, position)[0, 0, 0]
    np.testing.assert_allclose(got, [1, 3, -1, 1.5, 1.0])


def test_vectors_start_at_zero_as_in_the_official_code():
    layer = CoPE().init_layer(jax.random.key(0), dims(2, 4))
    assert layer["vectors"].shape == (64, 4)
    assert not layer["vectors"].any()


def test_no_position_is_refused():
    with pytest.raises(ValueError, match="num_positions must be positive"):
        CoPE(num_positions=0)
