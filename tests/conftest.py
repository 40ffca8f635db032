"""Eight virtual CPU devices for every test, and the fixtures that most of them use."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax
import pytest


@pytest.fixture
def rng():
    return jax.random.key(0)
