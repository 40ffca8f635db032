"""Flags by which XLA compiles in a hurry.

Tests compile far more than they compute. So programs are not optimized, and where there
still is a choice, in JAX 0.10, fused loops are made by the older emitters; each halves
the time of the tests.
"""

import importlib.metadata

_OLDER = importlib.metadata.version("jaxlib").startswith("0.10.")
# Later versions end a process that is given a flag which they do not know.
_EMITTERS = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)

HURRY = " ".join(("--xla_backend_optimization_level=0", *(_EMITTERS if _OLDER else ())))
