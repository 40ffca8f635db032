import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import XLNet
from ropejax.tokens import tokens
from tests.encodings.additive_cases import (
    assert_golden,
    dims,
    load,
    logits_of,
    names,
    params_of,
)


def segments_of(different):
    """Returns segment numbers `[B, K]` that differ where the golden matrix says so."""
    num_keys, batch = different.shape[1], different.shape[2]
    found = np.zeros((batch, num_keys), int)
    for row in range(batch):
        found[row] = different[0, :, row]
    return found


@pytest.mark.parametrize("case", names("xlnet"))
def test_logits_equal_transformers(case):
    golden, settings = load(case), params_of(case)
    heads, width, past = settings["heads"], settings["head_dim"], settings["mem"]
    everything = golden["h"]
    if past:
        everything = np.concatenate([golden["mems"], everything])
    x = everything.swapaxes(0, 1)
    q = jnp.einsum("bld,dnh->blnh", x[:, past:], golden["param_q"])
    k = jnp.einsum("bld,dnh->blnh", x, golden["param_k"])
    encoding = XLNet(segments=settings["segments"])
    names_of = {"u": "r_w_bias", "v": "r_r_bias", "w": "r"}
    if settings["segments"]:
        names_of |= {"s": "r_s_bias", "e": "seg_embed"}
    layer = {
        ours: jnp.asarray(golden[f"param_{its}"]) for ours, its in names_of.items()
    }
    streams = None
    if settings["segments"]:
        different = golden["seg_mat"][..., 1].astype(bool)
        segment = segments_of(different)
        again = segment[:, past:, None] != segment[:, None, :]
        np.testing.assert_array_equal(again, different.transpose(2, 0, 1))
        streams = {"segment": jnp.asarray(segment)}
    key = tokens(k.shape[1], streams=streams)
    query = key.block(past, q.shape[1])
    placed = {"consecutive_positions": False}

    @jax.jit
    def run(q, k, layer):
        every = []
        for sides in (
            (query, key),
            (query.replace(**placed), key.replace(**placed)),
        ):
            params = encoding.prepare({}, layer, *sides, dims(heads, width))
            every.append(logits_of(encoding, params, q, k, *sides, width**-0.5))
        return every

    for got in run(q, k, layer):
        assert_golden(case, got, golden["logits"])


def test_segments_need_their_stream():
    encoding, where = XLNet(segments=True), tokens(3)
    layer = {name: jnp.zeros((2, 4)) for name in "uvs"}
    layer |= {"w": jnp.zeros((8, 2, 4)), "e": jnp.zeros((2, 2, 4))}
    params = encoding.prepare({}, layer, where, where, dims(2, 4))
    x = jnp.zeros((1, 3, 2, 4))
    with pytest.raises(ValueError, match="streams\\['segment'\\]"):
        logits_of(encoding, params, x, x, where, where, 1.0)


def test_every_layer_has_biases_of_its_own():
    sizes = dims(2, 4)
    assert XLNet().init_shared(jax.random.key(0), sizes) == {}
    layer = XLNet(segments=True).init_layer(jax.random.key(0), sizes)
    assert set(layer) == {"w", "u", "v", "s", "e"}
