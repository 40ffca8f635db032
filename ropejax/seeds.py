"""Seeds that make random keys of their own.

`jax.random.key` keeps 32 bits: without 64-bit integers a larger seed overflows or is
cut, and would silently be the same as a smaller one.
"""

import numbers
from typing import Any

import jax
import jax.numpy as jnp

from ropejax.whole_numbers import whole_number

MAX_SEED = 2**31 - 1


def check_seed(name: str, seed: Any) -> None:
    """Raises ValueError for an integer of the host outside 0 .. 2**31 - 1.

    Args:
        name: what messages call the seed.
        seed: a Python or numpy integer; anything else, as an array, passes.
    """
    if isinstance(seed, numbers.Integral) and not 0 <= seed <= MAX_SEED:
        raise ValueError(
            f"{name} must be in 0 .. {MAX_SEED} (2**31 - 1), got {seed}; choose one of "
            "these, since others overflow or repeat one of them."
        )


def whole_seed(name: str, seed: Any) -> int:
    """Returns a seed as a Python int.

    Args:
        name: what messages call the seed.
        seed: a whole number that is known.

    Raises:
        ValueError: if it is something else, or not in 0 .. 2**31 - 1.
    """
    seed = whole_number(name, seed)
    check_seed(name, seed)
    return seed


def check_key(rng: Any) -> None:
    """Raises ValueError unless `rng` is one PRNG key, old-style or new-style."""
    dtype, shape = getattr(rng, "dtype", None), getattr(rng, "shape", None)
    new = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not ((new and shape == ()) or (dtype == jnp.uint32 and shape in ((2,), (4,)))):
        raise ValueError(
            "rng must be one PRNG key, such as jax.random.key(0), got "
            f"{rng!r} of type {type(rng).__name__}."
        )
