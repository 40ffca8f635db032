"""Every form of a bias is the same bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    ENCODINGS,
    ALiBi,
    Dims,
    Kerple,
    Rotary,
    T5Bias,
    WeightedKerple,
    compose,
)
from ropejax.tokens import relative_positions, tokens

DIMS = Dims(3, 3, 8, 24, causal=True)
LENGTH = 9
NARROW = {
    name: encoding()
    for name, encoding in ENCODINGS.items()
    if encoding().has_bias and encoding().has_narrow_bias
} | {
    "power": Kerple("power"),
    "two-sided": ALiBi(learned=True, two_sided=True),
    "tie": ALiBi(tie_break=True),
    "composed": compose(Rotary(), T5Bias()),
}


def prepared(encoding, where):
    rngs = jax.random.split(jax.random.key(0))
    shared = encoding.init_shared(rngs[0], DIMS)
    layer = encoding.init_layer(rngs[1], DIMS)
    return encoding.prepare(shared, layer, where, where, DIMS)


@pytest.mark.parametrize("name", NARROW)
def test_a_narrow_bias_is_the_bias(name):
    encoding, where = NARROW[name], tokens(LENGTH)
    params = prepared(encoding, where)
    numbers, function, table = encoding.narrow_bias(params)
    offsets = relative_positions(where, where)
    got = jnp.zeros((1, DIMS.num_heads, LENGTH, LENGTH))
    for head in range(DIMS.num_heads):
        if function is not None:
            own = {key: x[head : head + 1] for key, x in numbers.items()}
            got = got.at[0, head].add(function(own, offsets)[0, 0])
        if table is not None:
            middle = table.shape[1] // 2
            row = jnp.clip(offsets[0], -middle, middle) + middle
            got = got.at[0, head].add(table[head][row])
    wanted = encoding.bias(params, where, where, 1.0)
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    assert np.ptp(wanted) > 0.01


def test_which_methods_have_a_narrow_bias():
    assert {"alibi", "kerple", "t5", "scalar_bias"} <= set(NARROW)
    assert not {"fire", "fox", "sandwich", "kerple_weighted"} & set(NARROW)
    assert not WeightedKerple().has_bias
    assert not compose(ALiBi(), Kerple()).has_narrow_bias
    assert compose(ALiBi(), Kerple()).factored_size(8) is None


@pytest.mark.parametrize("encoding", [ALiBi(), compose(Rotary(), ALiBi())], ids=str)
def test_a_factored_bias_is_the_bias_up_to_a_number_of_each_row(encoding):
    where = tokens(LENGTH, offset=100)
    params = prepared(encoding, where)
    factors = encoding.factored_bias(params, where, where)
    shape = (1, LENGTH, DIMS.num_heads, 1)
    query, key = (jnp.broadcast_to(x, shape) for x in factors)
    got = np.asarray(jnp.einsum("btnr,bsnr->bnts", query, key))
    wanted = np.asarray(encoding.bias(params, where, where, 1.0))
    past = np.tril(np.ones((LENGTH, LENGTH), bool))
    off = np.where(past, got - wanted, np.nan)
    assert np.nanmax(np.nanmax(off, -1) - np.nanmin(off, -1)) < 1e-5
    assert np.abs(got).max() <= encoding.factored_size(LENGTH)


def test_a_factored_bias_needs_a_bound():
    assert ALiBi().factored_size(100) == 100
    assert ALiBi(slopes=(0.5, 0.25)).factored_size(100) == 50
    for encoding in (ALiBi(learned=True), ALiBi(tie_break=True), Kerple(), T5Bias()):
        assert encoding.factored_size(100) is None
    with pytest.raises(NotImplementedError, match="KERPLE has no factored bias"):
        Kerple().factored_bias({}, tokens(2), tokens(2))
    with pytest.raises(NotImplementedError, match="RoPE has no narrow bias"):
        Rotary().narrow_bias({})
