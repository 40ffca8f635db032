"""How the gallery draws: lines, heads, matrices, in one style.

Colours are those of Okabe and Ito (2008); values go by cividis, signed ones by PuOr,
and heads by viridis: all of them are made for colour-blind readers too.
"""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from experiments.report import plot_style

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1, 1.5)))
GREY = "#767676"
STYLE = MappingProxyType(
    plot_style.STYLE
    | {
        "legend.fontsize": 7,
        "legend.handlelength": 2.0,
        "image.interpolation": "nearest",
        "figure.constrained_layout.w_pad": 0.1,
    }
)
PANEL = (3.0, 2.5)
"""Width and height of a panel, in inches."""

DPI = 160

MOST = 30.0
"""Logits beyond this many nats look alike: a softmax makes nothing of them."""


def figure_of(columns: int, title: str, note: str) -> tuple[Figure, list[Axes]]:
    """Returns a row of empty panels, a title above and a line of explanation below."""
    figure = Figure(figsize=(columns * PANEL[0], PANEL[1] + 0.4))
    axes = figure.subplots(1, columns, squeeze=False)[0]
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    wrapped = textwrap.fill(note, int(figure.get_figwidth() * 18))
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=7, color=GREY)
    return figure, list(axes)


def lines(
    axes: Axes,
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    plain: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    zero: bool = False,
    **style,
) -> None:
    """Draws labelled curves, and RoPE's in grey below them to compare with.

    Args:
        axes: the panel.
        curves: abscissas and ordinates by label.
        plain: the same of RoPE, or None.
        zero: True for a thin line at zero.
        **style: of all curves.
    """
    if plain is not None:
        axes.plot(*plain, color=GREY, lw=0.9, label="RoPE", zorder=1)
    for number, (label, curve) in enumerate(curves.items()):
        look = {"color": COLOURS[number % 6], "linestyle": DASHES[number % 4]}
        axes.plot(*curve, label=label, **(look | style))
    if len(curves) + (plain is not None) > 1:
        axes.legend(handlelength=2.4)
    if zero:
        axes.axhline(0, color=GREY, lw=0.5, zorder=0)


def note(axes: Axes, x: float, y: float, text: str, *, across: bool) -> None:
    """Writes a few grey words; x is a part of the panel if `across`, else y is."""
    place = axes.get_yaxis_transform() if across else axes.get_xaxis_transform()
    side = "right" if across else "center"
    axes.text(x, y, text, transform=place, ha=side, fontsize=7, color=GREY)


def heads(axes: Axes, offsets: np.ndarray, values: np.ndarray) -> None:
    """Draws a curve a head, told apart by colour along a bar."""
    count = len(values)
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.92, count))
    for colour, curve in zip(colours, values, strict=True):
        axes.plot(offsets, curve, color=colour, lw=1)
    norm = BoundaryNorm(np.arange(count + 1) + 0.5, count)
    shown = ScalarMappable(norm, ListedColormap(colours))
    bar = _bar(axes, shown, "head", ticks=[1, count])
    bar.ax.yaxis.labelpad = -4


def matrix(
    axes: Axes,
    values: np.ndarray,
    label: str,
    *,
    signed: bool = False,
    extent: Sequence[float] | None = None,
    aspect: str = "equal",
    logarithmic: bool = False,
) -> None:
    """Draws a matrix with a bar of values; blank where it is NaN.

    Args:
        axes: the panel.
        values: rows downwards.
        label: of the bar, with its unit.
        signed: True for colours on either side of zero.
        extent: left, right, bottom and top of the picture; rows and columns if None.
        aspect: "equal" for square cells, "auto" to fill the panel.
        logarithmic: True for colours by the logarithm of (positive) values.
    """
    known = values[np.isfinite(values)]
    ends = known.min(), known.max()
    if signed:
        most = min(max(np.abs(known).max(), 1e-9), MOST)
        ends = -most, most
    norm = (LogNorm if logarithmic else Normalize)(*ends)
    colours = matplotlib.colormaps["PuOr_r" if signed else "cividis"]
    shown = axes.imshow(values, colours, norm=norm, extent=extent, aspect=aspect)
    axes.spines[:].set_visible(False)
    clipped = known.min() < ends[0] or known.max() > ends[1]
    _bar(axes, shown, label, extend="both" if clipped else "neither")


def _bar(axes: Axes, shown: ScalarMappable, label: str, **settings) -> Colorbar:
    """A bar of colours exactly as tall as the panel, whatever its proportions."""
    place = axes.inset_axes((1.03, 0, 0.045, 1))
    bar = axes.figure.colorbar(shown, cax=place, **settings)
    bar.set_label(label)
    bar.outline.set_visible(False)
    if "ticks" in settings:
        bar.ax.tick_params(which="both", length=0)
    return bar


def binary(axes: Axes, visible: np.ndarray) -> None:
    """Draws a boolean matrix, True dark, with a thin grid between its cells."""
    shades = ListedColormap(["#EEF1F4", COLOURS[0]])
    axes.imshow(visible, cmap=shades, vmin=0, vmax=1)
    axes.set_xticks(np.arange(visible.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(visible.shape[0] + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
