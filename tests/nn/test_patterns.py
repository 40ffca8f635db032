"""Layer patterns: the articles' numbers, who sees whom, and switches at test time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Encoding, LogScale, Rotary
from ropejax.encodings.distance_maps import Rectified
from ropejax.masks import Causal, Window
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec, patterns
from ropejax.positions import Placement

pytestmark = pytest.mark.fast


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
    pattern = patterns.hwfa(24, train_length=512)
    assert len(pattern) == 24
    assert pattern[0].mask == Window.sliding(17)
    assert 16 * 23 + 1 <= 384 < 17 * 23 + 1
    assert isinstance(pattern[-1].encoding, LogScale)
    assert pattern[-1].mask == Causal()


@pytest.mark.parametrize(("full_layers", "places"), [(1, {12}), (2, {8, 16})])
def test_hwfa2_places_full_layers_as_the_article(full_layers, places):
    pattern = patterns.hwfa2(24, train_length=512, window=64, full_layers=full_layers)
    assert {at for at, kind in enumerate(pattern) if kind.mask == Causal()} == places


def test_windows_reach_a_window_a_layer_and_full_layers_everything(rng):
    local = spec_of((LayerKind(Rotary(), Window.sliding(3)),), 2)
    index = np.arange(8)
    behind = index[:, None] - index[None, :]
    np.testing.assert_array_equal(reach(local, 8, rng), (behind >= 0) & (behind <= 4))
    mixed = spec_of(patterns.rnope_swa(2, window=3, every=2), 2)
    np.testing.assert_array_equal(reach(mixed, 8, rng), behind >= 0)


def test_irope_chunks_are_left_through_full_layers_only(rng):
    pattern = patterns.irope(2, chunk=4, every=2)
    chunks = spec_of(pattern[:1], 2)
    index = np.arange(8)
    same = (index[:, None] // 4 == index[None, :] // 4) & (index[:, None] >= index)
    np.testing.assert_array_equal(reach(chunks, 8, rng), same)
    np.testing.assert_array_equal(
        reach(spec_of(pattern, 2), 8, rng), index[:, None] >= index
    )


def test_local_and_global_layers_have_their_own_base():
    kinds = patterns.local_global(6)
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


def test_hwfa2_takes_rerope_in_full_layers_at_test_time(rng):
    spec = spec_of(patterns.hwfa2(2, train_length=8, window=3), 2)
    tested = patterns.hwfa2_at_test(spec, train_length=8, rerope_window=2)
    assert [kind.encoding == other.encoding for kind, other in zip(
        spec.pattern, tested.pattern, strict=True
    )] == [True, False]  # fmt: skip
    same = jax.tree.structure(spec.init(rng)) == jax.tree.structure(tested.init(rng))
    assert same


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: patterns.hwfa(1, train_length=8), "num_layers"),
        (lambda: patterns.rnope_swa(3, every=2), "every=2"),
        (lambda: patterns.hwfa2(2, train_length=8, window=3, full_layers=2), "layers"),
        (lambda: patterns.irope(4, every=1), "every"),
        (lambda: patterns.local_global(6, window=0), "width"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
