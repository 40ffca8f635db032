"""The gallery's pictures of rotary encodings: wavelengths, distances, products."""

import numpy as np
from matplotlib.axes import Axes

from experiments.gallery import rotary
from experiments.gallery.draw import GREY, lines, matrix, note
from experiments.gallery.numbers import DIMS, REACH
from experiments.gallery.pictures import LENGTH, TOKENS, Variants, name_pairs, only
from experiments.gallery.traits import is_changed_rotary, is_extended
from ropejax.encodings import Rotary


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
    axes.set_ylim(0, 1.1 if len(found) == 1 else 1.5)
    if len(found) > 1:
        axes.legend(loc="upper right", handlelength=2.4)
    axes.set(xlabel="pair of channels", ylabel="new frequency / old")


def axis_wavelengths(axes: Axes, variants: Variants) -> None:
    """Wavelength of each pair, by the axis whose positions turn it."""
    plan = only(variants).pairs(DIMS.head_dim)
    wavelength = 2 * np.pi / plan.spectrum[plan.entry]
    pairs = {f"axis {a}": np.flatnonzero(plan.axis == a) for a in set(plan.axis)}
    curves = {name: (at, wavelength[at]) for name, at in pairs.items()}
    lines(axes, curves, linestyle="none", marker="o", ms=3)
    axes.set_yscale("log")
    axes.set(xlabel="pair of channels", ylabel=f"wavelength {TOKENS}")


def products_on_axes(axes: Axes, variants: Variants) -> None:
    """Product of equal content against the distance on each axis alone."""
    encoding = only(variants)
    number = np.arange(LENGTH + 1)
    curves = {
        f"axis {a}": (number, rotary.product_along_axis(encoding, a, LENGTH))
        for a in range(encoding.num_axes)
    }
    lines(axes, curves, zero=True)
    axes.set(xlabel=f"distance on one axis {TOKENS}", ylabel="product / (q · k)")


def products_on_grid(axes: Axes, variants: Variants) -> None:
    """Product of equal content by offset on two axes."""
    encoding, side = only(variants), 24
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
    encoding = only(variants)
    seen = rotary.distance_matrix(encoding, LENGTH).astype(float)
    if encoding.causal_only:
        seen[~np.tri(LENGTH, dtype=bool)] = np.nan
    matrix(axes, seen, f"distance seen {TOKENS}")
    name_pairs(axes)


def products(axes: Axes, variants: Variants) -> None:
    """Product of equal content by distance."""
    number = np.arange(REACH + 1)
    variants = _legible(variants)
    found = {k: rotary.product_by_distance(v) for k, v in variants.items()}
    plain = _plain(variants)
    if plain is not None:
        plain = number, rotary.product_by_distance(plain)
    lines(axes, {k: (number, v) for k, v in found.items()}, plain, zero=True)
    axes.set(xlabel=f"distance {TOKENS}", ylabel="product / (q · k)")


def single_pairs(axes: Axes, variants: Variants) -> None:
    """Product of equal content in one pair alone, for three of them."""
    encoding, number = only(variants), np.arange(REACH + 1)
    half = DIMS.head_dim // 2
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
    variants = _legible(variants)
    found = {k: rotary.bound_by_distance(v) for k, v in variants.items()}
    plain = _plain(variants)
    if plain is not None:
        plain = number, rotary.bound_by_distance(plain)
    lines(axes, {k: (number, v) for k, v in found.items()}, plain)
    axes.set_ylim(bottom=0)
    axes.set(xlabel=f"distance {TOKENS}", ylabel=r"(2 / d) $\Sigma_j\,|S_j|$")


def _plain(variants: Variants) -> Rotary | None:
    """RoPE to compare with, None if these settings are no more than it."""
    first = next(iter(variants.values()))
    if not is_changed_rotary(first):
        return None
    return Rotary(max_wavelength=first.max_wavelength)


def _legible(variants: Variants) -> Variants:
    """Of more than two settings the default one: ragged curves hide each other."""
    if len(variants) <= 2:
        return variants
    return {k: v for k, v in variants.items() if v == type(v)()}


def _frequencies(variants: Variants) -> dict[str, np.ndarray]:
    """Frequencies by label: of several lengths where they depend on the length."""
    found = {}
    for label, encoding in variants.items():
        if not encoding.length_dependent:
            found[label] = rotary.pair_frequencies(encoding)
            continue
        for length in encoding.frequencies.train_length * np.array([1, 2, 4]):
            now = rotary.pair_frequencies(encoding, int(length))
            if found and np.array_equal(now, next(reversed(found.values()))):
                label, now = found.popitem()
                found[f"{label}, {length}"] = now
            else:
                found[f"length {length}"] = now
    return found
