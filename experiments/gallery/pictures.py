"""The pictures of the gallery: each draws the variants of one method into one panel."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from experiments.gallery import numbers
from experiments.gallery.draw import MOST, heads, lines, matrix
from experiments.gallery.numbers import REACH
from ropejax.encodings import Encoding

Variants = Mapping[str, Encoding]
"""Settings of a method that are drawn together, by label."""

LENGTH = 96
"""Tokens of a matrix of positions or distances."""

EXAMPLE_LENGTH = 32
"""Tokens of an example's logits."""

HEADS_REACH = 128
"""Longest distance of curves a head, in tokens."""

TOKENS = "(tokens)"


def position_vectors(axes: Axes, variants: Variants) -> None:
    """Channels by position."""
    vectors = numbers.position_vectors(only(variants), LENGTH)
    matrix(axes, vectors, "change of an embedding", signed=True, aspect="auto")
    axes.set(xlabel="channel", ylabel=f"position {TOKENS}")


def similarity(axes: Axes, variants: Variants) -> None:
    """Positions by positions."""
    vectors = numbers.position_vectors(only(variants), LENGTH)
    matrix(axes, numbers.similarity(vectors), "cosine of the angle")
    axes.set(xlabel=f"position {TOKENS}", ylabel=f"position {TOKENS}")


def similarity_by_distance(axes: Axes, variants: Variants) -> None:
    """The first row of the similarities."""
    number = np.arange(REACH)
    vectors = {k: numbers.position_vectors(v, REACH) for k, v in variants.items()}
    rows = {k: (number, numbers.similarity(v)[0]) for k, v in vectors.items()}
    lines(axes, rows, zero=True)
    axes.set(xlabel=f"distance from position 0 {TOKENS}", ylabel="cosine of the angle")


def values(axes: Axes, variants: Variants) -> None:
    """A value, as the output sees it, against itself."""
    seen = {k: numbers.value_by_distance(v) for k, v in variants.items()}
    lines(axes, {k: (np.arange(len(v)), v) for k, v in seen.items()}, zero=True)
    axes.set(xlabel=f"distance {TOKENS}", ylabel="value seen · value / |value|²")


def query_factors(axes: Axes, variants: Variants) -> None:
    """Factor on each query."""
    found = {k: numbers.query_factor(v, REACH) for k, v in variants.items()}
    lines(axes, {k: (1 + np.arange(REACH), v) for k, v in found.items()})
    axes.set(xlabel="keys that the query sees", ylabel="factor on the query")


def weight_factors(axes: Axes, variants: Variants) -> None:
    """Factors behind the softmax, a row a head."""
    offsets, values = numbers.weight_factors(only(variants), HEADS_REACH)
    extent = (offsets[0] - 0.5, offsets[-1] + 0.5, len(values) + 0.5, 0.5)
    matrix(axes, values, "factor on the weight", extent=extent, aspect="auto")
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="head")


def alone_by_head(axes: Axes, variants: Variants) -> None:
    """Logits without content, a curve a head."""
    offsets, values = numbers.no_content(only(variants), HEADS_REACH)
    heads(axes, offsets, values)
    low, high = max(values.min(), -MOST), values.max()
    axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="logit (nats)")


def alone_as_table(axes: Axes, variants: Variants) -> None:
    """Logits without content, a row a head."""
    offsets, values = numbers.no_content(only(variants), HEADS_REACH)
    extent = (offsets[0] - 0.5, offsets[-1] + 0.5, len(values) + 0.5, 0.5)
    matrix(axes, values, "logit (nats)", signed=True, extent=extent, aspect="auto")
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="head")


def alone_as_matrix(axes: Axes, variants: Variants) -> None:
    """Logits of the first head without content, from each query to each key."""
    values = numbers.no_content_matrix(only(variants), LENGTH)[0]
    matrix(axes, values, "logit (nats)")
    name_pairs(axes)


def alone_weights(axes: Axes, variants: Variants) -> None:
    """Weights of the past without content, a curve a head."""
    offsets, logits = numbers.no_content(only(variants), HEADS_REACH)
    past = np.exp(logits[:, offsets <= 0])
    weights = past / past.sum(axis=1, keepdims=True)
    heads(axes, offsets[offsets <= 0], weights)
    axes.set_yscale("log")
    low, high = weights.min() / 2, 2 * weights.max()
    axes.set_ylim(max(1e-5, min(low, 1e-2 * high)), high)
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="weight of the key")


def responses(axes: Axes, variants: Variants) -> None:
    """What is left of a logit of 1, a curve a head."""
    offsets, values = numbers.response(only(variants), HEADS_REACH)
    heads(axes, offsets, values)
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="change / change before")


def example(axes: Axes, variants: Variants) -> None:
    """Logits of random content."""
    shown = numbers.example_logits(only(variants), EXAMPLE_LENGTH).logits
    matrix(axes, shown, "logit (nats)", signed=True)
    name_pairs(axes)


def example_by_position(axes: Axes, variants: Variants) -> None:
    """What positions change in logits of random content."""
    shown = numbers.example_logits(only(variants), EXAMPLE_LENGTH).by_position
    matrix(axes, shown, "change of the logit (nats)", signed=True)
    name_pairs(axes)


def counting_weights(axes: Axes, variants: Variants) -> None:
    """Weights of equal content under a causal mask."""
    logits = numbers.no_content_matrix(only(variants), EXAMPLE_LENGTH)[0]
    seen = np.where(np.tri(EXAMPLE_LENGTH, dtype=bool), np.exp(logits), np.nan)
    weights = seen / np.nansum(seen, axis=1, keepdims=True)
    matrix(axes, weights, "weight of the key", logarithmic=True)
    name_pairs(axes)


def only(variants: Variants) -> Encoding:
    """Returns the encoding of a single variant."""
    (encoding,) = variants.values()
    return encoding


def name_pairs(axes: Axes) -> None:
    """Names the sides of a matrix of keys by queries."""
    axes.set(xlabel=f"key position {TOKENS}", ylabel=f"query position {TOKENS}")
