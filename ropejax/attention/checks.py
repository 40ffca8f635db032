"""What `attend` refuses before anything is compiled, and how it says so."""

import functools
import numbers

import jax
import jax.numpy as jnp

from ropejax.attention.axes import shapes_of
from ropejax.attention.dropout import MOST_DROPPED
from ropejax.attention.later_keys import later_key_seen
from ropejax.attention.normalizers import Normalizer
from ropejax.attention.reach import check_reach
from ropejax.attention.visibility import (
    VALUES_WANTED,
    check_part,
    check_shown,
    check_sides,
    check_size,
)
from ropejax.concrete import check_finite_array
from ropejax.encodings.base import Dims, Encoding
from ropejax.number_types import check_places
from ropejax.seeds import check_key
from ropejax.tokens import Tokens


def check_heads(**arrays) -> None:
    """Raises ValueError unless arrays, by name, are floats with an axis of heads."""
    for name, array in arrays.items():
        if not all(hasattr(array, part) for part in ("ndim", "shape", "dtype")):
            raise ValueError(
                f"{name} must be an array [batch, length, heads, width], got "
                f"{type(array).__name__}; jnp.asarray makes one."
            )
        if array.ndim != 4 or 0 in array.shape:
            raise ValueError(
                f"{name} must be [batch, length, heads, width], none of them 0, got "
                f"{array.shape}."
            )
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(f"{name} must be floating-point, got {array.dtype}.")


def check_keys_and_values(k, v) -> None:
    """Raises ValueError unless there is a value to each key."""
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"k and v must agree but for width: {k.shape}, {v.shape}.")


def check_arrays(q, k, v) -> None:
    """Raises ValueError unless queries, keys and values fit each other."""
    check_heads(q=q, k=k, v=v)
    check_keys_and_values(k, v)
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q and k must agree in batch and width: {q.shape}, {k.shape}."
        )
    if q.shape[2] % k.shape[2]:
        raise ValueError(
            f"query heads must be a multiple of key heads: {q.shape[2]} and "
            f"{k.shape[2]}."
        )
    dtypes = {jnp.result_type(x) for x in (q, k, v)}  # NumPy's float64 is float32 here
    if len(dtypes) > 1:
        raise ValueError(
            f"q, k and v must have one dtype, which the outputs have too, got "
            f"{q.dtype}, {k.dtype} and {v.dtype}; cast them with x.astype(dtype)."
        )


def check_kinds(encoding, query, key, mask) -> None:
    """Raises ValueError for arguments that are something else than they must be."""
    if not isinstance(encoding, Encoding):
        raise ValueError(
            f"encoding must be settings, such as ropejax.encodings.Rotary(), got "
            f"{encoding!r}."
        )
    check_sides(query, key)
    if isinstance(mask, type):
        raise ValueError(f"mask must be a value, such as {mask.__name__}(), no class.")


@functools.lru_cache(maxsize=256)
def check_no_parameters(encoding: Encoding, dims: Dims) -> None:
    """Raises ValueError if an encoding whose parameters were not given has some."""
    made = jax.eval_shape(
        lambda rng: (encoding.init_shared(rng, dims), encoding.init_layer(rng, dims)),
        jax.random.key(0),
    )
    if jax.tree.leaves(made):
        raise ValueError(
            f"{encoding.title} has parameters of its own; give params=encoding.prepare("
            "encoding.init_shared(rng, dims), encoding.init_layer(rng, dims), query, "
            "key, dims)."
        )


def check_tokens(q, k, encoding: Encoding, query: Tokens, key: Tokens) -> None:
    """Raises ValueError unless Tokens describe queries and keys to the end.

    Positions and distances that are known must be finite, and a table of distances
    reach from every query to every key.
    """
    for name, array, where in (("q", q, query), ("k", k, key)):
        if array.shape[1] != where.length:
            raise ValueError(
                f"{name} holds {array.shape[1]} tokens, but its Tokens {where.length}."
            )
        for part, leaf in where.per_token().items():
            for x in jax.tree.leaves(leaf):
                check_part(f"{part} of {name}'s Tokens", x, where.length)
                if x.shape[0] not in {1, array.shape[0]}:
                    raise ValueError(
                        f"{part} of {name}'s Tokens must have 1 or {array.shape[0]} "
                        f"rows, got shape {x.shape}."
                    )
        places = {"positions": where.positions, "distances": where.distances}
        for part, given in (places | (where.streams or {})).items():
            if given is not None:
                check_places(f"{part} of {name}'s Tokens", given)
    if key.distances is None:
        return
    if not encoding.by_distance:
        raise ValueError(
            f"{encoding.title} is no function of distances; give positions instead "
            "(randomized positions: distances=False)."
        )
    check_reach(query, key)


def check_mask(mask, q, query: Tokens, key: Tokens) -> None:
    """Raises ValueError for what is no mask, or one of other pairs or heads."""
    if mask is None:
        return
    if not callable(mask):
        raise ValueError(
            "mask must be a mask of ropejax.masks or a function of (query, key), got "
            f"{type(mask).__name__}; padding and segments belong into Tokens. An array "
            "[T, S] of booleans is lambda query, key: jnp.asarray(array)"
            "[query.index[:, :, None], key.index[:, None, :]][:, None]."
        )
    try:
        shown = jax.eval_shape(mask, *shapes_of((query, key)))
    except VALUES_WANTED:
        return  # a function that looks at values, which the engine may know
    check_shown(mask, shown, (q.shape[0], q.shape[2], query.length, key.length))


def check_causal(
    encoding: Encoding, normalizer: Normalizer, mask, query: Tokens, key: Tokens
) -> None:
    """Raises ValueError where queries see later keys, and a method cannot serve that.

    What is known, `later_key_seen` says.
    """
    named = ((encoding, encoding.title), (normalizer, type(normalizer).__name__))
    titles = [name for method, name in named if method.causal_only]
    seen = later_key_seen(mask, query, key) if titles else None
    if seen is not None:
        raise ValueError(
            f"{titles[0]} is undefined for keys after the query, and query {seen.query}"
            f" would see key {seen.key}; use a causal mask, such as masks.Causal(), got"
            f" {mask}."
        )


def check_scale(scale, num_heads: int) -> None:
    """Raises ValueError unless the scale is one finite number or one for each head."""
    _check_numbers("scale", scale)
    check_finite_array("scale", scale if hasattr(scale, "dtype") else float(scale))
    shape = jnp.shape(scale)
    if shape in {(), (1, 1, 1, 1), (1, num_heads, 1, 1)}:
        return
    raise ValueError(
        f"scale must be one number or [1, {num_heads}, 1, 1], got shape {shape}; a "
        "factor for each query is row_scale."
    )


def check_row_scale(row_scale, q) -> None:
    """Raises ValueError unless the factor broadcasts to queries and heads."""
    if row_scale is None:
        return
    _check_numbers("row_scale", row_scale)
    batch, length, heads = q.shape[:3]
    shape = jnp.shape(row_scale)
    fits = len(shape) == 3 and all(
        a in {1, b} for a, b in zip(shape, (batch, length, heads), strict=True)
    )
    if not fits:
        raise ValueError(
            f"row_scale must be [{batch} or 1, {length} or 1, {heads} or 1], got "
            f"{shape}."
        )


def _check_numbers(name: str, given) -> None:
    """Raises ValueError for what is neither a number nor an array of numbers."""
    is_array = hasattr(given, "dtype") and hasattr(given, "shape")
    if not isinstance(given, numbers.Real) and not is_array:
        raise ValueError(
            f"{name} must be a number or an array, got {given!r} of type "
            f"{type(given).__name__}."
        )
    dtype = jnp.result_type(given) if is_array else type(given)
    real = is_array and (
        jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.floating)
    )
    if dtype is bool or (is_array and not real):
        raise ValueError(f"{name} must be of real numbers, got {given!r}.")


def check_rng(rng) -> None:
    """Raises ValueError unless dropout is given a PRNG key, or none."""
    if rng is not None:
        check_key(rng)


def check_first_row(first_row) -> None:
    """Raises ValueError unless the first row is an integer, traced or not."""
    dtype = getattr(first_row, "dtype", type(first_row))
    whole = dtype is int or (
        hasattr(first_row, "dtype") and jnp.issubdtype(dtype, jnp.integer)
    )
    if not whole or jnp.shape(first_row) != ():
        raise ValueError(
            "first_row must be an integer, the row of the whole batch with which q "
            f"starts, got {first_row!r}."
        )


def check_settings(
    normalizer: Normalizer,
    dropout_rate: float,
    return_lse: bool,
    block_q: int | None,
    block_k: int | None,
) -> None:
    """Raises ValueError for settings out of range or at odds with each other."""
    if not isinstance(normalizer, Normalizer):
        raise ValueError(
            f"normalizer must be one of ropejax.attention, got {normalizer!r}."
        )
    if not isinstance(return_lse, bool):
        raise ValueError(f"return_lse must be True or False, got {return_lse!r}.")
    if return_lse and not normalizer.has_lse:
        raise ValueError(f"{type(normalizer).__name__} has no log-sum-exp to return.")
    if not isinstance(dropout_rate, numbers.Real) or not 0 <= dropout_rate < 1:
        raise ValueError(f"dropout_rate must be in [0, 1), got {dropout_rate!r}.")
    if dropout_rate > MOST_DROPPED:
        raise ValueError(
            f"dropout_rate must be at most 1 - 2**-32, since draws have 32 bits, got "
            f"{dropout_rate!r}."
        )
    for name, size in {"block_q": block_q, "block_k": block_k}.items():
        if size is not None:
            check_size(name, size)
