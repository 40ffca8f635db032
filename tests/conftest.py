"""Eight virtual CPU devices for every test, and the fixtures that most of them use.

Tests compile far more than they compute, so XLA's code generator is told not to
optimize: that halves their time. Set XLA_FLAGS yourself to test optimized code.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# Commands that are called within a test would keep compiled programs for all others.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import pytest


@pytest.fixture
def rng():
    return jax.random.key(0)
