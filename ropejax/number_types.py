"""The types in which positions and the order of tokens are kept: int32 and float32.

Some ways in which positions go wrong without a word end here. Unsigned integers have
no minus, so that the distance to an earlier token is a large number; narrow ones wrap
around at a window of 512. Integers beyond 32 bits are cut on their way into JAX, and
2^32 + 5 becomes 5; floating-point ones all stop at 2^31 - 1 where whole tokens are
counted. bfloat16 holds no odd integer above 256, and float32 none above 2^24, so that
neighbours share a position. And what is True or False is taken for 1 or 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.concrete import check_finite_array, known_values


def check_places(name: str, array: Any) -> None:
    """Refuses what cannot be positions, distances or an order of tokens.

    Args:
        name: what messages call the array.
        array: an array or a number. Of one that is traced only the type is looked at.

    Raises:
        ValueError: if it is not of integers or floating-point numbers (`valid` given
            as positions, say), or a value is known to be NaN, infinite, or a
            floating-point number beyond +-2^31.
    """
    check_kind(name, array)
    if jnp.issubdtype(jnp.result_type(array), jnp.integer):
        return
    check_finite_array(name, array)
    known = known_values(array)
    if known is None:
        return
    wide = known.astype(np.float64)
    wrong = wide[(wide < -(2.0**31)) | (wide >= 2.0**31)]
    if wrong.size:
        raise ValueError(
            f"{name} must be within +-2^31, got {wrong.flat[0]}; subtract a constant, "
            "so that they count from nearer by."
        )


def check_kind(name: str, array: Any) -> None:
    """Raises ValueError unless an array is of integers or floating-point numbers."""
    dtype = jnp.result_type(array)
    if not jnp.issubdtype(dtype, jnp.integer) and not jnp.issubdtype(
        dtype, jnp.floating
    ):
        raise ValueError(
            f"{name} must be integers or floating-point numbers, got {dtype}; if they "
            "are meant as numbers, cast them with astype(jnp.int32)."
        )


def widened(name: str, array: Any) -> Any:
    """Returns integers as int32 and floating-point numbers as float32.

    Args:
        name: what messages call the array.
        array: positions, distances, indices or ids, of any type. What is no array of
            numbers (a sharding, a sentinel of a pytree, None) comes back as it is, and
            so does an array of the right type.

    Returns:
        The array; one of numpy stays one of numpy, so that its values stay known.

    Raises:
        ValueError: if it is floating-point of less than 32 bits, or holds an integer
            that is known to leave int32, or a number that is known to move by half a
            token or more where it is rounded to float32. Traced numbers are not looked
            at: integers beyond int32 wrap around.
    """
    if not isinstance(array, (np.ndarray, np.generic, jax.Array)):
        return array
    if jnp.issubdtype(array.dtype, jnp.integer):
        return _whole(name, array)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return _fractional(name, array)
    return array


def _whole(name: str, array: Any) -> Any:
    if array.dtype == jnp.int32:
        return array
    known = known_values(array)
    limits = np.iinfo(np.int32)
    if known is not None and known.size and known.dtype.itemsize >= 4:
        wrong = known[(known < limits.min) | (known > limits.max)]
        if wrong.size:
            raise ValueError(
                f"{name} must fit int32, {limits.min} .. {limits.max}, got "
                f"{wrong.flat[0]}; subtract a constant, so that it counts from nearer "
                "by."
            )
    return _as_type(array, jnp.int32)


def _fractional(name: str, array: Any) -> Any:
    info = jnp.finfo(array.dtype)
    if info.bits < 32:
        raise ValueError(
            f"{name} must be int32 or float32, got {array.dtype}, which cannot tell "
            f"integers above {2 ** (info.nmant + 1)} apart; make {name} in int32 or "
            "float32, and cast only what a model computes."
        )
    if array.dtype == jnp.float32:
        return array
    known = known_values(array)
    if known is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            moved = np.abs(known.astype(np.float32) - known) >= 0.5
        if moved.any():
            raise ValueError(
                f"{name} must fit float32, which cannot hold {known[moved].flat[0]}; "
                "give integers, or subtract a constant, so that they count from nearer "
                "by."
            )
    return _as_type(array, jnp.float32)


def _as_type(array: Any, dtype) -> Any:
    if isinstance(array, jax.core.Tracer):
        return array.astype(dtype)
    # What is known stays known in a traced function.
    with jax.ensure_compile_time_eval():
        return array.astype(jnp.dtype(dtype))
