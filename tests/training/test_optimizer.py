"""The optimizer's numbers and the loop's seeds: what cannot be is refused by name."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.evaluation import evaluate
from ropejax.positions import Consecutive
from ropejax.training import adam, schedule, train, train_population
from ropejax.training.members import Member, Numbers, OptimizerFamily
from ropejax.training.population import Population
from tests.training.tiny import tiny_recipe

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"b1": 1.0}, r"b1 must be in \[0, 1\), got 1.0"),
        ({"b1": -0.1}, r"b1 must be in \[0, 1\), got -0.1"),
        ({"b2": 1.5}, r"b2 must be in \[0, 1\), got 1.5"),
        ({"b2": math.nan}, "b2 must be a finite number, got nan"),
        ({"eps": -1.0}, "eps must be positive, got -1.0"),
        ({"eps": 0.0}, "eps must be positive, got 0.0"),
        ({"eps": math.inf}, "eps must be a finite number, got inf"),
        ({"weight_decay": -1e-3}, "weight_decay must not be negative, got -0.001"),
        ({"weight_decay": math.nan}, "weight_decay must be a finite number, got nan"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be positive .*, got -1.0"),
        ({"max_grad_norm": math.inf}, "max_grad_norm must be a finite number, got inf"),
        ({"b1": True}, "b1 must be a finite number, got True"),
        # In float32 these are 1, 0, 0 and infinite.
        ({"b2": 1 - 1e-9}, r"b2 must be in \[0, 1\), got 0.999999999"),
        ({"eps": 1e-50}, "eps must be a number that float32 holds, .* got 1e-50"),
        ({"weight_decay": 1e-39}, "weight_decay must be a number that float32 holds"),
        ({"max_grad_norm": 1e39}, "max_grad_norm must be a number that float32 holds"),
    ],
)
def test_numbers_out_of_range_are_refused(numbers, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        adam(1e-3, **numbers)


@pytest.mark.parametrize("rate", [math.inf, math.nan, 1e39, 1e-46])
def test_a_rate_that_is_infinite_or_nothing_in_float32_is_refused(rate):
    for make in (adam, lambda rate: schedule(rate, steps=5)):
        with pytest.raises(ValueError, match=r"^learning_rate must be a .*number"):
            make(rate)


def test_the_ends_of_the_ranges_and_traced_numbers_are_taken():
    """With both decays 0, the first step is sign(gradient) times the rate."""

    @jax.jit
    def step(b1, b2, eps):
        optimizer = adam(0.5, b1=b1, b2=b2, eps=eps, max_grad_norm=None)
        params = jnp.array([1.0, -2.0])
        return optimizer.update(params, optimizer.init(params))[0]

    np.testing.assert_allclose(step(0.0, 0.0, 1e-8), [-0.5, 0.5], rtol=1e-6)
    params = jnp.array([1.0, -2.0])
    optimizer = adam(0.5, b1=0.0, b2=0.0, max_grad_norm=None)
    update, _ = optimizer.update(params, optimizer.init(params))
    np.testing.assert_allclose(update, [-0.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**32 + 1, np.int64(2**31)])
def test_seeds_that_overflow_or_repeat_others_are_refused(seed):
    recipe = tiny_recipe("even_pairs")
    message = rf"seed must be in 0 \.\. 2147483647 .*, got {seed}"
    with pytest.raises(ValueError, match=f"^{message}"):
        train(recipe, steps=1, seed=seed)
    with pytest.raises(ValueError, match=f"^length_{message}"):
        train(recipe, steps=1, length_seed=seed)
    with pytest.raises(ValueError, match=f"^{message}"):
        evaluate(recipe.model, {}, recipe.task, Consecutive(), [5], seed=seed)


def test_seeds_of_members_are_checked_like_those_of_a_run():
    population = Population(tiny_recipe("even_pairs"), OptimizerFamily(steps=2))
    members = [Member(seed, Numbers(1e-3)) for seed in (1, 2**31)]
    with pytest.raises(ValueError, match=r"members\[1\] must .* got 2147483648"):
        train_population(population, members, steps=2)
    with pytest.raises(ValueError, match="length_seed must be in .* got -1"):
        train_population(population, members[:1], steps=2, length_seed=-1)
