"""The pictures of the gallery: each draws the variants of one method into one panel."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from experiments import gallery_numbers as numbers
from experiments import gallery_rotary as rotary
from experiments.gallery_draw import GREY, heads, lines, matrix, note
from experiments.gallery_numbers import REACH
from experiments.gallery_traits import is_changed_rotary, is_extended
from ropejax.encodings import Encoding, Rotary
from ropejax.encodings.rotary_base import Rotation

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
    vectors = numbers.position_vectors(_only(variants), LENGTH)
    matrix(axes, vectors, "change of an embedding", signed=True, aspect="auto")
    axes.set(xlabel="channel", ylabel=f"position {TOKENS}")


def similarity(axes: Axes, variants: Variants) -> None:
    """Positions by positions."""
    vectors = numbers.position_vectors(_only(variants), LENGTH)
    matrix(axes, numbers.similarity(vectors), "cosine of the angle")
    axes.set(xlabel=f"position {TOKENS}", ylabel=f"position {TOKENS}")


def similarity_by_distance(axes: Axes, variants: Variants) -> None:
    """The first row of the similarities."""
    number = np.arange(REACH)
    vectors = {k: numbers.position_vectors(v, REACH) for k, v in variants.items()}
    rows = {k: (number, numbers.similarity(v)[0]) for k, v in vectors.items()}
    lines(axes, rows, zero=True)
    axes.set(xlabel=f"distance from position 0 {TOKENS}", ylabel="cosine of the angle")


def wavelengths(axes: Axes, variants: Variants) -> None:
    """Wavelength of each pair, before and after an extension."""
    first = next(iter(variants.values()))
    found = _frequencies(variants)
    number = np.arange(len(next(iter(found.values()))))
    turning = {k: (number[f > 0], 2 * np.pi / f[f > 0]) for k, f in found.items()}
    plain = number, 2 * np.pi / rotary.plain_frequencies(first)
    lines(axes, turning, plain if is_extended(first) else None)
    axes.set_yscale("log")
    still = number[next(iter(found.values())) == 0]
    if len(still):
        axes.axvspan(still[0] - 0.5, still[-1] + 0.5, color="0.92", lw=0, zorder=0)
        note(axes, still.mean(), 0.06, "do not turn", across=False)
    if trained := getattr(first.frequencies, "train_length", None):
        axes.axhline(trained, color=GREY, lw=0.7, ls=":", zorder=0)
        note(axes, 0.98, trained * 1.15, "trained length", across=True)
    axes.set(xlabel="pair of channels", ylabel=f"wavelength {TOKENS}")


def frequency_ratios(axes: Axes, variants: Variants) -> None:
    """New frequency over old, for each pair."""
    plain = rotary.plain_frequencies(next(iter(variants.values())))
    number = np.arange(len(plain))
    found = _frequencies(variants)
    lines(axes, {k: (number, f / plain) for k, f in found.items()})
    axes.set_ylim(0, 1.08)
    axes.set(xlabel="pair of channels", ylabel="new frequency / old")


def axis_wavelengths(axes: Axes, variants: Variants) -> None:
    """Wavelength of each pair, by the axis whose positions turn it."""
    plan = _only(variants).pairs(numbers.DIMS.head_dim)
    wavelength = 2 * np.pi / plan.spectrum[plan.entry]
    pairs = {f"axis {a}": np.flatnonzero(plan.axis == a) for a in set(plan.axis)}
    curves = {name: (at, wavelength[at]) for name, at in pairs.items()}
    lines(axes, curves, linestyle="none", marker="o", ms=3)
    axes.set_yscale("log")
    axes.set(xlabel="pair of channels", ylabel=f"wavelength {TOKENS}")


def products_on_axes(axes: Axes, variants: Variants) -> None:
    """Product of equal content against the distance on each axis alone."""
    encoding = _only(variants)
    number = np.arange(LENGTH + 1)
    curves = {
        f"axis {a}": (number, rotary.product_along_axis(encoding, a, LENGTH))
        for a in range(encoding.num_axes)
    }
    lines(axes, curves, zero=True)
    axes.set(xlabel=f"distance on one axis {TOKENS}", ylabel="product / (q · k)")


def products_on_grid(axes: Axes, variants: Variants) -> None:
    """Product of equal content by offset on two axes."""
    encoding, side = _only(variants), 24
    values = rotary.product_on_grid(encoding, side)
    edge = side + 0.5
    matrix(axes, values, "product / (q · k)", extent=(-edge, edge, edge, -edge))
    names = (f"offset on axis {encoding.num_axes - n} {TOKENS}" for n in (1, 2))
    axes.set(**dict(zip(("xlabel", "ylabel"), names, strict=True)))


def seen_distances(axes: Axes, variants: Variants) -> None:
    """Distance seen against true distance, from the last query."""
    number = np.arange(LENGTH)
    seen = {k: rotary.distance_matrix(v, LENGTH)[-1, ::-1] for k, v in variants.items()}
    lines(axes, {k: (number, v) for k, v in seen.items()}, (number, number))
    axes.set_ylim(0, max(1.05 * max(v.max() for v in seen.values()), LENGTH))
    axes.set(xlabel=f"true distance {TOKENS}", ylabel=f"distance seen {TOKENS}")


def seen_distance_matrix(axes: Axes, variants: Variants) -> None:
    """Distance seen, from each query to each key."""
    encoding = _only(variants)
    seen = rotary.distance_matrix(encoding, LENGTH).astype(float)
    if encoding.causal_only:
        seen[~np.tri(LENGTH, dtype=bool)] = np.nan
    matrix(axes, seen, f"distance seen {TOKENS}")
    _name_pairs(axes)


def products(axes: Axes, variants: Variants) -> None:
    """Product of equal content by distance."""
    number = np.arange(REACH + 1)
    found = {k: rotary.product_by_distance(v) for k, v in variants.items()}
    plain = _plain(variants)
    if plain is not None:
        plain = number, rotary.product_by_distance(plain)
    lines(axes, {k: (number, v) for k, v in found.items()}, plain, zero=True)
    axes.set(xlabel=f"distance {TOKENS}", ylabel="product / (q · k)")


def single_pairs(axes: Axes, variants: Variants) -> None:
    """Product of equal content in one pair alone, for three of them."""
    encoding, number = _only(variants), np.arange(REACH + 1)
    half = numbers.DIMS.head_dim // 2
    curves = {
        f"pair {pair}": (
            number,
            rotary.product_by_distance(encoding, channels=slice(pair, None, half)),
        )
        for pair in (8, 16, 24)
    }
    lines(axes, curves, zero=True)
    axes.set_ylim(-1.1, 1.45)
    axes.legend(loc="upper center", ncols=3, handlelength=2, columnspacing=1)
    axes.set(xlabel=f"distance {TOKENS}", ylabel="product of the pair / (q · k)")


def decay_bound(axes: Axes, variants: Variants) -> None:
    """RoFormer's bound by distance."""
    number = np.arange(REACH + 1)
    found = {k: rotary.bound_by_distance(v) for k, v in variants.items()}
    plain = _plain(variants)
    if plain is not None:
        plain = number, rotary.bound_by_distance(plain)
    lines(axes, {k: (number, v) for k, v in found.items()}, plain)
    axes.set_ylim(bottom=0)
    axes.set(xlabel=f"distance {TOKENS}", ylabel=r"(2 / d) $\Sigma_j\,|S_j|$")


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


def alone_by_head(axes: Axes, variants: Variants) -> None:
    """Logits without content, a curve a head."""
    offsets, values = numbers.no_content(_only(variants), HEADS_REACH)
    heads(axes, offsets, values)
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="logit (nats)")


def alone_as_table(axes: Axes, variants: Variants) -> None:
    """Logits without content, a row a head."""
    offsets, values = numbers.no_content(_only(variants), HEADS_REACH)
    extent = (offsets[0] - 0.5, offsets[-1] + 0.5, len(values) + 0.5, 0.5)
    matrix(axes, values, "logit (nats)", signed=True, extent=extent, aspect="auto")
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="head")


def alone_as_matrix(axes: Axes, variants: Variants) -> None:
    """Logits of the first head without content, from each query to each key."""
    values = numbers.no_content_matrix(_only(variants), LENGTH)[0]
    matrix(axes, values, "logit (nats)")
    _name_pairs(axes)


def alone_weights(axes: Axes, variants: Variants) -> None:
    """Weights of the past without content, a curve a head."""
    offsets, logits = numbers.no_content(_only(variants), HEADS_REACH)
    past = np.exp(logits[:, offsets <= 0])
    heads(axes, offsets[offsets <= 0], past / past.sum(axis=1, keepdims=True))
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 1.5)
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="weight of the key")


def responses(axes: Axes, variants: Variants) -> None:
    """What is left of a logit of 1, a curve a head."""
    offsets, values = numbers.response(_only(variants), HEADS_REACH)
    heads(axes, offsets, values)
    axes.set(xlabel=f"key − query position {TOKENS}", ylabel="change / change before")


def example(axes: Axes, variants: Variants) -> None:
    """Logits of random content."""
    shown = numbers.example_logits(_only(variants), EXAMPLE_LENGTH).logits
    matrix(axes, shown, "logit (nats)", signed=True)
    _name_pairs(axes)


def example_by_position(axes: Axes, variants: Variants) -> None:
    """What positions change in logits of random content."""
    shown = numbers.example_logits(_only(variants), EXAMPLE_LENGTH).by_position
    matrix(axes, shown, "change of the logit (nats)", signed=True)
    _name_pairs(axes)


def counting_weights(axes: Axes, variants: Variants) -> None:
    """Weights of equal content under a causal mask."""
    logits = numbers.no_content_matrix(_only(variants), EXAMPLE_LENGTH)[0]
    seen = np.where(np.tri(EXAMPLE_LENGTH, dtype=bool), np.exp(logits), np.nan)
    weights = seen / np.nansum(seen, axis=1, keepdims=True)
    matrix(axes, weights, "weight of the key")
    _name_pairs(axes)


def _only(variants: Variants) -> Encoding:
    (encoding,) = variants.values()
    return encoding


def _name_pairs(axes: Axes) -> None:
    axes.set(xlabel=f"key position {TOKENS}", ylabel=f"query position {TOKENS}")


def _plain(variants: Variants) -> Rotary | None:
    """RoPE to compare with, None if these settings are no more than it."""
    first = next(iter(variants.values()))
    if not is_changed_rotary(first):
        return None
    return Rotary(max_wavelength=first.max_wavelength)


def _frequencies(variants: Variants) -> dict[str, np.ndarray]:
    """Frequencies by label: of several lengths where they depend on the length."""
    found = {}
    for label, encoding in variants.items():
        for name, length in _lengths(encoding, label).items():
            found[name] = rotary.pair_frequencies(encoding, length)
    return found


def _lengths(encoding: Rotation, label: str) -> dict[str, int | None]:
    if not encoding.length_dependent:
        return {label: None}
    trained = encoding.frequencies.train_length
    return {f"at {n * trained} tokens": n * trained for n in (1, 2, 4)}
