"""The pictures of `experiments.analysis`: PNG and PDF, from its numbers alone."""

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report.plot_style import COLOURS, GREY, MARKERS, STYLE, save

Numbers = Mapping[str, Any]


def draw_all(numbers: Numbers, folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws every picture into a folder, and returns their paths.

    Args:
        numbers: what `experiments.analysis.numbers.analyse_run` returned.
        folder: where they are written; made if absent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in PICTURES.items():
        for drawn in save(draw(numbers), folder / f".{name}", ("png", "pdf")):
            paths.append(folder / f"{name}{drawn.suffix}")
            os.replace(drawn, paths[-1])
    return paths


@matplotlib.rc_context(STYLE)
def attention_entropy(numbers: Numbers) -> Figure:
    """Entropy by length: in nats, and as a share of log n; a line a layer."""
    figure, (left, right) = _panels(numbers, 2, "Entropy of attention")
    lengths = numbers["lengths"]
    _by_layer(left, numbers, "entropy")
    most = np.array(numbers["attention"]["largest"]).max((1, 2))
    left.plot(
        lengths,
        most,
        color=GREY,
        linestyle=":",
        zorder=5,
        label="log n: all n keys seen alike",
    )
    left.set_ylabel("entropy (nats)")
    _by_layer(right, numbers, "of_largest")
    right.set_ylabel("entropy / log n")
    right.axhline(1, color=GREY, linestyle=":", zorder=5)
    right.set_ylim(0, 1.05)
    _length_axes(numbers, left, right)
    _legend(figure, left, "bands: from the lowest head to the highest")
    return figure


@matplotlib.rc_context(STYLE)
def attention_distance(numbers: Numbers) -> Figure:
    """Mean distance of attended tokens by length; a line a layer, a map of heads."""
    figure, (left, right) = _panels(numbers, 2, "Distance of attended tokens")
    lengths = numbers["lengths"]
    _by_layer(left, numbers, "distance")
    uniform = _mean_of_heads(numbers, "of_uniform")[:, 0]
    left.plot(lengths, uniform, color=GREY, linestyle=":", label="all alike")
    left.set_ylabel("mean distance (tokens)")
    left.set_ylim(bottom=0)
    _length_axes(numbers, left)
    last = np.array(numbers["attention"]["distance"][-1])
    image = right.imshow(last, cmap="cividis", vmin=0, aspect="auto")
    right.set_title(f"input length {lengths[-1]}")
    right.set_xlabel("head")
    right.set_ylabel("layer")
    right.set_xticks(range(last.shape[1]), range(1, last.shape[1] + 1))
    right.set_yticks(range(last.shape[0]), range(1, last.shape[0] + 1))
    figure.colorbar(image, ax=right, label="mean distance (tokens)")
    _legend(figure, left, "bands: from the lowest head to the highest")
    return figure


@matplotlib.rc_context(STYLE)
def positions(numbers: Numbers) -> Figure:
    """Histograms of positions and distances, and the share never seen by length."""
    kinds = numbers["positions"]
    figure, axes = _panels(numbers, len(kinds) + 1, "Where tokens were, and are")
    new, last = axes[-1], numbers["lengths"][-1]
    for at, (name, one) in enumerate(kinds.items()):
        panel, edges = axes[at], np.array(one["edges"])
        trained, tested = (
            100 * np.array(one[when]) / np.diff(edges) for when in ("training", "test")
        )
        panel.stairs(trained, edges, fill=True, color="0.8", label="training")
        panel.stairs(
            tested,
            edges,
            color=COLOURS[at],
            linewidth=1.2,
            label=f"test, input length {last}" if at == 0 else None,
        )
        both = np.concatenate([trained, tested])
        if both.max() > 30 * both[both > 0].min():
            panel.set_yscale("log")
        panel.set_xlabel(f"{name[:-1]} (tokens)")
        panel.set_ylabel(_SHARES[name])
        new.plot(
            numbers["lengths"],
            100 * np.array(one["unseen"]),
            color=COLOURS[at],
            marker=MARKERS[at],
            label=name,
        )
    new.set_ylabel("never seen in training (%)")
    new.set_ylim(-3, 103)
    _length_axes(numbers, new)
    new.legend()
    _legend(figure, axes[0], "")
    return figure


_SHARES = {"positions": "tokens (% a position)", "distances": "pairs (% a distance)"}


@matplotlib.rc_context(STYLE)
def receptive_field(numbers: Numbers) -> Figure:
    """Share of the gradient by distance before the output; a line a length."""
    figure, (left, right) = _panels(numbers, 2, "Receptive field of the first output")
    every = list(numbers["receptive_field"].items())
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(every)))
    for (length, one), colour in zip(every, shades, strict=True):
        share, query = np.array(one["share"]), one["query"]
        before = share[: query + 1][::-1]
        left.plot(before, color=colour, label=f"length {length}")
        cumulated = 100 * np.cumsum(before) / max(before.sum(), 1e-30)
        right.plot(np.arange(len(before)) / max(query, 1), cumulated, color=colour)
    left.set_xscale("symlog", linthresh=1)
    left.set_xlim(left=0)
    left.set_yscale("log")
    left.set_xlabel("distance before the output (tokens)")
    left.set_ylabel("share of the gradient's norm")
    right.plot([0, 1], [0, 100], color=GREY, linestyle=":")
    right.set_xlabel("distance before the output / input length")
    right.set_ylabel("gradient within (%)")
    _legend(figure, left, "dotted: all inputs count alike")
    return figure


@matplotlib.rc_context(STYLE)
def offsets(numbers: Numbers) -> Figure:
    """Cosine between hidden states at shifted positions; a line a layer."""
    figure, (panel,) = _panels(numbers, 1, "Hidden states at shifted positions")
    found = numbers["offsets"]
    similarity = np.array(found["similarity"])
    for layer in range(similarity.shape[1]):
        panel.plot(
            found["offsets"],
            similarity[:, layer],
            color=COLOURS[layer % len(COLOURS)],
            marker=MARKERS[layer % len(MARKERS)],
            label="embedded input" if layer == 0 else f"after layer {layer}",
        )
    panel.set_xscale("symlog", base=2, linthresh=1)
    panel.set_xlabel("shift of all positions (tokens)")
    panel.set_ylabel("mean cosine with no shift")
    low = min(0.0, float(similarity.min())) - 0.05
    panel.set_ylim(low, 1.05)
    _legend(figure, panel, f"input length {numbers['lengths'][0]}")
    return figure


PICTURES: Mapping[str, Callable[[Numbers], Figure]] = {
    "attention_entropy": attention_entropy,
    "attention_distance": attention_distance,
    "positions": positions,
    "receptive_field": receptive_field,
    "offsets": offsets,
}
"""Name of the file -> what draws it."""


def _panels(numbers: Numbers, count: int, what: str) -> tuple[Figure, list[Axes]]:
    """An empty row of panels, with what they show above."""
    figure = Figure(figsize=(max(3.2 * count, 5.2), 3.1))
    axes = figure.subplots(1, count, squeeze=False)[0]
    head = f"{what}\n{numbers['title']}, step {numbers['step']}"
    figure.suptitle(head, x=0.01, ha="left", fontsize=8.5, fontweight="bold")
    return figure, list(axes)


def _mean_of_heads(numbers: Numbers, name: str) -> np.ndarray:
    """Means over heads, `[lengths, layers]`."""
    return np.array(numbers["attention"][name]).mean(-1)


def _by_layer(panel: Axes, numbers: Numbers, name: str) -> None:
    """A line a layer, with a band over its heads."""
    lengths, values = numbers["lengths"], np.array(numbers["attention"][name])
    for layer in range(values.shape[1]):
        colour = COLOURS[layer % len(COLOURS)]
        own = values[:, layer]
        panel.fill_between(
            lengths, own.min(-1), own.max(-1), color=colour, alpha=0.15, lw=0
        )
        panel.plot(
            lengths,
            own.mean(-1),
            color=colour,
            marker=MARKERS[layer % len(MARKERS)],
            label=f"layer {layer + 1}",
        )


def _length_axes(numbers: Numbers, *panels: Axes) -> None:
    """Lengths below, those of training shaded."""
    for panel in panels:
        panel.axvspan(0, numbers["train_max_length"], color="0.93", lw=0, zorder=0)
        panel.set_xlim(0, numbers["lengths"][-1] * 1.03)
        panel.set_xlabel("input length (symbols)")


def _legend(figure: Figure, panel: Axes, note: str) -> None:
    """One legend below the panels, with a line of explanation."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=min(len(labels), 4),
        title=note,
        title_fontsize=7,
        alignment="left",
    )
