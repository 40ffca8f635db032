"""Gated attention units: against numpy, the papers' counts, and as layers of models."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax.attention import Softmax, SquaredReLU
from ropejax.encodings import ENCODINGS, ALiBi, Dims, Encoding, Rotary
from ropejax.masks import Causal, Window
from ropejax.nn import BlockSettings, GatedBlock, LayerKind, TransformerSpec
from ropejax.nn.block import Block
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.nn.memory import layer_with_memory
from ropejax.nn.query_key_norm import HeadRMSNorm
from ropejax.nn.row_scales import SSMax
from ropejax.positions import Placement
from ropejax.tokens import tokens as tokens_of
from tests.nn.moved_parameters import moved

DIMS = Dims(1, 1, 4, 6, 2, causal=True)
LENGTH = 5
PUBLISHED = Dims(1, 1, 128, 768, 1)


def settings_of(**changes):
    plain = {"mlp_dim": 12, "activation": jax.nn.silu, "dropout": 0.0}
    return BlockSettings(**(plain | changes), gated=True)


def spec_of(encoding="rope", dims=DIMS, **changes):
    """A decoder of two units."""
    kind = LayerKind(ENCODINGS[encoding](), Causal())
    return TransformerSpec(5, 3, dims, settings_of(**changes), (kind,))


def block_of(rng, encoding, dims=DIMS, **changes):
    """A unit's graph and its parameters, nowhere neutral."""
    made = GatedBlock(dims, settings_of(**changes), encoding, rngs=nnx.Rngs(rng))
    graph, params = nnx.split(made)
    return graph, moved(params, rng)


# ---- what it computes ----------------------------------------------------------------


def silu(x):
    return x / (1 + np.exp(-x))


def layer_norm(x, params):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return x * params["scale"] + params["bias"]


def rotated(x):
    """Pairs of one half with the other, of tokens `[.., L, s]`."""
    half = x.shape[-1] // 2
    turn = 10000.0 ** (-np.arange(half) / half) * np.arange(x.shape[-2])[:, None]
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(turn), np.sin(turn)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def unit_in_numpy(params, x, *, encoding, squared, pre_norm, output_norm=False):
    """A unit with its residual and norm, causal, in float64."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    own, norm, x = params["attention"], params.get("attention_norm"), np.float64(x)
    h = layer_norm(x, norm) if pre_norm else x
    u, v, z = (
        silu(np.einsum("bld,dnh->bnlh", h, own[name]["kernel"]))
        for name in ("gate", "value", "base")
    )
    q, k = (
        z * own[f"{name}_scale"][:, None] + own[f"{name}_offset"][:, None]
        for name in ("query", "key")
    )
    if encoding == "rope":
        q, k = rotated(q), rotated(k)
    logits = np.einsum("bnth,bnsh->bnts", q, k) / np.sqrt(q.shape[-1])
    if encoding == "alibi":
        heads, at = q.shape[1], np.arange(x.shape[1])
        slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
        logits -= slopes[:, None, None] * np.abs(at[:, None] - at)
    seen = np.tri(x.shape[1])
    if squared:
        weights = seen * np.maximum(logits, 0) ** 2 / seen.sum(-1, keepdims=True)
    else:
        weights = seen * np.exp(logits)
        weights /= weights.sum(-1, keepdims=True)
    out = np.einsum("bnlh,nhd->bld", u * (weights @ v), own["out"]["kernel"])
    if output_norm:
        return weights, x + layer_norm(out, params["attention_output_norm"])
    return weights, x + out if pre_norm else layer_norm(x + out, norm)


@pytest.mark.parametrize(
    ("name", "heads", "squared", "pre_norm", "output_norm"),
    [
        ("rope", 1, True, True, False),  # the paper's
        ("rope", 1, False, False, False),  # GAU-alpha's, but for log n
        ("alibi", 1, True, False, True),
        ("alibi", 2, False, True, False),
    ],
)
def test_a_unit_equals_the_formula_in_numpy(
    rng, name, heads, squared, pre_norm, output_norm
):
    dims = DIMS._replace(num_heads=heads, num_kv_heads=heads)
    normalizer = SquaredReLU() if squared else Softmax()
    norms = {"pre_norm": pre_norm, "output_norm": output_norm}
    changes = {"normalizer": normalizer, **norms}
    encoding = {"rope": Rotary(), "alibi": ALiBi()}[name]
    graph, params = block_of(rng, encoding, dims, **changes)
    x = jax.random.normal(rng, (2, LENGTH, 6))
    where, given = tokens_of(LENGTH), {"shared": {}, "mask": Causal()}

    @jax.jit
    def run(params):
        block = nnx.merge(graph, params)
        h = block.attention_norm(x) if pre_norm else x
        return block(x, where, **given), block.attention.weights(h, where, **given)

    out, weights = run(params)
    wanted_weights, wanted = unit_in_numpy(
        nnx.to_pure_dict(params), x, encoding=name, squared=squared, **norms
    )
    np.testing.assert_allclose(weights, wanted_weights, rtol=3e-6, atol=2e-6)
    np.testing.assert_allclose(out, wanted, rtol=3e-6, atol=1e-5)
    assert ((wanted_weights == 0) & (np.tri(LENGTH) > 0)).any() == squared


def test_a_unit_that_sees_itself_alone_is_a_gated_linear_unit(rng):
    """Su 2022, article 8934: with the identity for weights."""
    graph, params = block_of(rng, Encoding(), pre_norm=True)
    x = jax.random.normal(rng, (1, LENGTH, 6))

    @jax.jit
    def run(params):
        block = nnx.merge(graph, params)
        own, h = block.attention, block.attention_norm(x)
        glu = jax.nn.silu(own.gate(h)) * jax.nn.silu(own.value(h))
        out = block(x, tokens_of(LENGTH), shared={}, mask=Window(0, 0))
        return out, x + own.out(glu)

    np.testing.assert_allclose(*run(params), atol=2e-6)


def test_a_token_knows_nothing_of_later_ones_and_without_positions_no_order(rng):
    graph, params = block_of(rng, Encoding(), normalizer=SquaredReLU())
    x = jax.random.normal(rng, (1, LENGTH, 6))
    order = np.array([3, 0, 4, 2, 1])

    @jax.jit
    def run(params):
        block = nnx.merge(graph, params)
        layer = lambda x, mask: block(x, tokens_of(LENGTH), shared={}, mask=mask)
        other = x.at[:, 3:].add(1.0)
        moved_on = layer(x, Causal())[:, :3], layer(other, Causal())[:, :3]
        return *moved_on, layer(x[:, order], None), layer(x, None)[:, order]

    early, same, permuted, wanted = run(params)
    np.testing.assert_array_equal(early, same)
    np.testing.assert_allclose(permuted, wanted, atol=2e-6)


# ---- how large it is -----------------------------------------------------------------


def count(make):
    return sum(x.size for x in jax.tree.leaves(jax.eval_shape(make)))


def test_two_units_have_the_weights_of_attention_and_mlp():
    """Hua et al. 2022: 3 e D, e = 2 D, against 12 D^2; here at D = 768."""

    def weights(make, **settings):
        settings = BlockSettings(**settings)
        one = lambda: make(PUBLISHED, settings, Encoding(), rngs=nnx.Rngs(0))
        return count(lambda: nnx.split(one())[1])

    d, s, e = 768, 128, 2 * 768
    unit = weights(GatedBlock, mlp_dim=e, gated=True)
    assert unit == 3 * e * d + d * s + 4 * s + 2 * d  # z, scales and offsets, the norm
    twelve = PUBLISHED._replace(num_heads=12, num_kv_heads=12, head_dim=64)
    settings = BlockSettings(mlp_dim=4 * d)
    whole = count(
        lambda: nnx.split(Block(twelve, settings, Encoding(), rngs=nnx.Rngs(0)))[1]
    )
    assert 2 * unit / whole == pytest.approx(1, abs=0.03)


# ---- ways of applying units ----------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "changes"),
    [
        ("rope", {"normalizer": SquaredReLU()}),
        ("alibi", {"qk_norm": HeadRMSNorm(), "row_scale": SSMax()}),
        pytest.param("t5", {}, marks=pytest.mark.slow),
        pytest.param(
            "fire",
            {"normalizer": SquaredReLU(), "pre_norm": True},
            marks=pytest.mark.slow,
        ),
        pytest.param("vo_rope", {}, marks=pytest.mark.slow),
        pytest.param("fox", {"pre_norm": True}, marks=pytest.mark.slow),
    ],
)
def test_decoding_with_a_cache_gives_the_logits_of_a_full_pass(rng, encoding, changes):
    spec = spec_of(encoding, **changes)
    params = moved(spec.init(rng), rng)
    tokens = jax.random.randint(rng, (2, 6), 0, 5)

    @jax.jit
    def run(params):
        model = spec.bind(params)
        prompts = jnp.array([3, 4]) if encoding != "fox" else jnp.array(4)
        places = jnp.broadcast_to(prompts, (2,))
        logits, memory = model.start(tokens[:, :4], Placement(), prompts, capacity=6)
        at = jnp.arange(2)
        further, _ = model.step(memory, tokens[at, places], prompts)
        full = model(tokens, Placement())
        return logits, further, full[at, places - 1], full[at, places]

    start, further, *wanted = run(params)
    np.testing.assert_allclose([start, further], wanted, atol=1e-5)


def test_a_memory_of_a_segment_is_the_segment(rng):
    graph, params = block_of(rng, Rotary(), pre_norm=True, normalizer=SquaredReLU())
    x = jax.random.normal(rng, (1, 6, 6))
    later, given = tokens_of(3, offset=3), {"shared": {}, "mask": Causal()}

    @jax.jit
    def run(params):
        block = nnx.merge(graph, params)
        first, memory = layer_with_memory(block, x[:, :3], tokens_of(3), None, **given)
        second, _ = layer_with_memory(block, x[:, 3:], later, memory, **given)
        return jnp.concatenate([first, second], 1), block(x, tokens_of(6), **given)

    np.testing.assert_allclose(*run(params), atol=1e-5)


def test_looped_and_computed_again_blockwise_is_the_same_with_gradients(rng):
    """Dropout of everything; and in half precision, nearly the same."""
    changes = {"normalizer": SquaredReLU(), "dropout": 0.2, "attention_dropout": 0.2}
    spec = dataclasses.replace(spec_of("alibi", **changes), loops=2)
    params = moved(spec.init(rng), rng)
    tokens = jax.random.randint(rng, (2, LENGTH), 0, 5)

    def loss(params, **changes):
        settings = dataclasses.replace(spec.settings, **changes)
        model = dataclasses.replace(spec, settings=settings).bind(params)
        return (model(tokens, Placement(), rng=rng) ** 2).mean()

    wanted, gradient = jax.jit(jax.value_and_grad(loss))(params)
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all()
        assert np.asarray(leaf).any()
    other = partial(loss, remat="full", implementation="blockwise")
    got, other_gradient = jax.jit(jax.value_and_grad(other))(params)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (other_gradient, gradient)), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    narrow = jax.jit(partial(loss, dtype=jnp.dtype("bfloat16")))(params)
    np.testing.assert_allclose(narrow, wanted, rtol=0.1)
    assert narrow != wanted


# ---- what is refused -----------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: spec_of(dims=DIMS._replace(num_heads=2)),
            "num_kv_heads=1 must be",
        ),
        (
            lambda: spec_of(dims=DIMS._replace(num_heads=5, num_kv_heads=5)),
            "num_heads=5 must divide the expanded width mlp_dim=12",
        ),
        (lambda: spec_of("shaw"), "head_dim=4, but those .* mlp_dim / num_heads = 12"),
        (
            lambda: EncoderDecoderSpec(5, 3, 4, DIMS, settings_of(), Rotary()),
            "an encoder-decoder has no gated attention units",
        ),
    ],
)
def test_what_a_unit_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.fast
@pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "shaw"])
def test_every_encoding_serves_values_of_another_width(name):
    spec = spec_of(name)

    def run(rng):
        tokens = jnp.zeros((1, LENGTH), jnp.int32)
        return spec.bind(spec.init(rng))(tokens, Placement())

    assert jax.eval_shape(run, jax.random.key(0)).shape == (1, LENGTH, 3)
