"""Eight virtual CPU devices for every test, and the fixtures that most of them use.

Tests compile far more than they compute, so XLA is told to do it in a hurry: without
optimizing, and, where there still is a choice (JAX 0.10), by its older emitters of fused
loops. Each halves their time. Set XLA_FLAGS yourself to test optimized code.
"""

import importlib.metadata
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# Commands that are called within a test would keep compiled programs for all others.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")
IN_A_HURRY = ["--xla_backend_optimization_level=0"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    # Later ones end a process that is given a flag which they do not know.
    IN_A_HURRY.append("--xla_cpu_use_fusion_emitters=false")
    IN_A_HURRY.append("--xla_cpu_parallel_codegen_split_count=1")
os.environ.setdefault("XLA_FLAGS", " ".join(IN_A_HURRY))

import jax
import pytest


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
