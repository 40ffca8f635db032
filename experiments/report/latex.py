"""Scores as LaTeX tables for a paper: packages booktabs and graphicx, nothing else."""

from collections.abc import Callable, Iterable, Sequence

from experiments.report import levels, summaries, tables
from experiments.report.summaries import Cell, Setting

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "…": r"\dots{}",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "→": r"$\to$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "·": r"$\cdot$",
    "²": "$^2$",
    "³": "$^3$",
}
_NAMED = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"),
    *("kappa", "lambda", "mu", "nu", "xi", "", "pi", "rho", "varsigma", "sigma", "tau"),
    *("upsilon", "phi", "chi", "psi", "omega"),
)
"""Greek letters from alpha; LaTeX has no omicron."""
_GREEK = {chr(0x3B1 + at): rf"$\{name}$" for at, name in enumerate(_NAMED) if name}
_SPECIAL |= _GREEK | {character: f"\\{character}" for character in "&%$#_{}"}


def text(plain: str) -> str:
    """Write `plain` so that LaTeX shows it as it is."""
    return "".join(_SPECIAL.get(character, character) for character in plain)


def document(cells: Sequence[Cell]) -> str:
    """Write both tables of a report: the best scores alone, and with means beside.

    Args:
        cells: of any tasks and settings.
    """
    score = f"Token accuracy (%) beyond the training lengths, {_seeds(cells)}"
    chosen = "the learning rate with the highest mean"
    both = (
        f"{score}: best over seeds and learning rates; below it the mean over the "
        f"seeds at {chosen}, with its {tables.INTERVAL}. Input-blind: the best "
        f"predictor that does not see the input. {tables.BOLD}"
    )
    best = f"{score}: best over seeds and learning rates. {tables.BOLD}"
    return "\n\n".join(
        [
            "% needs the packages booktabs and graphicx",
            matrix(cells, tables.best_text, best, "tab:best"),
            matrix(cells, tables.best_and_mean_text, both, "tab:best-and-mean") + "\n",
        ]
    )


def _seeds(cells: Sequence[Cell]) -> str:
    ends = dict.fromkeys([min(c.seeds for c in cells), max(c.seeds for c in cells)])
    return f"{'–'.join(map(str, ends))} seeds" if ends != {1: None} else "1 seed"


def matrix(
    cells: Sequence[Cell], show: Callable[[Cell], str], caption: str, label: str
) -> str:
    """Format `tables.matrix` as a LaTeX table.

    Settings stand under their position schemes, tasks under their Chomsky levels; what
    stands behind a score stands below it.

    Args:
        cells: of any tasks and settings.
        show: text of a cell, as for `tables.matrix`.
        caption: plain text.
        label: of the table, to refer to it.
    """
    settings = summaries.settings_of(cells)
    width = 2 + len(settings)
    lines = [r"\toprule", *_head(settings), r"\midrule"]
    groups = levels.by_level(cells)
    for place, (level, group) in enumerate(groups.items()):
        if len(groups) > 1:
            name = rf"\emph{{{text(level[:1].upper() + level[1:])}}}"
            lines += [r"\addlinespace"] * (place > 0)
            lines.append(_row([rf"\multicolumn{{{width}}}{{l}}{{{name}}}"]))
        for row in tables.matrix(group, show, settings):
            lines += _task(row)
    lines.append(r"\bottomrule")
    parts = [
        r"\begin{table}",
        r"  \centering\small\setlength{\tabcolsep}{4pt}",
        rf"  \caption{{{text(caption)}}}",
        rf"  \label{{{label}}}",
        rf"  {_FIT}{{%",
        rf"  \begin{{tabular}}{{l{'r' * (width - 1)}}}",
        *(f"    {line}" for line in lines),
        r"  \end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(parts)


_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
"""Makes what is too wide for the page as wide as that, and leaves the rest."""


def _head(settings: Sequence[Setting]) -> list[str]:
    over, rules, column = ["", ""], [], 3
    for name, count in tables.variant_groups(settings):
        over.append(rf"\multicolumn{{{count}}}{{c}}{{{_over(name)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{column + count - 1}}}")
        column += count
    head = _row(["Task", "Input-blind", *map(_column_name, settings)])
    return [_row(over), "".join(rules), head]


def _over(name: str) -> str:
    """Writes a name over columns, a line a part, so that these stay narrow."""
    lines = [text(part) for part in name.split(", ")]
    joined = r",\\ ".join(lines)
    return rf"\shortstack{{{joined}}}" if len(lines) > 1 else joined


def _row(texts: Iterable[str]) -> str:
    line = " & ".join(texts)
    guard = "{}" if line.startswith(("[", "*")) else ""  # an argument of \\ above
    return f"{guard}{line}" + r" \\"


def _task(row: Sequence[tables.Text]) -> list[str]:
    """Writes a row; parts of a cell with ` / ` or ` [` before them go to rows below."""
    parts = [cell.text.replace(" [", " / [").split(" / ") for cell in row]
    height = max(map(len, parts))
    lines = [
        _row(
            _part(part[at] if at < len(part) else "", at, cell.strong)
            for part, cell in zip(parts, row, strict=True)
        )
        for at in range(height)
    ]
    return [*lines, r"\addlinespace[2pt]"] if height > 1 else lines


def _part(shown: str, at: int, strong: bool) -> str:
    if at == 0:
        return rf"\textbf{{{text(shown)}}}" if strong else text(shown)
    return rf"{{\scriptsize {text(shown)}}}" if shown else ""


def _column_name(setting: Setting) -> str:
    """Writes the encoding, and its settings below it, which may be long."""
    name = setting.encoding_title or setting.encoding
    head, bracket, rest = name.partition("(")
    if not bracket:
        return text(name)
    below = rf"{{\tiny {text(bracket + rest)}}}"
    return rf"\shortstack[r]{{{text(head.strip())}\\ {below}}}"
