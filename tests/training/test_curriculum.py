"""Length curricula against their stated distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.training.curriculum import (
    CURRICULA,
    Curriculum,
    Fixed,
    Increasing,
    ReverseExponential,
    Uniform,
)
from tests.training.tiny import tiny_recipe

pytestmark = pytest.mark.fast


def draws(curriculum, rng, step=0, count=20_000):
    keys = jax.random.split(rng, count)
    return np.asarray(
        jax.jit(jax.vmap(lambda key: curriculum(key, jnp.int32(step))))(keys)
    )


def test_uniform_covers_every_length_equally_often(rng):
    counts = np.bincount(draws(Uniform(40), rng), minlength=41)
    assert counts[0] == 0
    assert counts[1:].min() > 0
    # 20,000 draws over 40 lengths: 500 each, standard deviation 22.
    assert np.abs(counts[1:] - 500).max() < 5 * 22.1


def test_uniform_starts_at_its_shortest_length(rng):
    assert set(draws(Uniform(5, min_length=3), rng, count=500)) == {3, 4, 5}


def test_fixed_is_always_the_longest(rng):
    assert set(draws(Fixed(7), rng, count=50)) == {7}


@pytest.mark.parametrize(
    ("step", "top"), [(0, 2), (9, 2), (10, 5), (25, 8), (10**9, 8)]
)
def test_increasing_has_a_top_that_grows_and_stops(rng, step, top):
    drawn = draws(Increasing(8, min_length=2, amount=3, every=10), rng, step, 500)
    assert set(drawn) == set(range(1, top + 1))
    exact = Increasing(8, min_length=2, amount=3, every=10, sample_all=False)
    assert set(draws(exact, rng, step, 5)) == {top}


def test_reverse_exponential_grows_by_its_base_a_symbol(rng):
    counts = np.bincount(draws(ReverseExponential(4, base=2.0), rng), minlength=5)
    expected = 20_000 * np.array([0, 1, 2, 4, 8]) / 15
    assert np.abs(counts - expected).max() < 5 * 71  # five binomial deviations


@pytest.mark.parametrize(
    ("base", "length"), [(1e39, 10), (1e308, 10), (1e-39, 1), (1e-308, 1)]
)
def test_reverse_exponential_of_bases_beyond_float32(rng, base, length):
    assert set(draws(ReverseExponential(10, base=base), rng, count=50)) == {length}


@pytest.mark.parametrize(
    ("numbers", "step", "top"),
    [
        ({"amount": 2**30, "every": 1}, 1, 500),
        ({"amount": 2**30}, 0, 1),
        ({"amount": 2**31 - 2, "every": 2**31 - 2}, 2**31 - 2, 500),
        ({"max_length": 2**31 - 2, "every": 1, "amount": 2**30}, 1, 2**30 + 1),
        ({"max_length": 2**31 - 2, "every": 1, "amount": 2**30}, 2, 2**31 - 2),
        ({"max_length": 2**16, "every": 1}, 2**31 - 1, 2**16),
    ],
)
def test_increasing_grows_without_overflow(rng, numbers, step, top):
    curriculum = Increasing(**{"max_length": 500} | numbers, sample_all=False)
    assert int(curriculum(rng, jnp.int32(step))) == top


@pytest.mark.parametrize("make", CURRICULA.values())
def test_lengths_below_one_are_refused(make):
    with pytest.raises(ValueError, match="max_length"):
        make(max_length=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(4, min_length=5), "min_length"),
        (lambda: Increasing(4, every=0), "every"),
        (lambda: Increasing(4, amount=0), "amount"),
        (lambda: ReverseExponential(4, base=0.0), "base"),
        (lambda: ReverseExponential(4, base=math.inf), "base must be finite, got inf"),
        (lambda: ReverseExponential(4, base=math.nan), "base must be finite, got nan"),
        (lambda: Increasing(4, every=2**40), f"every must be at most .* got {2**40}"),
        (lambda: Increasing(4, amount=2**31), f"amount must be at most .*{2**31}"),
        (lambda: Uniform(2**31 - 1), "max_length must be at most 2147483646, got"),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@dataclasses.dataclass(frozen=True)
class Own(Curriculum):
    """A curriculum as a user would write it."""

    fault: str = ""

    def __call__(self, rng, step):
        if self.fault == "long":
            return jnp.where(step > 500, self.max_length + 1, 2)
        if self.fault == "zero":
            return jax.random.randint(rng, (), 0, self.max_length)
        if self.fault == "float":
            return jax.random.uniform(rng) * 3 + 1
        if self.fault == "several":
            return jnp.arange(3) + 1
        return 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "long",
            "gives lengths from 6 to 6 at step 1000; they must lie in 1",
        ),
        ("zero", "curriculum Own gives lengths from 0 to"),
        ("float", r"curriculum Own must return one integer, got shape \(\), float32"),
        ("several", r"must return one integer, got shape \(3,\), int32"),
    ],
)
def test_lengths_that_are_none_are_refused_before_training(fault, message):
    """Compiled steps cut rows that are too long, and said nothing."""
    assert tiny_recipe(curriculum=Own(6)).curriculum(None, 0) == 3
    with pytest.raises(ValueError, match=message):
        tiny_recipe(curriculum=Own(5, fault))
