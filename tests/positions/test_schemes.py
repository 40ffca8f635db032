"""What every position scheme promises, checked for all of the catalogue."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.positions import (
    POSITIONS,
    Abacus,
    Coupled,
    CoupledLevels,
    EqualMean,
    PoSE,
    Randomized,
    Shifted,
)

LENGTHS = np.array([5, 9, 1, 12])
DIGIT, PLUS = 3, 10

SCHEMES = {name: scheme() for name, scheme in POSITIONS.items()} | {
    "shifted_at_random": Shifted(offset=2, max_random_offset=100),
    "randomized_per_sequence": Randomized(64, per_sequence=True),
    "randomized_distances": Randomized(64, distances=True, per_layer=True),
    "equal_mean_beta": EqualMean(max_position=64),
    "abacus_randomized": Abacus(per_sequence=True, base=Randomized(64)),
    "coupled_shared": Coupled(64, per_sequence=False),
    "coupled_levels": CoupledLevels(separators=(PLUS, 11), base=Shifted()),
}
CONSTANT = {"consecutive", "shifted", "evenly_spaced", "bipe"}
LEAST = {"cape": -6}  # it shifts to either side


def additions(lengths, num_tokens):
    """Rows of digits with a plus in the middle: something for every scheme to read."""
    at_plus = np.arange(num_tokens)[None] == lengths[:, None] // 2
    return np.where(at_plus, PLUS, DIGIT).astype(np.int32)


def place(scheme, num_tokens, rng, lengths, tokens):
    lengths, tokens = jnp.asarray(lengths), jnp.asarray(tokens)
    return scheme(rng, lengths, num_tokens=num_tokens, num_layers=2, tokens=tokens)


@functools.cache
def compiled(scheme, num_tokens):
    return jax.jit(functools.partial(place, scheme, num_tokens))


def whole_batch(scheme):
    return compiled(scheme, 16)(jax.random.key(7), LENGTHS, additions(LENGTHS, 16))


def real_rows(placement, lengths, seed=None):
    """The real part of every row of every array of a placement."""
    arrays = [placement.positions, placement.distances]
    arrays = [array for array in arrays if array is not None]
    streams = list((placement.streams or {}).values())
    pick = lambda array: np.asarray(array) if seed is None else np.asarray(array)[seed]
    arrays = [pick(array) for array in arrays]
    if placement.per_layer:
        arrays = [np.moveaxis(array, 0, -1) for array in arrays]
    arrays += [pick(stream) for stream in streams]
    rows = len(lengths)
    return [
        np.broadcast_to(array, (rows,) + array.shape[1:])[row, : lengths[row]]
        for array in arrays
        for row in range(rows)
    ]


@pytest.mark.parametrize("name", SCHEMES)
def test_row_depends_on_key_and_length_alone(name):
    """Not on the batch, the padding, the style of the key, nor on vmap."""
    scheme, few = SCHEMES[name], LENGTHS[:2]
    mapped = jax.jit(
        jax.vmap(
            lambda seed: place(
                scheme, 12, jax.random.PRNGKey(seed), few, additions(few, 12)
            )
        )
    )(np.array([6, 7]))
    whole = whole_batch(scheme)
    expected = real_rows(whole, LENGTHS)
    number = len(expected) // len(LENGTHS)
    expected = [
        expected[len(LENGTHS) * i + row] for i in range(number) for row in (0, 1)
    ]
    other, same = (real_rows(mapped, few, seed) for seed in (0, 1))
    for a, b in zip(same, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)  # floats may be reordered
    differ = any((a != b).any() for a, b in zip(same, other, strict=True))
    assert differ == (name not in CONSTANT)
    assert scheme.random or not differ


@pytest.mark.parametrize("name", SCHEMES)
def test_positions_lie_below_the_bound_at_padding_too(name):
    placement = whole_batch(SCHEMES[name])
    bound = SCHEMES[name].position_bound(16)
    for array in (placement.positions, placement.distances):
        if array is not None:
            assert array.min() >= LEAST.get(name, 0)
            assert bound is None or array.max() < bound


@pytest.mark.parametrize("name", ["consecutive", "randomized_per_sequence"])
def test_eager_call_equals_compiled_one(name):
    tokens = additions(LENGTHS, 16)
    eager = place(SCHEMES[name], 16, jax.random.key(7), LENGTHS, tokens)
    eager, compiled = map(jax.tree.leaves, (eager, whole_batch(SCHEMES[name])))
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", SCHEMES)
def test_known_lengths_that_do_not_fit_are_refused(name):
    lengths = np.array([9])
    with pytest.raises(ValueError, match="num_tokens=8"):
        place(SCHEMES[name], 8, jax.random.key(0), lengths, additions(lengths, 8))


def test_lengths_known_while_others_are_traced_are_refused_too():
    lengths = jnp.array([9])
    with pytest.raises(ValueError, match="num_tokens=8"):
        jax.jit(lambda rng: Randomized()(rng, lengths, num_tokens=8))(jax.random.key(0))


@pytest.mark.parametrize("scheme", [Randomized, PoSE, EqualMean, Coupled])
def test_ranges_without_a_position_are_refused(scheme):
    with pytest.raises(ValueError, match="max_position must be at least 1"):
        scheme(max_position=0)


def test_catalogue_is_immutable_and_describes_its_schemes():
    with pytest.raises(TypeError):
        POSITIONS["mine"] = Randomized
    for scheme in POSITIONS.values():
        assert scheme.title
        assert scheme.summary
        assert hash(scheme()) == hash(scheme())


@pytest.mark.parametrize("name", SCHEMES)
def test_rows_differ_where_the_scheme_says_so(name):
    """Rows of one length and one content: else a caller may make one row for all."""
    scheme, lengths = SCHEMES[name], np.full(6, 9)
    placement = compiled(scheme, 16)(jax.random.key(3), lengths, additions(lengths, 16))
    arrays = [placement.positions, placement.distances]
    arrays += list((placement.streams or {}).values())
    rows = [
        np.asarray(a)[..., :9].reshape(-1, a.shape[-2], 9)
        for a in arrays
        if a is not None
    ]
    found = any(np.any(one != one[:, :1]) for one in rows)
    assert found == scheme.rows_differ
