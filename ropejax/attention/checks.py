"""What `attend` refuses before anything is compiled, and how it says so."""

import functools

import jax
import jax.numpy as jnp

from ropejax.attention.normalizers import Normalizer
from ropejax.concrete import check_finite_array
from ropejax.encodings.base import Dims, Encoding
from ropejax.masks import Mask
from ropejax.tokens import Tokens


def check_arrays(q, k, v) -> None:
    """Raises ValueError unless queries, keys and values fit each other."""
    for name, array in {"q": q, "k": k, "v": v}.items():
        if array.ndim != 4 or 0 in array.shape:
            raise ValueError(
                f"{name} must be [batch, length, heads, width], none of them 0, got "
                f"{array.shape}."
            )
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(f"{name} must be floating-point, got {array.dtype}.")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"k and v must agree but for width: {k.shape}, {v.shape}.")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q and k must agree in batch and width: {q.shape}, {k.shape}."
        )
    if q.shape[2] % k.shape[2]:
        raise ValueError(
            f"query heads must be a multiple of key heads: {q.shape[2]} and "
            f"{k.shape[2]}."
        )


def check_kinds(encoding, query, key, mask) -> None:
    """Raises ValueError for arguments that are something else than they must be."""
    if not isinstance(encoding, Encoding):
        raise ValueError(
            f"encoding must be settings, such as ropejax.encodings.Rotary(), got "
            f"{encoding!r}."
        )
    for name, where in (("query", query), ("key", key)):
        if not isinstance(where, Tokens):
            raise ValueError(
                f"{name} must say where tokens are, as ropejax.tokens.tokens(length) "
                f"does, got {type(where).__name__}."
            )
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

    Positions and distances that are known must be finite.
    """
    for name, array, where in (("q", q, query), ("k", k, key)):
        if array.shape[1] != where.length:
            raise ValueError(
                f"{name} holds {array.shape[1]} tokens, but its Tokens {where.length}."
            )
        for part, leaf in where.per_token().items():
            for x in jax.tree.leaves(leaf):
                if x.shape[0] not in {1, array.shape[0]}:
                    raise ValueError(
                        f"{part} of {name}'s Tokens must have 1 or {array.shape[0]} "
                        f"rows, got shape {x.shape}."
                    )
        check_finite_array(f"positions of {name}'s Tokens", where.positions)
        if where.distances is not None:
            check_finite_array(f"distances of {name}'s Tokens", where.distances)
    if (query.segments is None) != (key.segments is None):
        absent = "queries" if query.segments is None else "keys"
        raise ValueError(
            f"the Tokens of {absent} have no segments, but the others have; give both, "
            "or neither."
        )
    if key.distances is None:
        return
    if not encoding.by_distance:
        raise ValueError(
            f"{encoding.title} is no function of distances; give positions instead "
            "(randomized positions: distances=False)."
        )
    if key.distances.shape[1] < key.length:
        raise ValueError(
            f"a table of {key.distances.shape[1]} distances is too short for "
            f"{key.length} tokens; draw at least that many."
        )


def check_mask(mask, encoding: Encoding, num_queries: int) -> None:
    """Raises ValueError for what is no mask, or one that the encoding cannot serve."""
    if mask is not None and not callable(mask):
        raise ValueError(
            "mask must be a mask of ropejax.masks or a function of (query, key), got "
            f"{type(mask).__name__}; padding and segments belong into Tokens."
        )
    if not encoding.causal_only or num_queries == 1:
        return
    if mask is None or (isinstance(mask, Mask) and _shows_the_future(mask)):
        raise ValueError(
            f"{encoding.title} is undefined for keys after the query; use a causal "
            f"mask, such as masks.Causal(), got {mask}."
        )


def _shows_the_future(mask: Mask) -> bool:
    # Known now, and on no mesh: inside shard_map too.
    nowhere = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with nowhere, jax.ensure_compile_time_eval():
        zero, later = jnp.array(0), jnp.array([1, 2**20])
        return bool(mask.block_visible(zero, zero, later, later).any())


def check_scale(scale, num_heads: int) -> None:
    """Raises ValueError unless the scale is one finite number or one for each head."""
    check_finite_array("scale", scale)
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
    if return_lse and not normalizer.has_lse:
        raise ValueError(f"{type(normalizer).__name__} has no log-sum-exp to return.")
    if not 0 <= dropout_rate < 1:
        raise ValueError(f"dropout_rate must be in [0, 1), got {dropout_rate}.")
    for name, size in {"block_q": block_q, "block_k": block_k}.items():
        if size is None:
            continue
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a positive integer, got {size!r}.")
