"""Memory of earlier segments: the same as one pass where it may be, no gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax import masks
from ropejax.encodings import ALiBi, Dims, Forgetting, TransformerXL
from ropejax.nn.block import Block, BlockSettings
from ropejax.nn.memory import joined, layer_with_memory, remembered
from ropejax.tokens import tokens
from tests.attention import cases

DIMS = Dims(2, 2, 8, 16, num_layers=2, causal=True)
SEGMENT = 6
SETTINGS = {
    "post": BlockSettings(mlp_dim=8, dropout=0.0),
    "pre": BlockSettings(mlp_dim=8, dropout=0.0, pre_norm=True, output_norm=True),
}


def layers(encoding, kind="post"):
    rngs = nnx.Rngs(0)
    shared = encoding.init_shared(jax.random.key(1), DIMS)
    blocks = [Block(DIMS, SETTINGS[kind], encoding, rngs=rngs) for _ in range(2)]
    return blocks, shared


def inputs(segments=3):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(2, segments * SEGMENT, 16)), jnp.float32)


def in_segments(blocks, x, shared, mask, length=None):
    """Reads segment after segment, every layer with its own memory."""
    memories, outputs = [None] * len(blocks), []
    for start in range(0, x.shape[1], SEGMENT):
        h, where = x[:, start : start + SEGMENT], tokens(SEGMENT, offset=start)
        for at, block in enumerate(blocks):
            h, memories[at] = layer_with_memory(
                block, h, where, memories[at], shared=shared, mask=mask, length=length
            )
        outputs.append(h)
    return jnp.concatenate(outputs, axis=1)


def at_once(blocks, x, shared, mask):
    for block in blocks:
        x = block(x, tokens(x.shape[1]), shared=shared, mask=mask)
    return x


@pytest.mark.parametrize(
    ("encoding", "kind"), [(TransformerXL(), "post"), (Forgetting(), "pre")]
)
def test_with_the_whole_past_in_memory_any_depth_equals_one_pass(encoding, kind):
    blocks, shared = layers(encoding, kind)
    x, mask = inputs(), masks.Causal()

    def run(x):
        short = in_segments(blocks, x, shared, mask, length=1)
        got = in_segments(blocks, x, shared, mask, length=2 * SEGMENT)
        return short, got, at_once(blocks, x, shared, mask)

    short, got, wanted = map(np.asarray, cases.jit(run)(x))
    np.testing.assert_allclose(got, wanted, atol=3e-6)
    np.testing.assert_allclose(short[:, :SEGMENT], wanted[:, :SEGMENT], atol=3e-6)
    assert np.abs(short - wanted)[:, SEGMENT:].max() > 1e-3, "the past is lost"


def test_one_layer_equals_one_pass_with_the_window_of_its_memory():
    (block, _), shared = layers(ALiBi())
    x, reach = inputs(), 4

    def window(query, key):
        begin = query.index // SEGMENT * SEGMENT - reach
        seen = key.index[:, None, None, :] >= begin[:, None, :, None]
        return masks.Causal()(query, key) & seen

    def run(x):
        got = in_segments([block], x, shared, masks.Causal(), length=reach)
        return got, at_once([block], x, shared, window)

    np.testing.assert_allclose(*cases.jit(run)(x), atol=3e-6)


def test_no_gradient_reaches_the_memory_though_it_matters():
    (block, _), shared = layers(TransformerXL())
    x = inputs(2)

    def run(past, now):
        memory = remembered(past, tokens(SEGMENT))
        where = tokens(SEGMENT, offset=SEGMENT)
        out, _ = layer_with_memory(
            block, now, where, memory, shared=shared, mask=masks.Causal()
        )
        return jnp.sin(out).sum()

    run = cases.jit(jax.value_and_grad(run, (0, 1)))
    past, now = x[:, :SEGMENT], x[:, SEGMENT:]
    value, (d_past, d_now) = run(past, now)
    assert not np.asarray(d_past).any()
    assert np.asarray(d_now).any()
    assert abs(run(2 * past, now)[0] - value) > 1e-3


def test_the_memory_keeps_the_latest_tokens_and_where_they_are():
    x = inputs(2)
    first = remembered(x[:, :SEGMENT], tokens(SEGMENT), length=4)
    after = remembered(x[:, SEGMENT:], tokens(SEGMENT, offset=SEGMENT), first, length=8)
    assert after.where.index.tolist() == [list(range(4, 12))]
    assert after.where.positions.tolist() == [list(range(4, 12))]
    np.testing.assert_array_equal(after.hidden, x[:, 4:])
    with pytest.raises(ValueError, match="length must be positive, got 0"):
        remembered(x, tokens(12), length=0)


def test_what_does_not_fit_together_is_refused():
    valid = joined(tokens(2), tokens(2, valid=jnp.array([[True, False]]))).valid
    assert valid.tolist() == [[True, True, True, False]]
    with pytest.raises(ValueError, match="both have segments"):
        joined(tokens(2), tokens(2, segments=jnp.zeros((1, 2), jnp.int32)))
    with pytest.raises(ValueError, match="not a table of distances"):
        joined(tokens(2, distances=jnp.arange(2)[None]), tokens(2))
