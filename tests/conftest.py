"""Eight virtual CPU devices for every test, and the fixtures that most of them use.

Set XLA_FLAGS yourself to test optimized code.
"""

import gc
import os
import pathlib

from tests.compiling import HURRY

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# Commands that are called within a test would keep compiled programs for all others.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")
os.environ.setdefault("XLA_FLAGS", HURRY)

import jax
import pytest

# Tracing makes many objects that live on: looking through them all each time takes a
# tenth of the tests' time.
gc.set_threshold(50_000, 20, 100)


@pytest.fixture
def rng():
    return jax.random.key(0)


MEMORY_MAPS = pathlib.Path("/proc/self/maps")
MOST_MAPS = 12_000
"""Linux allows 65,530 a process; a compiled program takes several, for as long as it
lives, and a process that cannot get another one crashes inside the compiler."""


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs():
    """Frees the programs of the modules before, when there are many of them."""
    yield
    if MEMORY_MAPS.exists():
        with MEMORY_MAPS.open() as lines:
            if sum(1 for _ in lines) > MOST_MAPS:
                jax.clear_caches()
