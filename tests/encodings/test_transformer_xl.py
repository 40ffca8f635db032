import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.attention import attend
from ropejax.encodings import TransformerXL, XLNet
from ropejax.tokens import tokens
from tests.encodings.additive_cases import (
    assert_golden,
    dims,
    load,
    logits_of,
)


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def forms(length, num_keys, first):
    """Returns the same offsets, known in the ways that the encoding tells apart."""
    query, key = tokens(length, offset=first), tokens(num_keys)
    place = jnp.arange(max(num_keys, first + length))[None]
    table = {"distances": place}
    return {
        "order": (query, key),
        "positions": (
            tokens(length, positions=place[:, first : first + length]),
            tokens(num_keys, positions=place[:, :num_keys]),
        ),
        "distances": (query.replace(**table), key.replace(**table)),
        "gather": (
            query.replace(consecutive_index=False, **table),
            key.replace(consecutive_index=False, **table),
        ),
    }


def logits_by_form(encoding, shared, layer, q, k, sides, sizes):
    """Returns the logits of every form, from one compiled program."""

    @jax.jit
    def every(shared, layer, q, k):
        return {
            form: attention_logits(encoding, shared, layer, q, k, *pair, sizes)
            for form, pair in sides.items()
        }

    return every(shared, layer, q, k)


def attention_logits(encoding, shared, layer, q, k, query, key, sizes):
    params = encoding.prepare(shared, layer, query, key, sizes)
    return logits_of(encoding, params, q, k, query, key, q.shape[3] ** -0.5)


@pytest.mark.parametrize("case", ["transfoxl_H4_L17", "transfoxl_mem5_H6_L17"])
def test_logits_equal_the_official_code_with_and_without_memory(case):
    golden = load(case)
    heads, width = golden["r_w_bias"].shape
    memory = golden.get("mems", np.zeros((0, *golden["w"].shape[1:]), np.float32))
    everything = np.concatenate([memory, golden["w"]]).swapaxes(0, 1)
    qkv = everything @ golden["param_qkv_net_weight"].T
    q, k, _ = (
        jnp.asarray(part.reshape(*part.shape[:2], heads, width))
        for part in np.split(qkv, 3, axis=-1)
    )
    past, num_keys = len(memory), k.shape[1]
    shared = {
        "u": jnp.asarray(golden["r_w_bias"]),
        "v": jnp.asarray(golden["r_r_bias"]),
    }
    w = golden["param_r_net_weight"].T.reshape(-1, heads, width)
    sides = forms(num_keys - past, num_keys, past)
    encoding, sizes = TransformerXL(), dims(heads, width)
    visible = np.tri(num_keys - past, num_keys, past, bool)
    for got in logits_by_form(
        encoding, shared, {"w": jnp.asarray(w)}, q[:, past:], k, sides, sizes
    ).values():
        assert_golden(case, np.where(visible, got, 0), golden["logits"])


def deepmind(case):
    golden = load(case)
    heads, width = golden["content_bias"].shape
    shared = {
        "u": jnp.asarray(golden["content_bias"]),
        "v": jnp.asarray(golden["relative_bias"]),
    }
    layer = {"w": jnp.asarray(golden["w_rel"].reshape(-1, heads, width))}
    q, k = jnp.asarray(golden["q"]), jnp.asarray(golden["k"])
    return golden, shared, layer, q, k, dims(heads, width)


def test_the_other_sign_equals_the_code_of_randomized_positions():
    case = "transfoxl_deepmind_bidir_L17"
    golden, shared, layer, q, k, sizes = deepmind(case)
    encoding = TransformerXL(sign="key_minus_query")
    sides = forms(17, 17, 0)
    for got in logits_by_form(encoding, shared, layer, q, k, sides, sizes).values():
        assert_golden(case, got * 8**0.5, golden["logits"])


@pytest.mark.parametrize(
    "case", ["transfoxl_deepmind_causal_L17", "transfoxl_deepmind_noisy_L17_M64"]
)
def test_quirks_of_that_code_are_the_method_at_other_rows(case):
    """Its causal rows run backwards and its random ones collide; R itself agrees."""
    golden, shared, layer, q, k, sizes = deepmind(case)
    row = golden["row_position"]
    encoding = TransformerXL(sign="key_minus_query")
    got = np.zeros_like(golden["logits"])

    @jax.jit
    def logits(q, positions):
        query = tokens(1, positions=jnp.zeros((1, 1)))
        key = tokens(17, positions=positions)
        return attention_logits(encoding, shared, layer, q, k, query, key, sizes)

    for i in range(17):
        positions = jnp.asarray(row[i], jnp.float32)[None]
        got[:, :, i] = logits(q[:, i : i + 1], positions)[:, :, 0] * 8**0.5
    wanted = golden["logits"]
    if "causal" in case:
        got, wanted = np.tril(got), np.tril(wanted)
    assert_golden(case, got, wanted)


@pytest.mark.parametrize(
    ("length", "num_keys", "first", "batch"), [(6, 6, 0, 2), (3, 8, 5, 8)]
)
def test_all_forms_agree_in_values_and_gradients(length, num_keys, first, batch):
    sizes = dims(2, 4)
    encoding = TransformerXL()
    shared = {"u": normal(2, 4, seed=1), "v": normal(2, 4, seed=2)}
    layer = {"w": normal(8, 2, 4, seed=3)}
    q, k = normal(batch, length, 2, 4, seed=4), normal(batch, num_keys, 2, 4, seed=5)
    weights = normal(batch, 2, length, num_keys, seed=6)

    def loss(arrays, query, key):
        got = attention_logits(encoding, *arrays, query, key, sizes)
        return (got * weights).sum(), got

    sides = forms(length, num_keys, first)

    @jax.jit
    def every(arrays):
        gradient = jax.grad(loss, has_aux=True)
        return {form: gradient(arrays, *pair) for form, pair in sides.items()}

    results = every((shared, layer, q, k))
    wanted = jax.tree.leaves(results.pop("gather"))
    for got in results.values():
        for one, other in zip(jax.tree.leaves(got), wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=3e-5)


def test_offsets_of_both_signs_are_told_apart():
    """R of the offset, seen through unit weights: fault B14's numbers."""
    encoding = TransformerXL(sign="key_minus_query")
    sizes = dims(1, 4)
    zeros = {"u": jnp.zeros((1, 4)), "v": jnp.zeros((1, 4))}
    layer = {"w": jnp.eye(4)[:, None]}
    q = jnp.broadcast_to(jnp.eye(4)[:, None, None], (4, 8, 1, 4))
    k = jnp.zeros_like(q)
    sides = forms(8, 8, 0)
    for got in logits_by_form(encoding, zeros, layer, q, k, sides, sizes).values():
        row = 2 * np.asarray(got)[:, 0].transpose(1, 2, 0)
        np.testing.assert_allclose(row[3, 3], [0, 0, 1, 1], atol=1e-6)
        right = [0.141120008, 0.029995500, -0.989992497, 0.999550034]
        np.testing.assert_allclose(row[2, 5], right, atol=1e-6)
        left = np.array(right) * [-1, -1, 1, 1]
        np.testing.assert_allclose(row[5, 2], left, atol=1e-6)
        offsets = np.concatenate([row[7, :7], row[0]])
        assert len(np.unique(np.round(offsets, 4), axis=0)) == 15


@pytest.mark.parametrize("batch", [2, 16])
def test_tokens_in_order_need_no_gather_and_no_scatter(batch):
    sizes = dims(2, 8)
    encoding = TransformerXL()
    shared = encoding.init_shared(jax.random.key(0), sizes)
    layer = encoding.init_layer(jax.random.key(1), sizes)
    q = jnp.zeros((batch, 6, 2, 8))

    def loss(arrays, where):
        params = encoding.prepare(*arrays[:2], where, where, sizes)
        out = attend(
            *arrays[2:],
            encoding=encoding,
            params=params,
            query=where,
            key=where,
            implementation="dense",
        )
        return out.sum()

    def program(where):
        compiled = jax.jit(jax.grad(loss)).lower((shared, layer, q, q, q), where)
        return compiled.compile().as_text()

    table = jnp.arange(6)[None]
    for where in (tokens(6), tokens(6, distances=table), tokens(6, positions=table)):
        if batch == 2 and where.distances is None:
            continue
        text = program(where)
        assert " gather(" not in text
        assert " scatter(" not in text
    out_of_order = tokens(6, distances=table).replace(consecutive_index=False)
    assert " gather(" in program(out_of_order)


def test_offsets_beyond_a_clamp_are_alike():
    sizes = dims(1, 4)
    encoding = TransformerXL(clamp=2)
    shared = {"u": jnp.zeros((1, 4)), "v": normal(1, 4)}
    layer = {"w": normal(4, 1, 4, seed=1)}
    zeros = jnp.zeros((1, 7, 1, 4))
    sides = forms(7, 7, 0)
    every = logits_by_form(encoding, shared, layer, zeros, zeros, sides, sizes)
    results = [np.asarray(got)[0, 0] for got in every.values()]
    for got in results[1:]:
        np.testing.assert_allclose(got, results[0], atol=1e-6)
    free = dataclasses.replace(encoding, clamp=None)
    query, key = forms(7, 7, 0)["order"]
    wanted = attention_logits(free, shared, layer, zeros, zeros, query, key, sizes)[
        0, 0
    ]
    for i in range(7):
        for j in range(7):
            near = 3 + int(np.clip(j - i, -2, 2))
            np.testing.assert_allclose(results[0][i, j], wanted[3, near], atol=1e-6)


def clamped_logits(encoding, params, q, k, query, key):
    """The formula of the class in float64, a pair at a time."""
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    u, v, w = (np.asarray(params[name], np.float64) for name in "uvw")
    half = np.arange(0, w.shape[0], 2) / w.shape[0]
    got = np.zeros((q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    for t, i in enumerate(np.asarray(query.positions[0])):
        for s, j in enumerate(np.asarray(key.positions[0])):
            angle = np.clip(i - j, -encoding.clamp, encoding.clamp) / 10_000.0**half
            waves = np.concatenate([np.sin(angle), np.cos(angle)])
            row = np.einsum("dnh,d->nh", w, waves)
            got[:, :, t, s] = ((q[:, t] + u) * k[:, s] + (q[:, t] + v) * row).sum(-1)
    return got


@pytest.mark.parametrize("method", [TransformerXL, XLNet])
@pytest.mark.parametrize("length", [1, 2])
def test_few_queries_see_keys_far_beyond_the_clamp(method, length):
    """A step of decoding: the table of offsets is shorter than the row of keys."""
    encoding, sizes, num_keys, first = method(clamp=3), dims(2, 2), 10, 9
    arrays = {"u": normal(2, 2), "v": normal(2, 2, seed=1), "w": normal(4, 2, 2)}
    q, k = normal(1, length, 2, 2, seed=3), normal(1, num_keys, 2, 2, seed=4)
    sides = forms(length, num_keys, first)
    query, key = sides["order"]
    sides["later queries"] = (tokens(length, offset=25), key)
    sides["earlier queries"] = (query.replace(positions=query.positions - 9), key)
    order = jnp.asarray([7, 2, 9, 0, 4, 1, 8, 3, 6, 5])
    for form, got in logits_by_form(encoding, {}, arrays, q, k, sides, sizes).items():
        wanted = clamped_logits(encoding, arrays, q, k, *sides[form])
        np.testing.assert_allclose(got * 2**0.5, wanted, atol=1e-5, err_msg=form)
    moved = key.permuted(order)
    got = attention_logits(encoding, {}, arrays, q, k[:, order], query, moved, sizes)
    wanted = clamped_logits(encoding, arrays, q, k[:, order], query, moved)
    np.testing.assert_allclose(got * 2**0.5, wanted, atol=1e-5)


def test_a_block_in_order_reads_any_table_of_a_clamp():
    """Prepared for tokens out of order, met by blocks of them that are in order."""
    encoding, sizes = TransformerXL(clamp=3), dims(2, 2)
    arrays = {"u": normal(2, 2), "v": normal(2, 2, seed=1), "w": normal(4, 2, 2)}
    query, key = tokens(4, offset=6), tokens(10)
    q, k = normal(1, 4, 2, 2, seed=3), normal(1, 10, 2, 2, seed=4)
    loose = key.replace(consecutive_positions=False, consecutive_index=False)
    wanted = clamped_logits(encoding, arrays, q, k, query, key)
    for known in (loose, key):
        params = encoding.prepare({}, arrays, query, known, sizes)
        for start, size in ((0, 4), (0, 1), (3, 1), (1, 2)):
            part = slice(start, start + size)
            got = logits_of(
                encoding, params, q[:, part], k, query.block(start, size), key, 1.0
            )
            np.testing.assert_allclose(got, wanted[:, :, part], atol=1e-5)


def test_parameters_are_shared_or_not_as_asked():
    sizes = dims(4, 16)
    tied, untied = TransformerXL(), TransformerXL(tied=False)
    rng = jax.random.key(0)
    assert set(tied.init_shared(rng, sizes)) == {"u", "v"}
    assert set(tied.init_layer(rng, sizes)) == {"w"}
    assert untied.init_shared(rng, sizes) == {}
    layer = untied.init_layer(rng, sizes)
    assert set(layer) == {"u", "v", "w"}
    np.testing.assert_allclose(layer["w"].std(), 64**-0.5, rtol=0.05)
    assert not np.allclose(layer["u"], layer["v"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sign": "query"}, "sign must be one of"),
        ({"clamp": 0}, "clamp must be positive"),
        ({"max_wavelength": -1.0}, "max_wavelength must be positive"),
        ({"init_std": -0.02}, "init_std must be at least 0"),
    ],
)
@pytest.mark.parametrize("method", [TransformerXL, XLNet])
def test_settings_out_of_range_are_refused(method, settings, message):
    with pytest.raises(ValueError, match=message):
        method(**settings)


def test_an_odd_model_width_is_refused():
    with pytest.raises(ValueError, match="even width"):
        TransformerXL().check(dims(1, 5))
