"""Initial parameters follow from a key as Flax's own modules would have them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropejax.nn.initial import Keys


@pytest.mark.fast
def test_modules_get_the_parameters_that_flax_gives_them():
    rng = jax.random.key(3)
    rngs = nnx.Rngs(rng), Keys(rng)
    for _ in range(2):  # two layers, one after another
        ours, flax = (nnx.state(nnx.Linear(2, 3, rngs=keys)) for keys in rngs)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(flax), strict=True):
            np.testing.assert_array_equal(a, b)
        assert jnp.any(ours["kernel"][...] != 0)
