"""Draws every position encoding and every mask, as people look at them.

    python -m experiments.gallery --out=gallery
    python -m experiments.gallery --out=gallery --only=rope,alibi,mask_causal

One PNG a method, and one contact sheet of all that were drawn. Learned numbers are
those of a start with seed 0; where such a start shows nothing, they are drawn at
random. Settings are the defaults, for models trained to 40 tokens, or named in the
picture.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import jax
import matplotlib
import matplotlib.image
import numpy as np
from matplotlib.figure import Figure

from experiments import command
from experiments.building.options import nearest
from experiments.gallery.draw import DPI, STYLE, figure_of
from experiments.gallery.masks import MASKS, mask_figure
from experiments.gallery.numbers import DIMS, start
from experiments.gallery.panels import panels_of
from experiments.gallery.sheet import contact_sheet
from ropejax.encodings import ENCODINGS, Encoding

_PAIRS = DIMS.head_dim // 2

SETTINGS = MappingProxyType(
    {
        "su_ntk": {form: {"form": form} for form in ("old", "fixed", "mixed")},
        "ntk_by_parts": {form: {"form": form} for form in ("code", "paper")},
        "longrope": {
            "example factors 1 to 4": {
                "long_factors": tuple(np.geomspace(1, 4, _PAIRS).tolist())
            }
        },
        "leaky_rerope": {f"factor {k}": {"factor": float(k)} for k in (2, 4, 16)},
        "log_scale": {
            form: {"form": form} for form in ("post_hoc", "trained", "natural", "steps")
        },
        "learned": {
            "2048 rows": {},
            "16 rows extended": {"max_position": 16, "extension": 0.4},
        },
        "kerple": {kernel: {"kernel": kernel} for kernel in ("log", "power")},
        "m_rope": {
            "contiguous": {},
            "interleaved": {"interleaved": True, "sections": (12, 10, 10)},
        },
        "grape_m": {"step of 1 at the start": {"initial_step": 1.0}},
        "repo": {"weights of N(0, 0.5)": {"init_std": 0.5}},
        "wall": {"gates of about 0.9": {"initial_bias": 2.0}},
        "fire": {"threshold 32": {"threshold": 32.0}},
        "rope_2d": {form: {"form": form} for form in ("block", "alternating")},
        "soft_cap": {"cap 1": {"cap": 1.0}},
    }
)
"""Settings to draw of encodings whose defaults do not say enough, by label."""


def variants_of(name: str) -> dict[str, Encoding]:
    """Returns the settings of a method that are drawn together, by label."""
    kind = ENCODINGS[name]
    chosen = SETTINGS.get(name) or {kind().title: {}}
    return {label: kind(**settings) for label, settings in chosen.items()}


def encoding_figure(name: str) -> Figure:
    """Returns the picture of an encoding: a row of panels."""
    variants = variants_of(name)
    first = next(iter(variants.values()))
    panels = panels_of(variants)
    about = [first.summary]
    if settings := SETTINGS.get(name):
        about.append("drawn: " + ", ".join(settings))
    if jax.tree.leaves(jax.eval_shape(lambda: start(first))):
        about.append("parameters drawn at random, not trained")
    if first.reference:
        about.append(first.reference)
    figure, all_axes = figure_of(
        len(panels), f"{type(first)().title}  ({name})", "; ".join(about)
    )
    for axes, (title, draw) in zip(all_axes, panels, strict=True):
        axes.set_title(title)
        draw(axes)
    return figure


def drawings() -> Mapping[str, Callable[[], Figure]]:
    """Returns all that can be drawn, by the name of its file."""
    encodings = {name: lambda name=name: encoding_figure(name) for name in ENCODINGS}
    masks = {f"mask_{name}": lambda name=name: mask_figure(name) for name in MASKS}
    return encodings | masks


def draw(out: pathlib.Path, names: Sequence[str]) -> list[pathlib.Path]:
    """Writes a picture a name and a contact sheet, and returns their paths.

    Args:
        out: folder, made if need be.
        names: of `drawings()`.

    Raises:
        ValueError: for an unknown name, with the nearest ones.
    """
    known = drawings()
    for name in names:
        if name not in known:
            raise ValueError(
                f"there is nothing called {name!r} to draw.{nearest(name, known)}"
            )
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names:
        paths.append(out / f"{name}.png")
        with matplotlib.rc_context(dict(STYLE)):
            known[name]().savefig(paths[-1], dpi=DPI)
    sheet = out / "contact_sheet.png"
    pictures = [matplotlib.image.imread(path)[..., :3] for path in paths]
    matplotlib.image.imsave(sheet, contact_sheet(pictures))
    return [*paths, sheet]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument("--out", metavar="DIR", help="where pictures are written")
    parser.add_argument(
        "--only", metavar="NAME,...", help="what to draw; all if absent"
    )
    given = command.options(parser, argv)
    if given.out is None:
        raise command.UsageError("--out is missing; --help shows an example.")
    command.prepare_jax(given.compile_cache)
    names = given.only.split(",") if given.only else list(drawings())
    for path in draw(pathlib.Path(given.out), names):
        print(path)
    return 0


if __name__ == "__main__":
    command.run(main)
