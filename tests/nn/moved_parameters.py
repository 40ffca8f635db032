"""Parameters of a model that are nowhere neutral."""

import jax


def moved(params, rng, by=0.3):
    """Parameters off their neutral values."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(rng, len(leaves))
    return tree.unflatten(
        [
            x + by * jax.random.normal(key, x.shape)
            for x, key in zip(leaves, keys, strict=True)
        ]
    )
