"""Small dense layers inside encodings, started as the public code of methods does."""

import math

import jax
import jax.numpy as jnp

from ropejax.typing import Params, Rng


def init_linear(rng: Rng, fan_in: int, fan_out: int) -> Params:
    """Returns `{"kernel": [fan_in, fan_out], "bias": [fan_out]}`.

    Both are float32, uniform within `1 / sqrt(fan_in)`, which is PyTorch's default.
    """
    bound = 1 / math.sqrt(fan_in)
    rng_kernel, rng_bias = jax.random.split(rng)
    return {
        "kernel": jax.random.uniform(
            rng_kernel, (fan_in, fan_out), jnp.float32, -bound, bound
        ),
        "bias": jax.random.uniform(rng_bias, (fan_out,), jnp.float32, -bound, bound),
    }
