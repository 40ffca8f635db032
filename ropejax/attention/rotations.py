"""Whether an encoding does nothing to attention but rotate queries and keys.

Linear attention never forms the logits of pairs, so an encoding that works on them has
nothing to work on there. One that scales queries or keys changes a softmax's sharpness,
but would only scale the outputs there.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ropejax.encodings.base import Dims, Encoding
from ropejax.tokens import Tokens

_FAR = 100_000  # tokens from the start, where factors that grow with length show
_TOLERANCE = 1e-3  # relative; a rotation in float32 keeps lengths to 1e-6

_WORK_ON_PAIRS = (
    ("has_product", "needs several views of queries and keys, or a product of its own"),
    ("has_bias", "adds a bias to the logits of pairs"),
    ("has_logits", "changes the logits of pairs"),
    ("has_carry", "changes the logits of pairs by the tokens between"),
    ("needs_whole_rows", "changes the logits of pairs by others of their rows"),
    ("mixes_heads", "changes the logits of pairs by those of other heads"),
    ("has_mix", "adds to values by pairs"),
)


def check_is_rotation(
    encoding: Encoding, dims: Dims, query: Tokens, key: Tokens
) -> None:
    """Raises ValueError unless attention needs no more than rotated queries and keys.

    Values and outputs may be changed too.

    Args:
        encoding: settings of the position encoding.
        dims: sizes of queries and keys.
        query: where the queries are.
        key: where the keys are.
    """
    remedy = (
        "which linear attention does not serve; use a rotation with it, such as "
        "Rotary(), or attend(...) with this encoding."
    )
    for trait, why in _WORK_ON_PAIRS:
        if getattr(encoding, trait):
            raise ValueError(f"{encoding.title} {why}, {remedy}")
    if encoding.has_embed:
        raise ValueError(
            f"{encoding.title} changes embeddings, which attention never sees; call "
            "its embed(...) on them, and give linear attention Encoding()."
        )
    if not _keeps_lengths(encoding, dims, _kind(query), _kind(key)):
        raise ValueError(
            f"{encoding.title} changes the lengths of queries or keys, {remedy}"
        )


def _kind(where: Tokens) -> tuple[int | None, tuple[str, ...]]:
    """Axes of positions, and names of streams."""
    axes = None if jnp.ndim(where.positions) == 2 else where.positions.shape[2]
    return axes, tuple(where.streams or ())


@functools.lru_cache(maxsize=256)
def _keeps_lengths(encoding: Encoding, dims: Dims, *kinds) -> bool:
    """True if some queries and keys are as long after the encoding as before.

    Tried out, with parameters off their start, since a method need not say so.
    """
    query, key = (_some_tokens(encoding, *kind) for kind in kinds)

    def views(rng):
        rngs = iter(jax.random.split(rng, 6))
        normal = lambda *shape: jax.random.normal(next(rngs), (1, 3, *shape))
        x = normal(dims.embed_dim)
        q = normal(dims.num_heads, dims.head_dim)
        k = normal(dims.num_kv_heads, dims.head_dim)
        made = encoding.init_shared(next(rngs), dims), encoding.init_layer(rng, dims)
        shared, layer = (_moved(next(rngs), params) for params in made)
        params = encoding.prepare(shared, layer, query, key, dims)
        of_query = encoding.query_features(params, x, q, query)
        of_key, _ = encoding.key_features(params, x, k, key)
        turned = (
            encoding.queries(params, q, query.replace(features=of_query)),
            encoding.keys(params, k, key.replace(features=of_key)),
        )
        return (q, k), turned

    # Known now, and on no mesh, wherever this is called.
    nowhere = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with nowhere, jax.ensure_compile_time_eval():
        before, after = jax.device_get(jax.jit(views)(jax.random.key(0)))
    return all(
        len(some) == 1
        and some[0].shape == x.shape
        and np.allclose(_length(some[0]), _length(x), rtol=_TOLERANCE)
        for x, some in zip(before, after, strict=True)
    )


def _some_tokens(encoding: Encoding, axes: int | None, streams: tuple[str, ...]):
    last = _FAR if encoding.position_limit is None else encoding.position_limit - 1
    places = np.minimum([[0, 3, _FAR]], last).astype(np.int32)
    positions = places if axes is None else np.repeat(places[..., None], axes, axis=2)
    return Tokens(
        index=places,
        positions=positions,
        streams=dict.fromkeys(streams, places) if streams else None,
    )


def _moved(rng, params):
    """Parameters that start at zero or one would hide what they do."""

    def one(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x + 0.1 * jax.random.normal(rng, x.shape, x.dtype)

    return jax.tree.map(one, params)


def _length(x: np.ndarray) -> np.ndarray:
    return np.linalg.norm(x, axis=-1)
