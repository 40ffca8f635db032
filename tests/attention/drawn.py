"""Requests of attention drawn at random: methods, masks, tokens, all of them legal.

A seed is all that it takes to see a request again: `request(17)`.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from ropejax import masks
from ropejax.attention import (
    AdaptiveTemperature,
    Entmax,
    Selective,
    Sigmoid,
    SinkSoftmax,
    Softmax,
    SquaredReLU,
    StickBreaking,
    UnitRows,
    attend,
    visible_counts,
)
from ropejax.attention.scales import ssmax
from ropejax.encodings import (
    ENCODINGS,
    AxialRotary,
    Dims,
    Encoding,
    MRoPE,
    compose,
)
from ropejax.testing.checks import variants
from ropejax.tokens import Tokens

MARKS = "marks"

NORMALIZERS = (
    *(Softmax(), Softmax(), Softmax(), SinkSoftmax(), AdaptiveTemperature()),
    *(Entmax(), Entmax(1.3), Sigmoid(), Sigmoid(-1.0), SquaredReLU()),
    *(StickBreaking(), Selective(), UnitRows()),
)


@dataclasses.dataclass(frozen=True)
class Request:
    """What is static of a request; `arrays` draws the rest."""

    encoding: Encoding
    normalizer: Any
    mask: Any
    dims: Dims
    num_tokens: int
    num_queries: int
    axes: int
    positions: str
    rows: int
    ssmax: bool
    dropout_rate: float
    blocks: tuple[int, int]


def request(seed: int, lengths: tuple[int, ...] = (1, 7, 20)) -> Request:
    """Returns the request of a seed.

    Args:
        seed: any number.
        lengths: what the number of tokens is drawn from.
    """
    rng = np.random.default_rng(seed)
    while True:
        method, normalizer = encoding(rng), _one_of(rng, NORMALIZERS)
        length = int(rng.choice(lengths))
        heads, kv_heads = _one_of(rng, [(4, 2), (2, 1), (3, 3)])
        rule = None if rng.random() < 0.1 else mask(rng, length, heads)
        causal = method.causal_only or normalizer.causal_only or rng.random() < 0.5
        if causal:
            rule = masks.Causal() if rule is None else rule & masks.Causal()
        dims = Dims(heads, kv_heads, 8, 12, causal=bool(causal))
        axes, kinds = _axes(method), ["in order", "gaps", "any", "repeated"]
        if method.position_limit is None:
            kinds += ["negative", "fractions"]
        if method.by_distance and axes == 1:
            kinds += ["distances"]
        fewer = not normalizer.needs_earlier_queries and rng.random() < 0.5
        made = Request(
            encoding=method,
            normalizer=normalizer,
            mask=rule,
            dims=dims,
            num_tokens=length,
            num_queries=(length + 1) // 2 if fewer else length,
            axes=axes or 1,
            positions=_one_of(rng, kinds),
            rows=int(rng.choice([1, 2])),
            ssmax=rng.random() < 0.3,
            dropout_rate=float(rng.choice([0.0, 0.0, 0.4])),
            blocks=_one_of(rng, [(3, 4), (8, 5), (5, 2)]),
        )
        try:
            method.check(dims)
        except ValueError:
            continue
        if axes is not None:
            return made


def arrays(of: Request, seed: int) -> tuple[dict, Tokens]:
    """Returns content and parameters of two rows, and where their tokens are."""
    rng = np.random.default_rng([seed, 1])
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)

    def filled(make):
        shapes = jax.eval_shape(make, jax.random.key(0))
        return jax.tree.map(lambda x: (normal(*x.shape) / 2).astype(x.dtype), shapes)

    encoding, dims, length = of.encoding, of.dims, of.num_tokens
    kv = (2, length, dims.num_kv_heads, dims.head_dim)
    content = {
        "q": normal(2, length, dims.num_heads, dims.head_dim),
        "k": normal(*kv),
        "v": normal(*kv),
        "x": normal(2, length, dims.embed_dim),
        "shared": filled(lambda rng: encoding.init_shared(rng, dims)),
        "layer": filled(lambda rng: encoding.init_layer(rng, dims)),
        "normalizer": filled(lambda _: of.normalizer.init_layer(dims.num_heads)),
        "ssmax": np.abs(normal(dims.num_heads)),
    }
    shape = (of.rows, length)
    limits = encoding.stream_limits
    ids = {name: rng.integers(0, n, shape, np.int32) for name, n in limits}
    where = Tokens(
        index=np.broadcast_to(np.arange(length, dtype=np.int32), shape),
        positions=_positions(of, rng),
        segments=np.sort(rng.integers(0, 2, shape, np.int32), axis=1),
        valid=rng.random(shape) < 0.8,
        streams=ids
        | {name: rng.integers(0, 2, shape, np.int32) for name in (MARKS, "segment")},
        distances=_distances(of, rng),
    )
    return content, where


def run(of: Request, content, where: Tokens, queries, keys, **settings):
    """Attends from some tokens to all of them, which are stored in any order.

    Args:
        of: the request.
        content: as from `arrays`.
        where: likewise.
        queries: which tokens ask, `[T]`.
        keys: in which order tokens are stored, `[L]`.
        **settings: further arguments of `attend`.
    """
    encoding = of.encoding
    q, k, v, x = (content[name][:, keys] for name in "qkvx")
    where = where.permuted(keys)
    params = encoding.prepare(
        content["shared"], content["layer"], where, where, of.dims
    )
    features, _ = encoding.key_features(params, x, k, where)
    key = where.replace(features=features)
    query = where.replace(features=encoding.query_features(params, x, q, where))
    at = jax.numpy.argsort(keys)[queries]
    query, q = query.permuted(at), q[:, at]
    if of.ssmax:
        counts = visible_counts(query, key, of.mask)
        settings["row_scale"] = ssmax(counts, content["ssmax"])
    if of.dropout_rate:
        settings["rng"] = jax.random.key(5)
    return attend(
        *(q, k, v),
        encoding=encoding,
        params=params,
        query=query,
        key=key,
        mask=of.mask,
        normalizer=of.normalizer,
        normalizer_params=content["normalizer"],
        dropout_rate=of.dropout_rate,
        **settings,
    )


def _one_of(rng, things):
    return things[int(rng.integers(len(things)))]


def encoding(rng, alone: bool = False) -> Encoding:
    """Returns an encoding, often with other settings, or two that go together."""
    if not alone and rng.random() < 0.4:
        parts = {name: encoding(rng, alone=True) for name in ("one", "two")}
        try:
            return compose(**parts)
        except ValueError:  # two products, mixes or carries
            return encoding(rng)
    method = ENCODINGS[_one_of(rng, list(ENCODINGS))]()
    changed = list(variants(method))
    return _one_of(rng, changed) if changed and rng.random() < 0.5 else method


def _axes(encoding: Encoding) -> int | None:
    """Axes of positions that all parts take; None if they differ."""
    parts = [part for _, part in getattr(encoding, "parts", ())] or [encoding]
    axes = set()
    for part in parts:
        if isinstance(part, AxialRotary):
            axes.add(part.axes)
        elif isinstance(part, MRoPE):
            axes.add(3)
        else:
            axes.add(1)
    return axes.pop() if len(axes) == 1 else None


def _positions(of: Request, rng):
    shape = (of.rows, of.num_tokens, *([of.axes] if of.axes > 1 else []))
    most = min(of.encoding.position_limit or 2**20, 5 * of.num_tokens)
    steps = np.arange(of.num_tokens, dtype=np.int32).reshape(
        1, -1, *[1] * (of.axes > 1)
    )
    made = {
        "distances": np.zeros(shape),
        "in order": np.broadcast_to(steps % most, shape),
        "gaps": np.sort(rng.integers(0, most, shape), axis=1),
        "any": rng.integers(0, most, shape),
        "repeated": np.sort(rng.integers(0, min(3, most), shape), axis=1),
        "negative": np.sort(rng.integers(-most, most, shape), axis=1),
        "fractions": np.sort(most * rng.random(shape), axis=1),
    }[of.positions]
    return made.astype(np.float32 if of.positions == "fractions" else np.int32)


def _distances(of: Request, rng):
    """A table of distances, or None: increasing from 0, for each row or for all."""
    if of.positions != "distances":
        return None
    steps = rng.integers(1, 4, (of.rows, of.num_tokens + 1), np.int32)
    steps[:, 0] = 0
    return np.cumsum(steps, axis=1, dtype=np.int32)


def mask(rng, length: int, heads: int, depth: int = 2) -> masks.Mask:
    """Returns a combination of masks for that many tokens.

    Args:
        rng: NumPy's generator.
        length: tokens of the sequence.
        heads: query heads, which may have masks of their own; 0 for one for all.
        depth: how deep combinations may be nested.
    """
    kind, deeper = rng.random(), functools.partial(mask, rng, length)
    if heads and kind < 0.1:
        return masks.PerHead(tuple(deeper(0, 1) for _ in range(heads)))
    if depth == 0 or kind < 0.5:
        return _simple_mask(rng, length)
    if kind < 0.6:
        return ~deeper(heads, depth - 1)
    one, two = (deeper(heads, depth - 1) for _ in range(2))
    return one & two if kind < 0.8 else one | two


def _simple_mask(rng, length: int) -> masks.Mask:
    few = lambda least: int(rng.integers(least, 8))
    return _one_of(
        rng,
        [
            masks.Causal(),
            masks.Full(),
            masks.Window(few(0), few(0)),
            masks.Window(None, few(0)),
            masks.Dilated(few(1), few(0), few(0)),
            masks.Blocks(masks.Window(few(0), 1), few(1)),
            masks.Chunked(few(1)),
            masks.BlockwiseCausal(few(1)),
            masks.Global(few(0), at=(few(0),)),
            masks.Prefix(few(0)),
            masks.Marked(MARKS),
            masks.Lambda(few(0), few(1)),
            masks.Longformer(few(1), few(1), few(0)),
            masks.Random(few(1), seed=few(0), first=few(0), gap=few(0)),
            masks.BigBird(length, block=few(1), random=few(1), neighbors=few(0)),
        ],
    )
