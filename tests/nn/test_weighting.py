"""What replaces the softmax, normalizes queries and keys, or scales rows, in a model.

Parameters and where they start, invariances, and the models' ways of applying layers
against each other; test_weighting_oracle.py has the numbers of one layer.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax.attention import (
    Entmax,
    Selective,
    SequenceParallel,
    Sigmoid,
    SinkSoftmax,
    StickBreaking,
)
from ropejax.encodings import ENCODINGS, Dims, Encoding
from ropejax.masks import Causal
from ropejax.nn import (
    BlockSettings,
    LayerKind,
    MultiHeadAttention,
    TransformerSpec,
    Weighting,
)
from ropejax.nn.block import Block
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.nn.memory import layer_with_memory
from ropejax.nn.output_gates import SigmoidGate
from ropejax.nn.query_key_norm import CosineNorm, HeadRMSNorm, KeyNorm, LearnedCosine
from ropejax.nn.row_scales import AdaptiveScale, SSMax
from ropejax.positions import Placement
from ropejax.sharding import make_mesh
from ropejax.sharding.names import parameter_names, path_of
from ropejax.tokens import tokens as tokens_of
from tests.nn.moved_parameters import moved

DIMS = Dims(2, 2, 4, 8, 2, causal=True)
EVERYTHING = {
    "normalizer": SinkSoftmax(),
    "qk_norm": LearnedCosine(train_length=6),
    "row_scale": SSMax(train_length=6, offset=True),
}


def make(encoding="rope", **changes):
    """A decoder of two layers, weighed as told."""
    own = {
        name: changes.pop(name)
        for name in (*EVERYTHING, "attention_dropout", "implementation", "remat")
        if name in changes
    }
    settings = BlockSettings(mlp_dim=8, dropout=0.0, pre_norm=True, **own)
    kind = LayerKind(ENCODINGS[encoding](), Causal())
    spec = TransformerSpec(5, 3, DIMS, settings, (kind,))
    return dataclasses.replace(spec, **changes)


# ---- what parameters there are, and where they start ---------------------------------


def shapes(spec):
    made = jax.eval_shape(spec.init, jax.random.key(0))
    return {path_of(path): x for path, x in jax.tree_util.tree_leaves_with_path(made)}


@pytest.mark.fast
def test_a_model_has_the_parameters_of_its_methods_and_no_others():
    plain = shapes(make())
    assert not any("weighting" in path for path in plain)
    for same in (KeyNorm(), CosineNorm(), LearnedCosine(learned=False)):
        assert shapes(make(qk_norm=same)) == plain
    assert shapes(make(normalizer=SinkSoftmax(None))) == plain
    prefix = "layers/kind_0/attention/weighting_params/"
    added = shapes(make(**EVERYTHING)).items() - plain.items()
    assert {path.removeprefix(prefix): x.shape for path, x in added} == {
        "normalizer/sink": (2, 2),
        "qk_norm/scale": (2, 2),
        "row_scale/s": (2, 2),
        "row_scale/b": (2, 2),
    }


@pytest.mark.fast
def test_the_mesh_knows_the_heads_and_the_width_of_new_parameters():
    spec = make(
        normalizer=SinkSoftmax(), qk_norm=HeadRMSNorm(), row_scale=AdaptiveScale()
    )
    params = jax.eval_shape(spec.init, jax.random.key(0))
    names = parameter_names(spec, params)["layers"]["kind_0"]["attention"]
    assert names["weighting_params"] == {
        "normalizer": {"sink": ("layers", "heads")},
        "qk_norm": {"query_gain": ("layers", None), "key_gain": ("layers", None)},
        "row_scale": {
            "beta": {"kernel": ("layers", "embed", "heads")},
            "gamma": {"kernel": ("layers", "embed", "heads")},
        },
    }


@pytest.mark.fast
def test_learned_numbers_start_where_the_papers_have_them():
    """0.168 for 1 to 1,024: Nakanishi 2025; log2(N^2 - N): Henry et al. 2020."""
    numbers = range(1, 1025)
    mean = sum(math.log(n) for n in numbers) / len(numbers)
    assert SSMax(train_length=1024).start == pytest.approx(1 / mean)
    assert round(SSMax(train_length=1024).start, 3) == 0.168
    assert LearnedCosine(train_length=1000).start == math.log2(1000**2 - 1000)
    assert SSMax(initial=0.43).start == 0.43
    with pytest.raises(ValueError, match="train_length must be at least 2, got 1"):
        LearnedCosine(train_length=1)
    with pytest.raises(ValueError, match="initial must be finite"):
        SinkSoftmax(math.nan)


def test_everything_else_starts_alike_and_a_neutral_factor_changes_nothing(rng):
    """SSMax with s = 0 and b = 1 is the plain softmax."""
    plain = make()
    scaled = make(row_scale=SSMax(initial=0.0, offset=True))
    params = scaled.init(rng)
    own = params["layers"]["kind_0"]["attention"].pop("weighting_params")
    jax.tree.map(np.testing.assert_array_equal, params, plain.init(rng))
    tokens = jax.random.randint(rng, (2, 6), 0, 5)
    run = lambda spec: jax.jit(lambda p: spec.bind(p)(tokens, Placement()))(params)
    expected = run(plain)
    own["row_scale"]["b"] = own["row_scale"]["b"] + 1
    params["layers"]["kind_0"]["attention"]["weighting_params"] = own
    np.testing.assert_allclose(run(scaled), expected, rtol=1e-6, atol=1e-6)


# ---- invariances ---------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize(
    ("qk_norm", "free"),
    [
        (KeyNorm(), ["key"]),
        (CosineNorm(), ["key", "query"]),
        (HeadRMSNorm(), ["key", "query"]),
    ],
    ids=["key", "cosine", "rms"],
)
def test_lengths_that_are_normalized_away_do_not_matter(rng, qk_norm, free):
    """Projections three times as large change nothing, under RoPE too."""
    how, rope = Weighting(qk_norm=qk_norm), ENCODINGS["rope"]()
    module = MultiHeadAttention(DIMS, rope, weighting=how, rngs=nnx.Rngs(rng))
    graph, params = nnx.split(module)
    params = moved(nnx.to_pure_dict(params), rng)
    x = jax.random.normal(rng, (1, 6, 8))

    @jax.jit
    def run(factors):
        longer = {
            name: {"kernel": factors[name] * params[name]["kernel"]} for name in factors
        }
        module = nnx.merge(graph, params | longer)
        return module(x, tokens_of(6), shared={}, mask=Causal())

    one = {"key": 1.0, "query": 1.0}
    for name in one:
        change = np.abs(run(one | {name: 3.0}) - run(one)).max()
        assert change < 1e-4 if name in free else change > 1e-2


# ---- ways of applying layers ---------------------------------------------------------


COMBINATIONS = {
    "sink, rms, ssmax": (SinkSoftmax(), HeadRMSNorm(), SSMax()),
    "entmax, cosine, adaptive": (Entmax(), CosineNorm(), AdaptiveScale()),
    "stick-breaking, key": (StickBreaking(), KeyNorm(), SSMax(offset=True)),
    "sigmoid, learned cosine": (Sigmoid(), LearnedCosine(), SSMax()),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_decoding_with_a_cache_gives_the_logits_of_a_full_pass(rng, name):
    normalizer, qk_norm, row_scale = COMBINATIONS[name]
    spec = make(normalizer=normalizer, qk_norm=qk_norm, row_scale=row_scale)
    params = moved(spec.init(rng), rng)
    tokens = jax.random.randint(rng, (2, 6), 0, 5)

    @jax.jit
    def run(params):
        model = spec.bind(params)
        assert model.can_cache
        prompts = jnp.array([3, 4])
        logits, memory = model.start(tokens[:, :4], Placement(), prompts, capacity=6)
        at = jnp.arange(2)
        further, _ = model.step(memory, tokens[at, prompts], prompts)
        full = model(tokens, Placement())
        return logits, further, full[at, prompts - 1], full[at, prompts]

    start, further, *expected = run(params)
    np.testing.assert_allclose([start, further], expected, atol=3e-5)


@pytest.mark.fast
def test_selective_attention_is_decoded_by_full_passes():
    spec = make(normalizer=Selective())
    model = spec.bind(jax.eval_shape(spec.init, jax.random.key(0)))
    assert not model.can_cache


def test_every_new_parameter_of_a_population_learns(rng):
    """Under vmap, remat and loops, scanned; and spelled out it gives the same."""
    tokens = jax.random.randint(rng, (2, 6), 0, 5)
    settings = {"loops": 2, "remat": "full"}

    def gradients(spec, params):
        loss = lambda params: (spec.bind(params)(tokens, Placement()) ** 2).mean()
        made = jax.grad(loss)(params)
        return made["layers"]["kind_0"]["attention"]["weighting_params"]

    scanned = make(**EVERYTHING, **settings)
    spelled = make(**EVERYTHING, loops=2, scan_layers=False)
    params = jax.vmap(lambda key: moved(scanned.init(key), key))(
        jax.random.split(rng, 2)
    )
    found = jax.jit(jax.vmap(lambda params: gradients(scanned, params)))(params)
    assert len(jax.tree.leaves(found)) == 4
    for gradient in jax.tree.leaves(found):
        assert gradient.shape == (2, 2, 2)  # members, layers, heads
        assert np.abs(gradient).min() > 0
    second = jax.tree.map(lambda leaf: leaf[1], params)
    expected = jax.jit(lambda params: gradients(spelled, params))(second)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-3, atol=1e-6),
        found,
        expected,
    )


def test_encoder_decoders_weigh_alike_in_cross_attention(rng):
    """Decoding equals the full pass, and cross attention's own sink and gate matter."""
    own = {"normalizer": SinkSoftmax(), "qk_norm": HeadRMSNorm(), "row_scale": SSMax()}
    own["output_gate"] = SigmoidGate(initial_bias=0.0)
    settings = BlockSettings(8, dropout=0.0, **own)
    dims = DIMS._replace(num_layers=1)
    spec = EncoderDecoderSpec(5, 3, 4, dims, settings, Encoding())
    params = moved(spec.init(rng), rng)
    tokens = jnp.array([[0, 1, 2, 4, 1, 3], [2, 3, 4, 0, 1, 2]])
    prompts = jnp.array([4, 3])

    @jax.jit
    def run(params):
        model, at = spec.bind(params), jnp.arange(2)
        logits, memory = model.start(tokens[:, :4], Placement(), prompts, capacity=6)
        further, _ = model.step(memory, tokens[at, prompts], prompts)
        full = model(tokens, Placement())
        return logits, further, full[at, prompts - 1], full[at, prompts]

    start, further, *expected = run(params)
    np.testing.assert_allclose([start, further], expected, atol=3e-5)
    cross = params["decoder"]["cross"]
    gate, sink = cross["output_gate_params"], cross["weighting_params"]["normalizer"]
    gate["bias"] = gate["bias"] - 3
    gated = run(params)[0]
    assert np.abs(gated - start).min() > 1e-4
    sink["sink"] = sink["sink"] + 3
    assert np.abs(run(params)[0] - gated).min() > 1e-5


def test_encoder_decoders_drop_the_weights_of_the_whole_batch_in_parts(rng):
    settings = BlockSettings(8, dropout=0.0, attention_dropout=0.5)
    dims = DIMS._replace(num_layers=1)
    spec = EncoderDecoderSpec(5, 3, 4, dims, settings, Encoding())
    params = moved(spec.init(rng), rng)
    tokens = jnp.array([[0, 1, 2, 4, 1, 3], [2, 3, 4, 0, 1, 2]])

    @jax.jit
    def run(params):
        model = spec.bind(params)
        given = {"rng": rng, "first_row": 1}
        return (
            model(tokens, Placement(), rng=rng),
            model(tokens[1:], Placement(), **given),
            model(tokens, Placement()),
        )

    whole, part, kept = run(params)
    np.testing.assert_allclose(part, whole[1:], atol=2e-5)
    assert np.abs(whole - kept)[:, 3:].max(-1).min() > 1e-3


def test_a_memory_keeps_normalized_keys_and_counts_them(rng):
    """One layer reads a text in two segments as it reads it whole."""
    settings = BlockSettings(8, dropout=0.0, pre_norm=True, **EVERYTHING)
    block = Block(DIMS, settings, ENCODINGS["rope"](), rngs=nnx.Rngs(rng))
    graph, params = nnx.split(block)
    x = jax.random.normal(rng, (1, 6, 8))
    later, given = tokens_of(3, offset=3), {"shared": {}, "mask": Causal()}

    @jax.jit
    def run(params):
        block = nnx.merge(graph, params)
        first, memory = layer_with_memory(block, x[:, :3], tokens_of(3), None, **given)
        second, _ = layer_with_memory(block, x[:, 3:], later, memory, **given)
        whole = block(x, tokens_of(6), **given)
        return jnp.concatenate([first, second], 1), whole, memory

    parts, whole, memory = run(params)
    np.testing.assert_allclose(parts, whole, atol=2e-5)
    block.attention.weighting = Weighting(Selective())
    with pytest.raises(ValueError, match="Selective needs the queries of all tokens"):
        layer_with_memory(block, x[:, 3:], later, memory, **given)


def test_a_batch_in_parts_drops_the_weights_of_the_whole(rng):
    """Over two devices too; without a key nothing is dropped."""
    dropping = EVERYTHING | {"attention_dropout": 0.5}
    mesh = make_mesh({"sequence": 2}, devices=jax.devices()[:2])
    spread = SequenceParallel("ring", mesh=mesh)
    one, two = make(**dropping), make(**dropping, implementation=spread)
    params = moved(one.init(rng), rng)
    tokens = jax.random.randint(rng, (4, 6), 0, 5)

    @jax.jit
    def run(params):
        part = {"rng": rng, "first_row": 2}
        return (
            one.bind(params)(tokens, Placement(), rng=rng),
            one.bind(params)(tokens[2:], Placement(), **part),
            two.bind(params)(tokens[2:], Placement(), **part),
            two.bind(params)(tokens, Placement()),
            make(**EVERYTHING).bind(params)(tokens, Placement()),
        )

    dropped, part, part_spread, kept_spread, kept = run(params)
    np.testing.assert_allclose(part, dropped[2:], atol=2e-5)
    np.testing.assert_allclose(part_spread, dropped[2:], atol=2e-5)
    np.testing.assert_allclose(kept_spread, kept, atol=2e-5)
    # A query that sees itself alone keeps its weight, doubled, or loses it.
    assert np.abs(dropped - kept).max(-1).min() > 1e-3


@pytest.mark.fast
def test_what_a_ring_cannot_hold_is_refused(rng):
    mesh = make_mesh({"sequence": 2}, devices=jax.devices()[:2])
    spec = make(normalizer=Entmax(), implementation=SequenceParallel(mesh=mesh))
    tokens = jnp.zeros((1, 6), jnp.int32)
    run = lambda params: spec.bind(params)(tokens, Placement())
    with pytest.raises(ValueError, match="needs whole rows of logits, which 'ring'"):
        jax.eval_shape(run, jax.eval_shape(spec.init, rng))


# ---- refusals ------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize("normalizer", [StickBreaking(), Selective()])
def test_what_is_causal_is_refused_where_all_see_all(normalizer):
    name = type(normalizer).__name__
    with pytest.raises(ValueError, match=f"{name} is defined for keys up to the query"):
        make(normalizer=normalizer, dims=DIMS._replace(causal=False))


@pytest.mark.fast
def test_settings_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="normalizer must be a Normalizer, got 'sink'"):
        BlockSettings(8, normalizer="sink")
    with pytest.raises(ValueError, match="qk_norm must be a Unnormalized"):
        BlockSettings(8, qk_norm=SSMax())
    with pytest.raises(ValueError, match="attention_dropout must be in"):
        make(attention_dropout=1.0)
