"""How the pictures look: colours, dashes, panels and legends, and how they are saved.

A line's colour and marker tell the encoding, its dashes the position scheme (and
whatever else the setting says); where there are more schemes than a few, and than
encodings, the other way round. So lines are told apart without colour too. The
colours are those of Okabe and Ito (2008), chosen for colour-blind readers. Figures are
made without pyplot: no global state, no display.
"""

import io
import itertools
import math
import os
import pathlib
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from experiments.report.naming import named_apart
from experiments.report.summaries import Setting

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p")
GREY = "#666666"
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "lines.markeredgewidth": 0,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "ropejax",
}


TITLE_WIDTH = 30
"""Characters of a title that fit over a panel."""


def title_panel(axes: Axes, text: str) -> None:
    """Puts a title over a panel, in several lines if one would reach into the next."""
    axes.set_title(plain(textwrap.fill(text, TITLE_WIDTH, break_long_words=False)))


NAME_WIDTH = 44
"""Characters of a name beside or below a picture, before it is broken."""
_LETTER = 0.06  # inches, about, of a name in a legend


def broken(text: str, width: int = NAME_WIDTH) -> str:
    """Breaks a long name into lines, at its spaces."""
    return plain(textwrap.fill(text, width, break_long_words=False))


def plain(text: str) -> str:
    """Returns text that is drawn as it is: dollar signs do not begin a formula."""
    return text.replace("$", r"\$")


FEW = 3
"""Kinds of dashes that a reader tells apart at a glance."""


def line_styles(settings: Sequence[Setting]) -> dict[Setting, dict]:
    """Choose colour, marker and dashes of each setting; no two are alike.

    Solid lines are for the first scheme that is not plain, dashed ones for the plain.
    Where all have one encoding, colours and markers tell the schemes apart too. With
    more than `FEW` schemes, dashes tell the encodings apart instead; with more of both,
    each line has a colour and a marker of its own.
    """
    ordered = sorted(
        settings, key=lambda s: (s.encoding != "none", s.place, s.encoding)
    )
    encodings = list(dict.fromkeys(setting.encoding for setting in ordered))
    variants = sorted({_variant(setting) for setting in settings})
    plain = [v for v in variants if v[0] == "consecutive"]
    others = [v for v in variants if v[0] != "consecutive"]
    variants = others[:1] + plain + others[1:]
    styles = {}
    for number, setting in enumerate(sorted(settings, key=lambda s: s.order)):
        encoding = encodings.index(setting.encoding)
        variant = variants.index(_variant(setting))
        if len(encodings) == 1:
            styles[setting] = _look(variant, variant)
        elif len(variants) <= FEW:
            styles[setting] = _look(encoding, variant)
        elif len(encodings) <= FEW:
            styles[setting] = _look(variant, encoding)
        else:
            styles[setting] = _look(number, number // len(COLOURS))
    return {setting: styles[setting] for setting in settings}


def _look(look: int, dashes: int) -> dict:
    """The first dashes are a solid line; markers of the second are hollow."""
    colour = COLOURS[look % len(COLOURS)]
    return {
        "color": colour,
        "marker": MARKERS[look % len(MARKERS)],
        "linestyle": _dashes(dashes),
        "markerfacecolor": "white" if dashes == 1 else colour,
        "markeredgecolor": colour,
        "markeredgewidth": 0.8 if dashes == 1 else 0.0,
    }


def _variant(setting: Setting) -> tuple:
    same = setting.test_encoding == setting.encoding
    tested = setting.test_positions, "" if same else setting.test_encoding
    return (
        setting.positions,
        *tested,
        setting.title,
        setting.config,
        setting.task_options,
        setting.group,
        setting.study,
    )


def _dashes(number: int) -> str | tuple:
    few = "-", (0, (5, 2)), (0, (6, 1.5, 1, 1.5)), (0, (2, 1)), (0, (8, 2, 2, 2))
    return few[number] if number < len(few) else (0, (number, 1, 1, 1, 1, 1))


def line_panels(
    number: int,
    styles: Mapping[Setting, Mapping],
    others: Sequence[Artist],
    band: str,
    columns: int | None = None,
) -> tuple[Figure, Sequence[Axes]]:
    """Lay out panels that share an ordinate, with one legend for all.

    Args:
        number: how many.
        styles: of the lines, by setting.
        others: further entries of the legend.
        band: what bands are; empty if there are none.
        columns: panels in a row; as near a square as leaves few places empty if None.
    """
    columns = columns or columns_of(number)
    rows = math.ceil(number / columns)
    crowded = len(styles) > 6 and number <= 6
    panel = (4.2, 2.8) if number == 1 else (3.0, 2.4) if crowded else (2.2, 1.75)
    width, height = columns * panel[0], rows * panel[1]
    beside = columns < 3 and len(styles) > 4
    names, shared = named_apart(list(styles))
    fitting = NAME_WIDTH if beside else int((width - 0.6) / _LETTER)
    lines = [
        Line2D([], [], label=broken(names[s], fitting), **style)
        for s, style in styles.items()
    ]
    others = list(others)
    if band:
        others.append(Patch(color=lines[0].get_color(), alpha=0.3, lw=0, label=band))
    legend_columns, handles = 1, lines + others
    texts = [line for one in handles for line in one.get_label().split("\n")]
    name_width = 0.6 + _LETTER * max(map(len, texts))  # inches, about
    if beside:
        size = width + name_width, max(height, 0.16 * len(texts) + 0.2)
    else:
        fitting = max(1, int(width / name_width))
        legend_columns, handles = _legend(lines, others, list(styles), fitting)
        more = len(texts) - len(lines + others) + len(handles) + bool(shared)
        size = width, height + 0.15 * math.ceil(more / legend_columns) + 0.1
    figure = Figure(figsize=size)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.flatten()[number:]:
        axes.set_axis_off()
    where = "outside right upper" if beside else "outside lower center"
    figure.legend(
        handles=handles, loc=where, ncols=legend_columns, title=plain(shared) or None
    )
    return figure, grid.flatten()[:number]


def columns_of(number: int) -> int:
    """Returns how many panels to put beside each other: few places stay empty."""
    least = math.ceil(math.sqrt(number))
    return min(least, least + 1, key=lambda columns: -number % columns)


def _legend(
    lines: list[Artist], others: list[Artist], settings: list[Setting], columns: int
) -> tuple[int, list[Artist]]:
    """Order a legend (it fills columns downwards): a column a scheme, if that fits."""
    groups = [
        [lines[settings.index(setting)] for setting in same]
        for _, same in itertools.groupby(settings, _variant)
    ]
    if len(groups) == 1 or len(groups) >= columns or min(map(len, groups)) < 3:
        handles = lines + others
        return min(columns, len(handles)), handles
    longest = max(map(len, groups))
    blank = Line2D([], [], linestyle="none", label=" ")
    padded = [group + [blank] * (longest - len(group)) for group in [*groups, others]]
    return len(padded), [handle for group in padded for handle in group]


def name_axes(panels: Sequence[Axes], xlabel: str, ylabel: str) -> None:
    """Name the abscissa below each column of panels, the ordinate beside each row."""
    places = [axes.get_subplotspec() for axes in panels]
    below = {(place.rowspan.start, place.colspan.start) for place in places}
    for axes, place in zip(panels, places, strict=True):
        if (place.rowspan.start + 1, place.colspan.start) not in below:
            axes.set_xlabel(xlabel)
        if place.is_first_col():
            axes.set_ylabel(ylabel)


def percent(panels: Sequence[Axes]) -> None:
    """Writes shares on the ordinate in percent, as tables do."""
    for axes in panels:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))


@matplotlib.rc_context(STYLE)
def save(figure: Figure, path: str | os.PathLike, formats: Sequence[str]) -> list:
    """Write `figure` to `path` with each suffix of `formats`; return the paths.

    The files of the same figure are the same: no date is written.
    """
    paths = []
    for suffix in formats:
        paths.append(pathlib.Path(f"{os.fspath(path)}.{suffix}"))
        dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(paths[-1], dpi=200, metadata=dates.get(suffix))
    return paths


@matplotlib.rc_context(STYLE)
def png(figure: Figure) -> bytes:
    """Draw `figure` as a PNG file in memory."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=200)
    figure.set_layout_engine("none")  # it is laid out now; that takes half of the time
    return file.getvalue()
