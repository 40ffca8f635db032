"""Optimizers of one's own: with keys in their state, or with an eye on the loss."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ropejax.training import TrainState, init_state
from ropejax.training.checkpoint import Checkpoints
from ropejax.training.step import draw_batch, update
from tests.training.tiny import tiny_recipe


def test_a_state_whose_optimizer_draws_noise_is_read_back(tmp_path):
    """Its key changes with every step; that was taken for another seed's."""
    optimizer = optax.chain(optax.add_noise(0.1, 0.5, 0), optax.sgd(1e-2))
    params = {"w": jnp.ones(2)}
    keys = {"rng": jax.random.key(1), "length_rng": jax.random.key(2)}
    start = TrainState(jnp.int32(0), params, optimizer.init(params), **keys)
    _, opt_state = optimizer.update(params, start.opt_state, params)
    state = start._replace(step=jnp.int32(1), opt_state=opt_state)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state, {})
    found = checkpoints.latest(like=start)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match=r"another model, optimizer or seed: rng: key"):
        checkpoints.latest(like=start._replace(rng=jax.random.key(3)))
    checkpoints.close()


def test_an_optimizer_sees_the_loss():
    """As `optax.contrib.reduce_on_plateau`, which has to."""
    seen = optax.GradientTransformationExtraArgs(
        lambda params: jnp.float32(0),
        lambda updates, state, params=None, *, value: (updates, value),
    )
    plateau = optax.contrib.reduce_on_plateau()
    recipe = tiny_recipe(optimizer=optax.chain(optax.sgd(1e-2), plateau, seen))
    state = init_state(recipe, 0)

    @jax.jit
    def step(state):
        lengths = jnp.full((4,), 3)
        return update(recipe, state, *draw_batch(recipe, state, lengths, 3))

    after, metrics = step(state)
    assert float(after.opt_state[-1]) == float(metrics.loss) > 0
