"""Whether what hooks return has the shape that they promise, asked while tracing.

A wrong shape often broadcasts: a bias without the axis of heads takes rows for heads.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array

AXES = {
    "product": "BNTS",
    "bias": "BNTS",
    "carry": "BNTS",
    "logits": "BNTS",
    "mix": "BTNH",
    "outputs": "BTNH",
}
"""What each axis of a result is: rows, heads, queries, keys, width."""


def checked(
    encoding, hook: str, result: Array, sizes: Sequence[int | None], ones: bool = False
) -> Array:
    """Returns what a hook returned.

    Args:
        encoding: whose hook it is.
        hook: its name.
        result: what it returned.
        sizes: of each axis of `AXES[hook]`; None where any is right.
        ones: True if an axis of 1 stands for each of them.

    Raises:
        ValueError: if it has another shape, or holds no numbers but True and False.
    """
    if jnp.issubdtype(getattr(result, "dtype", float), bool):
        raise ValueError(
            f"{type(encoding).__name__}.{hook} must return numbers, got booleans; "
            "what hides keys belongs in attention's mask."
        )
    shape = jnp.shape(result)
    fits = len(shape) == len(sizes) and all(
        wanted is None or got == wanted or (ones and got == 1)
        for got, wanted in zip(shape, sizes, strict=True)
    )
    if fits:
        return result
    wanted = [
        axis if size is None else f"{axis}={size}"
        for axis, size in zip(AXES[hook], sizes, strict=True)
    ]
    raise ValueError(
        f"{type(encoding).__name__}.{hook} must return [{', '.join(wanted)}]"
        + (", each or 1" if ones else "")
        + f", got {list(shape)}"
        + _remedy(hook, shape, sizes)
    )


def outputs_of(encoding, params, out: Array, query) -> Array:
    """Returns what `outputs` makes of mixed values `[B, T, N, H]`, of that shape."""
    made = encoding.outputs(params, out, query)
    return checked(encoding, "outputs", made, (*out.shape[:3], None))


def check_views(encoding, **views) -> None:
    """Raises ValueError for what `queries` or `keys` returned, if it is no tuple."""
    for hook, made in views.items():
        if not isinstance(made, tuple | list):
            raise ValueError(
                f"{type(encoding).__name__}.{hook} must return a tuple of views, got "
                f"{type(made).__name__}; (x,) is a tuple of x alone."
            )


def _remedy(hook: str, shape: Sequence[int], sizes: Sequence[int | None]) -> str:
    if AXES[hook] != "BNTS" or tuple(shape[-2:]) != tuple(sizes[-2:]):
        return "."
    missing = {3: "[:, None]", 2: "[None, None]"}.get(len(shape))
    if missing is None:
        return "."
    return f"; the axis of heads is missing: x{missing} has it."
