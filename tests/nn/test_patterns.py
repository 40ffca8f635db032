"""Layer patterns: the articles' numbers, who sees whom, and switches at test time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax.attention import StickBreaking
from ropejax.encodings import Dims, Encoding, LogScale, Rotary, T5Bias, YaRN
from ropejax.encodings.distance_maps import Rectified
from ropejax.masks import Causal, Window
from ropejax.nn import (
    BlockSettings,
    LayerKind,
    MultiHeadAttention,
    TransformerSpec,
    Weighting,
    patterns,
)
from ropejax.nn.layer_stacks import restacked
from ropejax.positions import Placement
from ropejax.tokens import tokens as tokens_of
from ropejax.training.starting import renamed


def spec_of(pattern, num_layers):
    dims = Dims(2, 2, 4, 8, num_layers, causal=True)
    return TransformerSpec(5, 3, dims, BlockSettings(16, dropout=0.0), pattern)


def reach(spec, length, rng):
    """True at [i, j] if the output at i depends on the token at j."""
    model = spec.bind(spec.init(rng))
    run = jax.jit(lambda tokens: model(tokens, Placement()))
    tokens = jnp.zeros((1, length), int)
    base = run(tokens)[0]
    changed = [run(tokens.at[0, j].set(1))[0] for j in range(length)]
    return np.stack([np.any(out != base, axis=-1) for out in changed], axis=1)


def test_hwfa_window_of_the_article():
    """N = 512, L = 24: the largest w with (w - 1) 23 + 1 <= 384 is 17."""
    pattern = patterns.HWFA(512)(Rotary(), 24, causal=True)
    assert len(pattern) == 24
    assert pattern[0].mask == Window.sliding(17)
    assert 16 * 23 + 1 <= 384 < 17 * 23 + 1
    assert isinstance(pattern[-1].encoding, LogScale)
    assert pattern[-1].mask == Causal()


@pytest.mark.parametrize(("full_layers", "places"), [(1, {12}), (2, {8, 16})])
def test_hwfa2_places_full_layers_as_the_article(full_layers, places):
    pattern = patterns.HWFA2(512, 64, full_layers)(Rotary(), 24, causal=True)
    assert {at for at, kind in enumerate(pattern) if kind.mask == Causal()} == places


def test_windows_reach_a_window_a_layer_and_full_layers_everything(rng):
    local = spec_of((LayerKind(Rotary(), Window.sliding(3)),), 2)
    index = np.arange(8)
    behind = index[:, None] - index[None, :]
    np.testing.assert_array_equal(reach(local, 8, rng), (behind >= 0) & (behind <= 4))
    mixed = spec_of(patterns.RNoPESWA(3, 2)(Rotary(), 2, causal=True), 2)
    np.testing.assert_array_equal(reach(mixed, 8, rng), behind >= 0)


def test_stick_breaking_over_the_strict_past_is_the_papers(rng):
    """`A_ij = beta_ij prod_{j < t < i} (1 - beta_it)`, j < i, of random projections."""
    (kind,) = patterns.StrictPast()(Encoding(), 1, causal=True)
    dims = Dims(2, 2, 4, 8, 1, causal=True)
    how = Weighting(StickBreaking())
    module = MultiHeadAttention(dims, Encoding(), weighting=how, rngs=nnx.Rngs(rng))
    x = 2 * jax.random.normal(rng, (1, 5, 8))
    weights = module.weights(x, tokens_of(5), shared={}, mask=kind.mask)[0]
    q, k = (np.asarray(part(x)[0], np.float64) for part in (module.query, module.key))
    beta = 1 / (1 + np.exp(-np.einsum("inh,jnh->nij", q, k) / 2))
    for i in range(5):
        for j in range(5):
            left = np.prod(1 - beta[:, i, j + 1 : i], axis=-1)
            expected = beta[:, i, j] * left if j < i else np.zeros(2)
            np.testing.assert_allclose(weights[:, i, j], expected, atol=1e-6)
    with pytest.raises(ValueError, match="the strict past is causal"):
        patterns.StrictPast()(Encoding(), 1, causal=False)


def test_irope_chunks_are_left_through_full_layers_only(rng):
    pattern = patterns.IRoPE(4, 2)(Rotary(), 2, causal=True)
    chunks = spec_of(pattern[:1], 2)
    index = np.arange(8)
    same = (index[:, None] // 4 == index[None, :] // 4) & (index[:, None] >= index)
    np.testing.assert_array_equal(reach(chunks, 8, rng), same)
    np.testing.assert_array_equal(
        reach(spec_of(pattern, 2), 8, rng), index[:, None] >= index
    )


def test_local_and_global_layers_have_their_own_base():
    kinds = patterns.LocalGlobal()(Rotary(), 6, causal=True)
    assert [kind.encoding.max_wavelength for kind in kinds] == [1e4] * 5 + [1e6]


def test_test_time_switches_keep_the_parameters(rng):
    spec = spec_of((LayerKind(Rotary(), Causal()),), 2)
    params = spec.init(rng)
    tokens = jax.random.randint(rng, (1, 8), 0, 5)
    run = lambda spec: jax.jit(spec.bind(params))(tokens, Placement())
    rerope = lambda window: patterns.with_encodings(
        spec, lambda rope: dataclasses.replace(rope, distance=Rectified(window))
    )
    # No distance among 8 tokens reaches 8; most reach 2.
    np.testing.assert_allclose(run(rerope(8)), run(spec), atol=1e-5)
    assert np.abs(run(rerope(2)) - run(spec)).max() > 1e-3
    dropped = patterns.with_encodings(spec, lambda _: Encoding())
    none = spec_of((LayerKind(Encoding(), Causal()),), 2)
    np.testing.assert_array_equal(run(dropped), run(none))


@pytest.mark.parametrize("encoding", [Rotary(), T5Bias()])
def test_layers_lie_in_the_stacks_of_another_pattern(rng, encoding):
    """Four layers of one kind, of two, of four, and of one again: the same function."""
    kind, tokens = LayerKind(encoding, Causal()), jnp.arange(5)[None]
    specs = [spec_of((kind,) * kinds, 4) for kinds in (1, 2, 4, 1)]
    params, outputs = specs[0].init(rng), []
    for before, spec in zip([specs[0], *specs], specs, strict=False):
        if spec == specs[0] and outputs and isinstance(encoding, T5Bias):
            with pytest.raises(ValueError, match=r"\[0, 1, 2, 3\] have .* own"):
                restacked(params, before, spec)
            break
        params = renamed(restacked(params, before, spec), spec.init(rng))
        outputs.append(jax.jit(spec.bind(params))(tokens, Placement()))
    for output in outputs:
        np.testing.assert_allclose(output, outputs[0], atol=1e-6)
    assert len(outputs) == (3 if isinstance(encoding, T5Bias) else 4)


def test_hwfa2_takes_rerope_in_full_layers_at_test_time(rng):
    spec = spec_of(patterns.HWFA2(8, 3)(Rotary(), 2, causal=True), 2)
    tested = patterns.rectified(spec, 2)
    assert [kind.encoding == other.encoding for kind, other in zip(
        spec.pattern, tested.pattern, strict=True
    )] == [True, False]  # fmt: skip
    same = jax.tree.structure(spec.init(rng)) == jax.tree.structure(tested.init(rng))
    assert same
    yarn = YaRN(scale=2.0, train_length=8)
    named = spec_of(patterns.HWFA2(8, 3)(yarn, 2, causal=True), 2)
    with pytest.raises(ValueError, match="YaRN takes no map of distances; write it"):
        patterns.rectified(named, 2)


@pytest.mark.parametrize(
    ("pattern", "num_layers", "message"),
    [
        (patterns.HWFA(), 1, "num_layers"),
        (patterns.RNoPESWA(every=2), 3, "every=2"),
        (patterns.HWFA2(full_layers=2), 2, "layers"),
        (patterns.IRoPE(every=1), 4, "every"),
        (patterns.LocalGlobal(window=0), 6, "width"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(pattern, num_layers, message):
    with pytest.raises(ValueError, match=message):
        pattern(Rotary(), num_layers, causal=True)


def test_what_a_pattern_cannot_do_is_refused():
    with pytest.raises(ValueError, match="causal"):
        patterns.IRoPE()(Rotary(), 4, causal=False)
    with pytest.raises(ValueError, match="max_wavelength"):
        patterns.LocalGlobal()(Encoding(), 6, causal=True)


def test_a_model_in_the_place_of_an_encoding_is_refused():
    """It was returned unchanged."""
    spec = TransformerSpec(
        *(6, 6, Dims(2, 2, 4, 8, 1, causal=True), BlockSettings(mlp_dim=8)),
        pattern=(LayerKind(Rotary(), Causal()),),
    )
    cut = lambda rope: dataclasses.replace(rope, distance=Rectified(4))
    with pytest.raises(ValueError, match="got a TransformerSpec; for a model's: with_"):
        patterns.with_rope(spec, cut)
    each = lambda encoding: patterns.with_rope(encoding, cut)
    changed = patterns.with_encodings(spec, each)
    assert changed.pattern[0].encoding == Rotary(distance=Rectified(4))
