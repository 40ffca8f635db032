"""Which pairs of queries and keys are visible."""

import numbers

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ropejax.masks.base import check_are_tokens
from ropejax.tokens import Tokens

NEGATIVE = -1e30
"""Stands for minus infinity in masked logits; finite, so that no row turns into NaN."""


def visible_pairs(query: Tokens, key: Tokens, mask=None) -> Bool[Array, "B N T S"]:
    """Returns True where a query may attend to a key, `[B or 1, N or 1, T, S]`.

    Padding keys and other segments are never visible; `mask` rules out more.

    Args:
        query: the queries.
        key: the keys.
        mask: a `ropejax.masks` mask, a function of (query, key), or None.

    Raises:
        ValueError: if one side alone has segments, rows do not fit each other, or the
            mask returns something else than booleans of these pairs, or computes with
            NumPy on what is traced.
    """
    check_sides(query, key)
    visible = jnp.ones((1, 1, query.length, key.length), bool)
    if mask is not None:
        shown = asked(mask, query, key)
        check_shown(mask, shown, (None, None, query.length, key.length))
        visible &= shown
    if key.valid is not None:
        visible &= key.valid[:, None, None, :]
    if query.segments is not None and key.segments is not None:
        visible &= query.segments[:, None, :, None] == key.segments[:, None, None, :]
    return visible


VALUES_WANTED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What JAX raises where a function looks at a value that is traced."""


def asked(mask, query: Tokens, key: Tokens):
    """Returns what a mask says of queries and keys.

    Raises:
        ValueError: if it is a function that looks at values, which are traced here.
    """
    try:
        return mask(query, key)
    except VALUES_WANTED as error:
        raise ValueError(
            f"the mask {mask} looks at values of its tokens, which are traced here; "
            "compute with jax.numpy, and make an array of NumPy's that it reads "
            "jnp.asarray(array)."
        ) from error


def times_rows(
    logits: Float[Array, "B N T S"], row_scale: Float[Array, "#B T #N"]
) -> Float[Array, "B N T S"]:
    """Returns logits times a factor of each query and head; what is hidden stays so.

    Args:
        logits: float32 logits; minus infinity hides a key.
        row_scale: the factors.
    """
    factor = jnp.swapaxes(row_scale.astype(jnp.float32), 1, 2)[..., None]
    hidden = is_hidden(logits)
    return jnp.where(hidden, NEGATIVE, jnp.where(hidden, 0.0, logits) * factor)


def is_hidden(logits: Float[Array, "*B"]) -> Bool[Array, "*B"]:
    """Returns True for logits so low that they hide a key, as a mask does.

    Not for NaN, which must not be hidden.
    """
    return logits <= NEGATIVE / 2


def check_size(name: str, size) -> None:
    """Raises ValueError unless a number of tokens is a positive integer."""
    whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)
    if not whole or size < 1:
        raise ValueError(f"{name} must be a positive integer, got {size!r}.")


def check_sides(query: Tokens, key: Tokens) -> None:
    """Raises ValueError unless queries and keys are Tokens that go together.

    Args:
        query: the queries.
        key: the keys.
    """
    check_are_tokens(query, key)
    for name, where in (("query", query), ("key", key)):
        check_part(f"index of {name}'s Tokens", where.index, None, jnp.integer)
        length = where.length
        check_part(f"segments of {name}'s Tokens", where.segments, length)
        check_part(f"valid of {name}'s Tokens", where.valid, length, jnp.bool_)
    arrays = [x for s in (query, key) for x in (s.index, s.segments, s.valid)]
    rows = sorted({x.shape[0] for x in arrays if x is not None} - {1})
    if len(rows) > 1:
        raise ValueError(
            "Tokens of queries and keys must have as many rows, or 1, got arrays of "
            f"{' and '.join(map(str, rows))} rows."
        )
    if (query.segments is None) != (key.segments is None):
        absent = "queries" if query.segments is None else "keys"
        raise ValueError(
            f"the Tokens of {absent} have no segments, but the others have; give both, "
            "or neither."
        )


def check_shown(mask, shown, sizes: tuple[int | None, ...]) -> None:
    """Raises ValueError unless a mask has shown booleans that fit.

    Args:
        mask: the mask, for the message.
        shown: what it returned for queries and keys, or the shape of that.
        sizes: batch, query heads, queries and keys; None where any will do.
    """
    shape = tuple(getattr(shown, "shape", ()))
    dtype = getattr(shown, "dtype", type(shown).__name__)
    wanted = ", ".join(
        "1" if n == 1 else f"{letter if n is None else n} or 1"
        for n, letter in zip(sizes, "BNTS", strict=True)
    )
    if len(shape) != 4 or dtype != jnp.bool_:
        raise ValueError(
            f"the mask {mask} must return booleans [{wanted}], True where a query "
            f"(axis 2) may attend to a key (axis 3), got {dtype} {list(shape)}; "
            "compare query.index[:, None, :, None] with key.index[:, None, None, :]."
        )
    for what, got, size in zip(_AXES, shape, sizes, strict=True):
        if got != 1 and size not in {None, got}:
            raise ValueError(
                f"the mask {mask} is of {got} {what}, but there are {size}: it must "
                f"return [{wanted}], got {list(shape)}."
            )


_AXES = ("rows", "query heads", "queries", "keys")


def check_part(name: str, array, length: int | None, kind=None) -> None:
    """Raises ValueError unless an array of Tokens has rows, and so many tokens.

    Args:
        name: what messages call it.
        array: the array, or None for none.
        length: number of tokens; None where any will do, on two axes.
        kind: what its dtype must be; None where any will do.
    """
    if array is None:
        return
    shape = getattr(array, "shape", None)
    fits = shape is not None and len(shape) >= 2 and length in {None, shape[1]}
    fits = fits and (kind is None or len(shape) == 2)
    if not fits or (kind is not None and not jnp.issubdtype(array.dtype, kind)):
        what = "" if kind is None else f"{kind.__name__.rstrip('_')} "
        size = "length" if length is None else length
        got = repr(array) if shape is None else f"{array.dtype} {list(shape)}"
        raise ValueError(f"{name} must be {what}[B or 1, {size}], got {got}.")
